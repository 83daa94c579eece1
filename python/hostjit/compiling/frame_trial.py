# SPDX-License-Identifier: Apache-2.0
"""Whether the calls of a function are faster by Dynamo's frames, or eagerly."""

from __future__ import annotations

import threading
from collections.abc import Sequence

__all__ = ["FrameTrial"]

# Calls without a new frame before the first that is timed: all code is compiled by then.
_SETTLED = 3
# Which of the calls that are timed run by frames: as many as not, and in step with nothing.
_TURNS: Sequence[bool] = tuple(turn == "f" for turn in "feefeffeeffefeef")
# Frames have to take this many times as long, for they may be faster at other calls.
_MARGIN = 1.2
# Code that Dynamo compiles again and again is never settled.
_MOST_CALLS = 64


class FrameTrial:
    """Times calls of both kinds in turn, once all frames are compiled.

    Attributes:
        by_frames: the next call is to run by frames.
        is_over: so are all others, or none of them.
    """

    def __init__(self) -> None:
        self.by_frames = True
        self.is_over = False
        self._calls = 0
        self._settled = 0
        self._times: dict[bool, list[float]] = {True: [], False: []}
        self._lock = threading.Lock()  # threads may call at once, and end in any order

    def note(self, seconds: float, *, by_frames: bool, compiled: bool) -> None:
        """Look at a call that has ended. `compiled`: a frame of it was compiled."""
        with self._lock:
            if not self.is_over:
                self._note(seconds, by_frames, compiled)

    def end(self) -> None:
        """Have all calls run by frames."""
        with self._lock:
            self.by_frames = self.is_over = True

    def _note(self, seconds: float, by_frames: bool, compiled: bool) -> None:
        self._calls += 1
        if compiled:
            self._settled = 0
            self._times = {True: [], False: []}
        elif self._settled < _SETTLED:
            self._settled += 1
        else:
            self._times[by_frames].append(seconds)
        count = sum(map(len, self._times.values()))
        if self._calls >= _MOST_CALLS:
            self.by_frames = self.is_over = True
        elif count >= len(_TURNS) and all(self._times.values()):
            self.is_over = True
            self.by_frames = min(self._times[True]) <= _MARGIN * min(self._times[False])
        else:
            self.by_frames = self._settled < _SETTLED or _TURNS[count % len(_TURNS)]
