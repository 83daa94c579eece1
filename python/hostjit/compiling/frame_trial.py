# SPDX-License-Identifier: Apache-2.0
"""Whether the calls of a function are faster by Dynamo's frames, or eagerly."""

from __future__ import annotations

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
        self._times: list[float] = []

    def note(self, seconds: float, *, compiled: bool) -> None:
        """Look at a call that has run as it was to. `compiled`: a frame of it was compiled."""
        self._calls += 1
        if compiled:
            self._settled = 0
            self._times.clear()
        elif self._settled < _SETTLED:
            self._settled += 1
        else:
            self._times.append(seconds)
        if self._calls >= _MOST_CALLS:
            self.end()
        elif len(self._times) == len(_TURNS):
            self._decide()
        elif self._settled == _SETTLED:
            self.by_frames = _TURNS[len(self._times)]
        else:
            self.by_frames = True

    def end(self) -> None:
        """Have all calls run by frames."""
        self.by_frames = self.is_over = True

    def _decide(self) -> None:
        frames, eager = (
            min(time for time, turn in zip(self._times, _TURNS, strict=True) if turn is kind)
            for kind in (True, False)
        )
        self.end()
        self.by_frames = frames <= _MARGIN * eager
