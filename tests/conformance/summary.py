# SPDX-License-Identifier: Apache-2.0
"""A run in a few lines, and its failures as lines for the list."""

from __future__ import annotations

import collections
from collections.abc import Sequence

from conformance.cases import ERRORS
from conformance.runner import Outcome
from conformance.verdict import Known

__all__ = ["suggested_lines", "summarise"]


def summarise(outcomes: Sequence[Outcome]) -> str:
    """Count entries, cases and calls; an entry passes when all its cases that ran do."""
    forward = [outcome for outcome in outcomes if outcome.case.dtype != ERRORS]
    errors = [outcome for outcome in outcomes if outcome.case.dtype == ERRORS]
    lines = []
    for name, part in (("forward", forward), ("errors", errors)):
        if not part:
            continue
        entries = {outcome.case.entry for outcome in part}
        failing = {outcome.case.entry for outcome in part if outcome.failures}
        passed = len(entries) - len(failing)
        bad = sum(bool(outcome.failures) for outcome in part)
        calls = sum(outcome.calls for outcome in part)
        eagerly = sum(outcome.eagerly for outcome in part)
        share = 100 * passed / len(entries)
        lines.append(
            f"{name}: {passed} of {len(entries)} entries pass ({share:.1f}%), "
            f"{len(part) - bad} of {len(part)} cases; {calls} calls, {eagerly} of them eagerly"
        )
        kinds = collections.Counter(kind for outcome in part for _, kind, _ in outcome.failures)
        if kinds:
            lines.append("  " + ", ".join(f"{kind}: {count}" for kind, count in kinds.items()))
    return "\n".join(lines)


def suggested_lines(outcomes: Sequence[Outcome]) -> list[Known]:
    """Return one line for each entry and kind of failure, with a message as its reason."""
    ran: dict[str, set[str]] = collections.defaultdict(set)
    found: dict[tuple[str, str], dict[str, bool]] = {}
    reasons: dict[tuple[str, str], str] = {}
    for outcome in outcomes:
        entry, dtype = outcome.case.entry, outcome.case.dtype
        ran[entry].add(dtype)
        for kind, count in collections.Counter(kind for _, kind, _ in outcome.failures).items():
            found.setdefault((entry, kind), {})[dtype] = count == outcome.calls
        for _, kind, message in outcome.failures:
            reasons.setdefault((entry, kind), message)
    lines = []
    for (entry, kind), dtypes in found.items():
        for name, wanted in (("all", True), ("some", False)):
            chosen = [dtype for dtype, every in dtypes.items() if every is wanted]
            if ran[entry] - {ERRORS} and ran[entry] - {ERRORS} <= set(chosen):
                chosen = ["*", *({ERRORS} & set(chosen))]
            if chosen:
                lines.append(Known(entry, tuple(chosen), name, kind, reasons[entry, kind]))
    return lines
