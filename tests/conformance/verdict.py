# SPDX-License-Identifier: Apache-2.0
"""Hold the outcomes of a run against the list of known failures, in both directions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from conformance.case import BACKWARD, ERRORS, Case
from conformance.runner import Outcome

__all__ = ["KNOWN_FAILURES", "Known", "judge", "known_on", "read_known"]

KNOWN_FAILURES = Path(__file__).with_name("known_failures.txt")
_KNOWN_ON_CUDA = Path(__file__).with_name("known_failures_cuda.txt")


@dataclasses.dataclass(frozen=True)
class Known:
    """One line of the list.

    Attributes:
        entry: an entry of a database, "*" for all of them.
        parts: which of its cases: names of dtypes, "*" for all of them, either with ".backward"
            for their gradients, "errors".
        calls: "all" when every call of such a case fails so, "some" when there are others.
        through: the subject, "*" for all; what holds of calls that are compiled each for itself
            holds where one callable is compiled for several of them ("-once", "-resized").
        kind: how they fail.
        reason: why, and what would change it.
    """

    entry: str
    parts: tuple[str, ...]
    calls: str
    through: str
    kind: str
    reason: str

    def covers(self, case: Case, through: str) -> bool:
        subjects = ("*", through, through.partition("-")[0])
        if self.entry not in ("*", case.entry) or self.through not in subjects:
            return False
        every = f"*{BACKWARD}" if case.backward else "*"
        return case.part in self.parts or (every in self.parts and case.part != ERRORS)

    def __str__(self) -> str:
        fields = [self.entry, ",".join(self.parts), self.calls, self.through, self.kind]
        return " | ".join([*fields, self.reason])


def read_known(text: str) -> list[Known]:
    """Parse the list: six fields between bars, one failure per line; # begins a comment."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("|", 5)]
        if len(fields) != 6 or fields[2] not in ("all", "some") or not fields[5]:
            raise ValueError(
                f"known failures, line {number}: expected "
                f"'entry | parts | all or some | through | kind | reason', found '{line}'"
            )
        entry, parts, calls, through, kind, reason = fields
        found.append(Known(entry, tuple(parts.split(",")), calls, through, kind, reason))
    return found


def known_on(device: str) -> list[Known]:
    """Return the lines for a device. CUDA has its own, and may fail where the CPU does."""
    known = read_known(KNOWN_FAILURES.read_text())
    if device != "cuda":
        return known
    also = [dataclasses.replace(line, calls="some") for line in known]
    return [*also, *read_known(_KNOWN_ON_CUDA.read_text())]


def judge(
    outcomes: Sequence[Outcome], known: Sequence[Known], through: str, *, complete: bool
) -> list[str]:
    """Return what is wrong with a run: unknown failures, and known ones that did not happen.

    Args:
        outcomes: the cases that ran.
        known: the list.
        through: the subject of the run.
        complete: every call was made; without that, a failure of some calls may not show.
    """
    wrong = []
    for outcome in outcomes:
        lines = [line for line in known if line.covers(outcome.case, through)]
        kinds = {line.kind for line in lines}
        for index, kind, message in outcome.failures:
            if kind not in kinds:
                wrong.append(f"{outcome.case} call {index}: {kind}: {message}")
        for line in lines:
            count = sum(kind == line.kind for _, kind, _ in outcome.failures)
            if line.calls == "all" and count < outcome.calls:
                wrong.append(
                    f"{outcome.case}: {outcome.calls - count} of {outcome.calls} calls pass that "
                    f"the list has as '{line}'"
                )
            elif complete and count == 0:
                wrong.append(f"{outcome.case}: passes, but the list has '{line}'")
    return wrong
