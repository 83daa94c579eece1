# SPDX-License-Identifier: Apache-2.0
"""Decisions by remainders of floats: Dynamo takes `t % 1.0` for 0, whatever `t` is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit

COMPILERS: dict[str, Callable[[Any], Any]] = {
    "compile": hostjit.compile,
    "backend": lambda function: torch.compile(function, backend="hostjit"),
}
REMAINDERS: dict[str, Callable[[float], float]] = {
    "of_one": lambda t: (t / 0.5 + 0.5) % 1.0,
    "of_an_int": lambda t: t % 1,
    "of_less": lambda t: (t + 0.5) % 0.7,
    "of_a_float_by_it": lambda t: 3.1 % (t + 0.3),
    "wrapped": lambda t: (t * 6 + math.pi) % (2 * math.pi) - math.pi,
    "quotient": lambda t: t // 0.3,
    "both": lambda t: divmod(t, 0.3)[1],
}
in_each_way = pytest.mark.parametrize("way", list(COMPILERS))


@in_each_way
@pytest.mark.parametrize("name", list(REMAINDERS))
def test_decisions_and_values(name: str, way: str) -> None:
    remainder = REMAINDERS[name]

    def function(x: Tensor, t: float) -> Tensor:
        found = remainder(t)
        return x * found if found < 0.35 else x - found

    fast = COMPILERS[way](function)
    x = torch.ones(2, dtype=torch.float64)
    for step in range(40):
        assert_close(fast(x, 0.03 * step), function(x, 0.03 * step))


class Leg:
    def __init__(self, phase: float) -> None:
        self.phase = phase
        self.state = "stance"


class Gait:
    """Legs by name that stand and swing by the time, in parts of a call."""

    def __init__(self) -> None:
        self.legs = {name: Leg(phase) for name, phase in zip("abcd", (0, 0.5, 0.5, 0), strict=True)}
        self.time = 0.0

    def step(self, velocity: Tensor, contact: Tensor) -> tuple[Tensor, list[str]]:
        self.time += 0.02
        feet = []
        for number, name in enumerate("abcd"):
            leg = self.legs[name]
            phase = (self.time / 0.5 + leg.phase) % 1.0
            if phase < 0.6:
                leg.state = "stance"
                feet.append(velocity * 2)
                continue
            if leg.state == "stance":
                leg.state = "swing"
            if contact[number] > 0.5 and phase > 0.8:
                leg.state = "early"
            feet.append(velocity * phase)
        return torch.stack(feet), [leg.state for leg in self.legs.values()]


def states(gait: Gait) -> list[str]:
    return [leg.state for leg in gait.legs.values()]


@pytest.mark.filterwarnings("ignore:hostjit. .* runs in parts")
@in_each_way
def test_state_that_goes_by_the_time(way: str) -> None:
    expected, found = Gait(), Gait()
    fast = COMPILERS[way](found.step)
    for _ in range(50):
        velocity, contact = torch.randn(3), torch.rand(4)
        feet, names = fast(velocity, contact)
        expected_feet, expected_names = expected.step(velocity, contact)
        assert_close(feet, expected_feet)
        assert names == expected_names
        assert states(found) == states(expected)
