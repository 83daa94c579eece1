# SPDX-License-Identifier: Apache-2.0
"""How much the recordings of one function may differ before its calls are recorded no more."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

from hostjit import _C
from hostjit.recording.replays.replay import Replay

__all__ = ["Limits"]


@dataclasses.dataclass(frozen=True)
class Limits:
    """What is taken to go on to differ. Without the `recompile_limit`, nothing is.

    Attributes:
        floats_only: of numbers, only floats do; ints, and sizes, are modes, of which there are few.
        values: of a number among the arguments, and combinations of sizes.
        floats: recordings that read a float of a tensor: it is seldom the same again.
        draws: recordings that read what the call draws, which each of them draws again to compare.
        in_vain: recordings one after the other whose values, those that the code reads, no later
            call had.
        operators: of all recordings whose values no later call had. Thousands take seconds each.
        operators_with_floats: of one that reads a float of a tensor, seldom the same again.
    """

    floats_only: bool = True
    values: int = 2
    floats: int = 3
    draws: int = 3
    in_vain: int = 4
    operators: int = 10_000
    operators_with_floats: int = 10_000

    def reason(
        self,
        known: Sequence[Replay],
        tries: int,
        ran_backward: bool,
        met_again: Callable[[], set[Replay | None]],
    ) -> str:
        """Say why no call is to be recorded from now on; "" where one more is.

        Args:
            known: the recordings so far, in the order of time.
            tries: how many calls were to be recorded, this one included.
            ran_backward: a recorded call runs a backward pass.
            met_again: which recordings had their values again, of those that the call path asks.
        """
        limit = _C.recompile_limit()
        if limit is None:
            return ""
        is_full = len(known) >= limit or tries > 2 * limit
        reads_too_many = sum(replay.reads_floats for replay in known) >= self.floats
        if is_full or reads_too_many or self._are_in_vain(known, met_again):
            return f"has {len(known)} recordings and keeps meeting new calls"
        if not ran_backward and sum(replay.reads_draws for replay in known) >= self.draws:
            return "reads numbers that it draws"
        return ""

    def _are_in_vain(
        self, known: Sequence[Replay], met_again: Callable[[], set[Replay | None]]
    ) -> bool:
        """Whether the code reads values that differ from call to call, such as sizes it finds."""
        met = met_again() if len(known) >= self.in_vain or self._are_large(known) else set()
        in_vain = [
            replay.checks.reads is not None and not replay.checks.met_again and replay not in met
            for replay in known
        ]
        if len(known) >= self.in_vain and all(in_vain[-self.in_vain :]):
            return True
        return self._are_large([*itertools.compress(known, in_vain)])

    def _are_large(self, recordings: Sequence[Replay]) -> bool:
        return sum(replay.recording.operators for replay in recordings) > self.operators
