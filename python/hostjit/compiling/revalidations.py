# SPDX-License-Identifier: Apache-2.0
"""How much of the time goes into looking again at what a program was compiled for.

A watch that fails costs a millisecond, in which the program is found to fit as before, mostly. That
is little once. Where code gives its state another form at each call, it is all of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["Revalidations"]

# So many looks are counted together, and may take this share of the time that passes meanwhile.
_LOOKS = 32
_SHARE = 0.25

Look = Callable[..., tuple[Any, ...] | None]


class Revalidations:
    """Those of the programs of one function.

    Attributes:
        are_too_many: they take too much of the time. No program is looked at from then on.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock`: tells the time in seconds."""
        self.are_too_many = False
        self._clock = clock
        self._count = 0
        self._seconds = 0.0
        self._begin = 0.0

    def timed(self, look: Look) -> Look:
        """Return the same, which counts; None of what it looks at fits once they are too many."""

        def timed_look(*call: Any) -> tuple[Any, ...] | None:
            if self.are_too_many:
                return None
            begin = self._clock()
            try:
                return look(*call)
            finally:
                self._note(begin, self._clock())

        return timed_look

    def _note(self, begin: float, end: float) -> None:
        if self._count == 0:
            self._begin = begin
        self._count += 1
        self._seconds += end - begin
        if self._count == _LOOKS:
            self.are_too_many = self._seconds > _SHARE * (end - self._begin)
            self._count, self._seconds = 0, 0.0
