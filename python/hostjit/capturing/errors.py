# SPDX-License-Identifier: Apache-2.0
"""The error that capture raises when a call cannot become a program."""

from __future__ import annotations

import enum
import re
import types
from collections.abc import Sequence

__all__ = [
    "CaptureError",
    "CaptureFailure",
    "ComputedNumberError",
    "in_one_line",
    "name_before_breaks",
]

# How Dynamo names code that goes on behind a break. Of its calls it says what the code was.
_RESUMED = re.compile("torch_dynamo_resume_in_(.*)_at_[0-9]+")


class CaptureFailure(enum.Enum):
    """Why a call could not be captured; `CaptureError.failure` carries one of these."""

    UNSUPPORTED_INPUT = "unsupported input"
    GRAPH_BREAK = "graph break"
    DATA_DEPENDENT = "data-dependent"
    LONG_LOOP = "long loop"
    NEEDS_AUTOGRAD = "needs autograd"
    SWITCHES_GRADIENTS = "switches gradients on"
    LAZY_RESULT = "lazy result"
    LAZY_MODULE = "lazy module"
    USER_EXCEPTION = "user exception"
    OVERLAPPING_INPUTS = "overlapping inputs"
    UNSUPPORTED_PROGRAM = "unsupported program"
    UNTRACED = "internal to Dynamo"
    INTERNAL = "internal"


class CaptureError(RuntimeError):
    """A call that cannot be captured: what, where in the user's source, and what to do.

    Every failure of capture is raised as this class, the original error as `__cause__`, so that a
    caller with an eager fallback needs one `except`. Nothing of the user's program has run, so
    that running it eagerly afterwards gives the right answer or the error that eager raises.

    Attributes:
        failure: the kind of failure.
        what: what could not be captured, in one sentence.
        where: "file:line" in the user's source, or None when it is not known.
        hint: what to do about it.
        stack: the calls that led there, the outermost first: file, name of the code, and line.
    """

    def __init__(
        self,
        failure: CaptureFailure,
        what: str,
        *,
        where: str | None = None,
        hint: str = "",
        stack: Sequence[tuple[str, str, int]] = (),
    ) -> None:
        self.failure = failure
        self.what = what
        self.where = where
        self.hint = hint
        self.stack = tuple(stack)
        message = f"cannot capture ({failure.value}): {what}"
        if where is not None:
            message += f"\n  at {where}"
        if hint:
            message += f"\n  to do: {hint}"
        super().__init__(message)

    def lines_in(self, code: types.CodeType) -> frozenset[int]:
        """Return the lines of some code that led there."""
        here = _place_of(code)
        return frozenset(line for *place, line in self.stack if tuple(place) == here)

    def is_in(self, code: types.CodeType) -> bool:
        """Tell whether it is in some code itself, not in what that calls."""
        if not self.stack:
            return False
        *place, last = self.stack[-1]
        return tuple(place) == _place_of(code) and last in {line for _, _, line in code.co_lines()}


def _place_of(code: types.CodeType) -> tuple[str, str]:
    return code.co_filename, name_before_breaks(code.co_name)


def name_before_breaks(name: str) -> str:
    """Return how code is called that Dynamo has resumed, by its name or its qualified name."""
    return _RESUMED.sub(r"\1", name)


class ComputedNumberError(CaptureError):
    """An operator takes a number that is computed of others at the call; Python can do that."""

    def __init__(self, number: object) -> None:
        what = f"an operator takes {number}, which is computed at the call"
        super().__init__(CaptureFailure.UNSUPPORTED_PROGRAM, what)


def in_one_line(error: Exception) -> str:
    """Say what went wrong in a capture or a compilation, and where; not what to do about it."""
    if not isinstance(error, CaptureError):
        return repr(error)
    return error.what if error.where is None else f"{error.what} ({error.where})"
