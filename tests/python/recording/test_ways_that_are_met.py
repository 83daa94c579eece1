# SPDX-License-Identifier: Apache-2.0
"""Functions that decide by values: most calls take a few ways, and some take one that is new.

An adaptive solver, say, which makes another solver object at each call.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit
from hostjit.compiling.parts_and_recordings import PartsAndRecordings


class Solver:
    def __init__(self, state: Tensor, tolerance: float) -> None:
        self.state = state
        self.tolerance = torch.tensor(tolerance)
        self.time = torch.zeros(())
        self.step = 0.6 / (1 + state.abs().amax())

    def accept(self) -> Tensor:
        while self.time < 1:
            self.state = torch.tanh(self.state * 0.5) + self.state * self.tolerance
            self.time = self.time + self.step
        return self.state


def solve(x: Tensor) -> Tensor:
    solved = Solver(x, 0.25).accept()
    return solved * 2 if x.sum() > 0 else solved


def of_size(size: float) -> Tensor:
    return torch.tensor([size, -0.1 * size, 0.05 * size])


def calls_of(fast: Callable[..., Any], x: Tensor) -> int:
    """Count the calls of functions of this file in a call."""
    count = 0

    def note(frame: types.FrameType, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename == __file__

    sys.setprofile(note)
    try:
        fast(x)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.filterwarnings("ignore:hostjit")
def test_those_that_are_met_again_stay_recorded() -> None:
    fast = hostjit.compile(solve)
    often = [of_size(size) for size in (0.1, 0.9, -0.3, 0.15, 0.95, -0.35)]
    for x in 4 * often:
        assert_close(fast(x), solve(x))
    seldom = [of_size(size) for size in torch.linspace(-12, 12, 41).tolist()]
    for x in seldom:
        assert_close(fast(x), solve(x))
        assert_close(fast(often[0]), solve(often[0]))
    for x in often:
        assert_close(fast(x), solve(x))
        assert calls_of(fast, x) == 0


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("change", [lambda x: x.repeat(4), lambda x: x.double()])
def test_calls_that_are_others_are_not_left_to_eager_mode(
    change: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up: list[str] = []
    give_up = PartsAndRecordings.give_up_recordings

    def noted(self: PartsAndRecordings, reason: str = "") -> None:
        given_up.append(reason)
        give_up(self, reason)

    monkeypatch.setattr(PartsAndRecordings, "give_up_recordings", noted)
    fast = hostjit.compile(solve)
    for size in 4 * [0.1, 0.9, -0.3, 0.15, 0.95, -0.35] + torch.linspace(-12, 12, 41).tolist():
        fast(of_size(size))
    assert not given_up
    for number in range(600):  # of more and more calls that run eagerly, one is asked about
        x = change(of_size(0.1 + 0.0001 * number))
        assert_close(fast(x), solve(x))
    assert given_up[0] == "it is called otherwise than it was recorded"


@pytest.mark.filterwarnings("ignore:hostjit")
def test_ways_that_are_never_met_are_left_to_parts() -> None:
    def function(x: Tensor) -> Tensor:
        ways = sum(bool(row.sum() > 0) for row in x)
        return x * ways + sum(bool(value > 0.3) for value in x[0])

    fast = hostjit.compile(function)
    for _ in range(20):
        x = torch.randn(6, 6)
        assert_close(fast(x), function(x))
