# SPDX-License-Identifier: Apache-2.0
"""Interleaved timing of several callables in one process."""

import gc
import math
import statistics
import time
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# A batch of calls takes about this long: long against the clock, short against a change of the
# machine's frequency or load.
BATCH_SECONDS = 3e-3

# What a limit in seconds leaves in any case: a median of fewer rounds says little.
FEWEST_ROUNDS = 5


@dataclass(frozen=True)
class Timing:
    """Seconds per call of each round; a round is one batch of calls."""

    calls_per_round: int
    rounds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def minimum(self) -> float:
        return min(self.rounds)


class Timed:
    """A callable with its arguments.

    The call is compiled with its number of arguments into the timing loop, so that nothing but the
    loop (about 10 ns per call) is added to it.
    """

    def __init__(self, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
        names = [f"argument_{index}" for index in range(len(arguments))]
        setup = "; ".join(["function = _function", *(f"{name} = _{name}" for name in names)])
        values = {f"_{name}": value for name, value in zip(names, arguments, strict=True)}
        self._timer = timeit.Timer(
            f"function({', '.join(names)})", setup, globals={"_function": function, **values}
        )
        self._calls = 1

    def settle(self) -> None:
        """Warm up, and choose the calls of a batch."""
        while (seconds := self._timer.timeit(self._calls)) < BATCH_SECONDS / 4:
            self._calls *= 2
        for _ in range(3):
            seconds = self._timer.timeit(self._calls) / self._calls
            self._calls = max(1, round(BATCH_SECONDS / seconds))

    def batch(self) -> tuple[int, float]:
        """Return the number of calls and the seconds per call of one batch.

        A few calls before it bring code and data back into the caches.
        """
        self._timer.timeit(min(self._calls, 1 + self._calls // 20))
        return self._calls, self._timer.timeit(self._calls) / self._calls


def interleave(
    candidates: Sequence[Timed], rounds: int, limit_seconds: float = math.inf
) -> list[Timing]:
    """Time one batch of every candidate in every round, in alternating order.

    A change of the machine's speed then meets all candidates alike, and ratios within one run mean
    something where numbers of two runs do not. After `limit_seconds` no further round begins,
    except the first few.
    """
    for candidate in candidates:
        candidate.settle()
    seconds: list[list[float]] = [[] for _ in candidates]
    calls = [0] * len(candidates)
    order = list(range(len(candidates)))
    gc.collect()
    gc.disable()
    try:
        deadline = time.perf_counter() + limit_seconds
        for count in range(rounds):
            if count >= FEWEST_ROUNDS and time.perf_counter() > deadline:
                break
            for index in order:
                calls[index], value = candidates[index].batch()
                seconds[index].append(value)
            order.reverse()
    finally:
        gc.enable()
    return [Timing(*row) for row in zip(calls, seconds, strict=True)]
