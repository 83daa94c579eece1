# SPDX-License-Identifier: Apache-2.0
"""Whether the calls of a function are faster by Dynamo's frames, or eagerly."""

from __future__ import annotations

import enum
import statistics
import threading
from collections.abc import Sequence

__all__ = ["FrameTrial", "Way"]


class Way(enum.Enum):
    """How calls run."""

    FRAMES = enum.auto()
    """By frames that Dynamo compiles."""
    PARTS = enum.auto()
    """By what is compiled of them otherwise, passes of loops say, and without such frames."""
    EAGER = enum.auto()
    """By the code as it is."""


# Calls that compile nothing before the first that is timed: all code is compiled by then.
_SETTLED = 3
# How the calls that are timed run: as many in each way, also of each second, third, fourth or sixth
# call, as calls that differ in turn would be.
_TURNS = {
    2: [*map(int, "010101011010101010100101")],
    3: [*map(int, "012210221010101022102201220101010122")],
}
# Frames have to take this many times as long, for they may be faster at other calls.
_MARGIN = 1.1
# Of results that need gradients: a backward pass is to come, which is faster compiled.
_MARGIN_WITH_GRADIENTS = 1.5
# Code that Dynamo compiles again and again is never settled: then calls are timed with that, a few
# in each way, and what they take in all is compared.
_MOST_CALLS = 96
_MOST_COMPILING = 24
_CALLS_OF_EACH = 4
# After so many, calls run by frames.
_LAST_CALL = 384


class FrameTrial:
    """Times calls of all kinds in turn, once all is compiled.

    Attributes:
        way: of the next call; by frames until then.
        is_over: all others run in that way, too.
    """

    def __init__(self, ways: Sequence[Way]) -> None:
        """`ways`: two or three, the one by frames first."""
        self.way = ways[0]
        self.is_over = False
        self._ways = ways
        self._turns = [ways[turn] for turn in _TURNS[len(ways)]]
        self._calls = 0
        self._compiling = 0
        self._never_settles = False
        self._settled = 0
        self._margin = _MARGIN
        self._forget()
        self._lock = threading.Lock()  # threads may call at once, and end in any order

    def _forget(self) -> None:
        self._times: dict[Way, list[float]] = {way: [] for way in self._ways}

    def note(
        self, seconds: float, way: Way, *, compiled: bool, with_gradients: bool = False
    ) -> None:
        """Look at a call that has ended.

        `compiled`: something was compiled meanwhile; `with_gradients`: the result needs some.
        """
        with self._lock:
            if not self.is_over:
                self._margin = _MARGIN_WITH_GRADIENTS if with_gradients else _MARGIN
                self._note(seconds, way, compiled)

    def end(self) -> None:
        """Have all calls run by frames."""
        with self._lock:
            self.way, self.is_over = self._ways[0], True

    def _note(self, seconds: float, way: Way, compiled: bool) -> None:
        self._calls += 1
        self._compiling += compiled
        if self._never_settles:
            self._times[way].append(seconds)
        elif self._calls >= _MOST_CALLS or self._compiling >= _MOST_COMPILING:
            self._never_settles = True
            self._turns = self._turns[: _CALLS_OF_EACH * len(self._ways)]
            self._forget()
        elif compiled:
            self._settled = 0
            self._forget()
        elif self._settled < _SETTLED:
            self._settled += 1
        else:
            self._times[way].append(seconds)
        count = sum(map(len, self._times.values()))
        self.way = self._ways[0]
        if count >= len(self._turns) and all(self._times.values()):
            self.is_over = True
            self.way = self._fastest()
        elif self._calls >= _LAST_CALL:
            self.is_over = True
        elif self._settled >= _SETTLED or self._never_settles:
            self.way = self._turns[count % len(self._turns)]

    def _fastest(self) -> Way:
        """The way that others have to be faster than by a margin, or the fastest of these."""
        first, times = self._ways[0], self._times
        if self._never_settles:
            compared = [{way: statistics.fmean(times[way]) for way in self._ways}]
        else:
            # Calls may be of several kinds: the shortest says as little as one that waited.
            compared = [
                {way: statistics.median(times[way]) for way in self._ways},
                {way: min(times[way]) for way in self._ways},
            ]
        fastest = min(self._ways, key=compared[0].__getitem__)
        is_faster = all(found[first] > self._margin * found[fastest] for found in compared)
        return fastest if is_faster else first
