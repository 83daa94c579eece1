# SPDX-License-Identifier: Apache-2.0
"""How much the recordings of one function may differ before its calls are recorded no more."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from hostjit import _C
from hostjit.recording.replays.replay import Replay

__all__ = ["Limits", "num_met"]


@dataclasses.dataclass(frozen=True)
class Limits:
    """What is taken to go on to differ. Without the `recompile_limit`, nothing is.

    Attributes:
        floats_only: of numbers, only floats do; ints, and sizes, are modes, of which there are few.
        values: of a number among the arguments.
        sizes: combinations of sizes of tensors, where numbers other than floats count, too.
        ways: recordings for each that the `recompile_limit` allows.
        floats: recordings that read a float of a tensor: it is seldom the same again.
        draws: recordings that read what the call draws, which each of them draws again to compare.
        in_vain: recordings one after the other whose values, those that the code reads, no later
            call had.
        operators: of recordings that read values, of those whose values no later call had and a new
            one: a thousand take seconds to compile.
        operators_with_floats: of a new one that reads a float which is computed of arguments.
    """

    floats_only: bool = True
    values: int = 2
    sizes: int = 2
    ways: int = 1
    floats: int = 3
    draws: int = 3
    in_vain: int = 4
    operators: float = math.inf
    operators_with_floats: float = math.inf

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
        most = _C.recompile_limit()
        if most is None:
            return ""
        most *= self.ways
        is_full = len(known) >= most or tries > 2 * most
        reads_too_many = sum(replay.reads_floats for replay in known) >= self.floats
        if is_full or reads_too_many or self._are_in_vain(known, met_again):
            return f"has {len(known)} recordings and keeps meeting new calls"
        if not ran_backward and sum(replay.reads_draws for replay in known) >= self.draws:
            return "reads numbers that it draws"
        return ""

    def reason_against(
        self,
        operators: int,
        known: Sequence[Replay],
        met_again: Callable[[], set[Replay | None]],
        *,
        reads_floats: bool,
    ) -> str:
        """Say why a call that was recorded, and read values, is not to be compiled; "" if it is.

        Args:
            operators: of the call.
            known: the recordings so far.
            met_again: as of `reason`.
            reads_floats: some of the values are floats that are computed of arguments.
        """
        if _C.recompile_limit() is None:
            return ""
        if reads_floats and operators > self.operators_with_floats:
            return f"reads floats among {operators} operators"
        met = met_again()
        in_vain = [replay for replay in known if not (_was_met(replay) or replay in met)]
        if operators + sum(x.recording.operators for x in in_vain) > self.operators:
            return f"keeps meeting new values among {operators} operators"
        return ""

    def _are_in_vain(
        self, known: Sequence[Replay], met_again: Callable[[], set[Replay | None]]
    ) -> bool:
        """Whether the code reads values that differ from call to call, such as sizes it finds."""
        if len(known) < self.in_vain:
            return False
        last = known[-self.in_vain :]
        if any(map(_was_met, last)):
            return False
        return met_again().isdisjoint(last)


def num_met(known: Sequence[Replay], met_again: set[Replay | None]) -> int:
    """Return how many recordings read values, and had them again."""
    reading = (replay for replay in known if replay.checks.reads is not None)
    return sum(replay.checks.met_again or replay in met_again for replay in reading)


def _was_met(replay: Replay) -> bool:
    """Whether a later call had the values that a recording read; also where there are none."""
    return replay.checks.reads is None or replay.checks.met_again
