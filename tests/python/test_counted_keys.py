# SPDX-License-Identifier: Apache-2.0
"""Calls that count in a Counter or a defaultdict: one program for all counts."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

Made = Callable[[], Any]


class Watchful(collections.Counter[str]):
    """A class of the user's that does more where items are set."""

    def __setitem__(self, key: str, value: int) -> None:
        super().__setitem__(key, min(value, 5))


class Plant:
    def __init__(self, make: Made) -> None:
        self.calls, self.state = make(), torch.zeros(3)

    def step(self, x: Tensor, mode: str) -> Tensor:
        self.calls[mode] += 1
        self.state = self.state * 0.5 + x
        if mode == "brake":
            return self.state / self.calls[mode]
        return self.state * self.calls["drive"]


def change(plant: Plant, call: int) -> None:
    """What a user may do between calls."""
    if call == 20:
        plant.calls["drive"] = 0
    elif call == 24:
        plant.calls["rest"] = 7
    elif call == 28:
        order = plant.calls.pop("drive")
        plant.calls["drive"] = order
    elif call == 32:
        plant.calls["drive"] = 1.5
    elif call == 36:
        plant.calls.clear()
    elif call == 40:
        plant.calls = (
            type(plant.calls)(plant.calls.default_factory)
            if hasattr(plant.calls, "default_factory")
            else type(plant.calls)()
        )


def counting_ints() -> collections.defaultdict[str, int]:
    return collections.defaultdict(int)


def counting_floats() -> collections.defaultdict[str, float]:
    return collections.defaultdict(float)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("make", [collections.Counter, counting_ints, counting_floats, Watchful])
@torch.no_grad()
def test_counts_are_those_of_eager_mode(make: Made) -> None:
    eager, ours = Plant(make), Plant(make)
    fast = hostjit.compile(ours.step)
    for call in range(48):
        x = torch.full((3,), float(call))
        mode = "brake" if call % 5 == 4 else "drive"
        for plant in (eager, ours):
            change(plant, call)
        torch.testing.assert_close(fast(x, mode), eager.step(x, mode))
        assert list(ours.calls.items()) == list(eager.calls.items())
        assert [*map(type, ours.calls.values())] == [*map(type, eager.calls.values())]


@pytest.mark.parametrize("make", [collections.Counter, counting_ints])
@torch.no_grad()
def test_one_program_for_all_counts(make: Made) -> None:
    plant = Plant(make)
    fast = hostjit.compile(plant.step, fallback=False)
    for _ in range(40):
        fast(torch.ones(3), "drive")
    assert plant.calls["drive"] == 40
    assert len(fast.specializations) <= 3  # without the key, with it, and for any number
