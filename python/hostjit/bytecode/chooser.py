# SPDX-License-Identifier: Apache-2.0
"""Who answers, for a thread, what code decides by values."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from hostjit.bytecode.choices import Choice
    from hostjit.bytecode.exits import Exit, Leave

__all__ = ["Chooser", "chooses_by", "current_chooser"]


class Chooser(Protocol):
    """What runs the statements of this thread that decide."""

    def choose(self, choice: Choice, test: Any, taken: Sequence[Any]) -> Any:
        """Return what the function of a choice returns, given what its test has found."""

    def leave(self, leave: Leave, test: Any, taken: Sequence[Any]) -> bool:
        """Return the answer to the test of a loop. `taken`: of the variables `leave.taken`."""

    def arrive(self, place: Exit, values: Sequence[Any]) -> Sequence[Any]:
        """Return what the variables become that are needed behind a loop, which is left."""

    def called(self, function: Any) -> Any:
        """Return what is called in place of a function, or of whatever is called."""


class _Thread(threading.local):
    chooser: Chooser | None = None


_thread = _Thread()


class chooses_by:  # noqa: N801
    """Have a chooser decide in this thread, while this is entered."""

    def __init__(self, chooser: Chooser) -> None:
        self._chooser: Chooser | None = chooser

    def __enter__(self) -> None:
        _thread.chooser, self._chooser = self._chooser, _thread.chooser

    def __exit__(self, *_: object) -> None:
        _thread.chooser, self._chooser = self._chooser, None


def current_chooser() -> Chooser | None:
    """Return who decides in this thread; None where the code does."""
    return _thread.chooser
