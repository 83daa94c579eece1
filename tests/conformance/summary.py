# SPDX-License-Identifier: Apache-2.0
"""A run in a few lines, and its failures as lines for the list."""

from __future__ import annotations

import collections
from collections.abc import Sequence

from conformance.case import BACKWARD, EAGERLY, ERRORS, PER_SIZE
from conformance.runner import Outcome
from conformance.verdict import Known

__all__ = ["suggested_lines", "summarise"]


def summarise(outcomes: Sequence[Outcome]) -> str:
    """Count entries, cases and calls; an entry passes when all its cases that ran do."""
    groups: dict[str, list[Outcome]] = collections.defaultdict(list)
    for outcome in outcomes:
        groups[outcome.case.kind].append(outcome)
    lines = []
    for name, group in groups.items():
        entries = {outcome.case.entry for outcome in group}
        failing = [outcome for outcome in group if _fails(outcome)]
        passed = len(entries) - len({outcome.case.entry for outcome in failing})
        kinds = collections.Counter(kind for outcome in group for _, kind, _ in outcome.failures)
        eagerly = {outcome.case.entry for outcome in group if EAGERLY in _kinds(outcome)}
        lines.append(
            f"{name}: {passed} of {len(entries)} entries pass "
            f"({100 * passed / len(entries):.1f}%), {len(eagerly)} of them with calls that run "
            f"eagerly; {len(group) - len(failing)} of {len(group)} cases; "
            f"{sum(outcome.calls for outcome in group)} calls, {kinds.pop(EAGERLY, 0)} eagerly"
        )
        if kinds:
            lines.append("  " + ", ".join(f"{kind}: {count}" for kind, count in kinds.items()))
    return "\n".join(lines)


def suggested_lines(outcomes: Sequence[Outcome], through: str) -> list[Known]:
    """Return one line for each entry and kind of failure, with a message as its reason."""
    ran: dict[str, set[str]] = collections.defaultdict(set)
    found: dict[tuple[str, str], dict[str, bool]] = {}
    reasons: dict[tuple[str, str], str] = {}
    for outcome in outcomes:
        entry, part = outcome.case.entry, outcome.case.part
        ran[entry].add(part)
        for kind, count in collections.Counter(kind for _, kind, _ in outcome.failures).items():
            found.setdefault((entry, kind), {})[part] = count == outcome.calls
        for _, kind, message in outcome.failures:
            reasons.setdefault((entry, kind), message)
    lines = []
    for (entry, kind), parts in found.items():
        for name, wanted in (("all", True), ("some", False)):
            chosen = {part for part, every in parts.items() if every is wanted}
            for suffix in ("", BACKWARD):
                group = {
                    part
                    for part in ran[entry] - {ERRORS}
                    if part.endswith(BACKWARD) is bool(suffix)
                }
                if group and group <= chosen:
                    chosen = (chosen - group) | {f"*{suffix}"}
            if chosen:
                line = (entry, tuple(sorted(chosen)), name, through, kind, reasons[entry, kind])
                lines.append(Known(*line))
    return lines


def _fails(outcome: Outcome) -> bool:
    return bool(_kinds(outcome) - {EAGERLY, PER_SIZE})


def _kinds(outcome: Outcome) -> set[str]:
    return {kind for _, kind, _ in outcome.failures}
