# SPDX-License-Identifier: Apache-2.0
"""Hold the outcomes of a run against the list of known failures, in both directions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from conformance.cases import ERRORS, Case
from conformance.runner import Outcome

__all__ = ["KNOWN_FAILURES", "Known", "judge", "read_known"]

KNOWN_FAILURES = Path(__file__).with_name("known_failures.txt")


@dataclasses.dataclass(frozen=True)
class Known:
    """One line of the list.

    Attributes:
        entry: an entry of the database.
        dtypes: which of its cases: names of dtypes, "*" for all of them, "errors".
        calls: "all" when every call of such a case fails so, "some" when there are others.
        kind: how they fail.
        reason: why, and what would change it.
    """

    entry: str
    dtypes: tuple[str, ...]
    calls: str
    kind: str
    reason: str

    def covers(self, case: Case) -> bool:
        if case.entry != self.entry:
            return False
        return case.dtype in self.dtypes or ("*" in self.dtypes and case.dtype != ERRORS)

    def __str__(self) -> str:
        return " | ".join([self.entry, ",".join(self.dtypes), self.calls, self.kind, self.reason])


def read_known(text: str) -> list[Known]:
    """Parse the list: five fields between bars, one failure per line; # begins a comment."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("|", 4)]
        if len(fields) != 5 or fields[2] not in ("all", "some") or not fields[4]:
            raise ValueError(
                f"known failures, line {number}: expected "
                f"'entry | dtypes | all or some | kind | reason', found '{line}'"
            )
        entry, dtypes, calls, kind, reason = fields
        found.append(Known(entry, tuple(dtypes.split(",")), calls, kind, reason))
    return found


def judge(outcomes: Sequence[Outcome], known: Sequence[Known], *, complete: bool) -> list[str]:
    """Return what is wrong with a run: unknown failures, and known ones that did not happen.

    Args:
        outcomes: the cases that ran.
        known: the list.
        complete: every call was made; without that, a failure of some calls may not show.
    """
    wrong = []
    for outcome in outcomes:
        lines = [line for line in known if line.covers(outcome.case)]
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
