# SPDX-License-Identifier: Apache-2.0
"""A call that stores a number in an object finds another object there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


class Box:
    def __init__(self) -> None:
        self.rate: Any = 0.5


SHARED = Box()


class Owner:
    def __init__(self) -> None:
        self.box = Box()
        self.boxes = [Box()]
        self.named = {"key": Box()}

    def constant(self, x: Tensor, rate: float) -> Tensor:
        self.box.rate = 1.0
        return x * 2

    def argument(self, x: Tensor, rate: float) -> Tensor:
        self.box.rate = rate
        return x * 2

    def item(self, x: Tensor, rate: float) -> Tensor:
        y = x * 2
        self.box.rate = y.sum().item()
        return y

    def size(self, x: Tensor, rate: float) -> Tensor:
        self.box.rate = x.shape[0]
        return x * 2

    def by_name(self, x: Tensor, rate: float) -> Tensor:
        setattr(self.box, "rate", None)  # noqa: B010
        return x * 2

    def read_behind(self, x: Tensor, rate: float) -> Tensor:
        box = self.box
        box.rate = 1.0
        return x * box.rate

    def in_list(self, x: Tensor, rate: float) -> Tensor:
        self.boxes[0].rate = rate
        return x * 2

    def in_dict(self, x: Tensor, rate: float) -> Tensor:
        self.named["key"].rate = rate
        return x * 2

    def in_global(self, x: Tensor, rate: float) -> Tensor:
        SHARED.rate = rate
        return x * 2

    def in_parts(self, x: Tensor, rate: float) -> Tensor:
        if x.sum() > 0:
            x = x * 2
        self.box.rate = rate
        return x

    def rates(self) -> list[Any]:
        return [box.rate for box in (self.box, self.boxes[0], self.named["key"], SHARED)]

    def replace(self) -> list[Box]:
        before = [self.box, self.boxes[0], self.named["key"], SHARED]
        self.box, self.boxes[0], self.named["key"] = Box(), Box(), Box()
        globals()["SHARED"] = Box()
        for box in before:
            box.rate = 7.0
        return before


NAMES = (
    *("constant", "argument", "item", "size", "by_name", "read_behind", "in_list", "in_dict"),
    *("in_global", "in_parts"),
)


@pytest.mark.parametrize("through", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("name", NAMES)
def test_the_number_is_in_the_one_that_is_there(through: Callable[..., Any], name: str) -> None:
    def calls(owner: Owner, call: Callable[..., Any]) -> list[Any]:
        globals()["SHARED"] = Box()
        found: list[Any] = []
        before: list[Box] = []
        for number in range(14):
            if number in (4, 9, 12):
                before = owner.replace()
            call(torch.randn(4, generator=torch.Generator().manual_seed(number)), 0.25)
            found += [*owner.rates(), *(box.rate for box in before)]
        return found

    ours, eager = Owner(), Owner()
    expected = calls(eager, getattr(eager, name))
    found = calls(ours, through(getattr(ours, name)))
    assert [*map(type, found)] == [*map(type, expected)]
    numbers, wanted = ([x for x in each if x is not None] for each in (found, expected))
    assert numbers == pytest.approx(wanted, rel=1e-5, abs=1e-5)
