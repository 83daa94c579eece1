# SPDX-License-Identifier: Apache-2.0
"""Graph breaks in methods that Python calls for an operator, or a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


class Values:
    def __init__(self, value: int = 3) -> None:
        self.value = value

    def __contains__(self, key: int) -> Any:
        torch._dynamo.graph_break()
        return [key] if key == self.value else []

    def __eq__(self, other: object) -> Any:
        torch._dynamo.graph_break()
        return [other] if other == self.value else []

    def __lt__(self, other: int) -> bool:
        torch._dynamo.graph_break()
        return self.value < other

    def __hash__(self) -> int:
        return 1

    def __bool__(self) -> bool:
        torch._dynamo.graph_break()
        return self.value > 2

    def __iadd__(self, other: int) -> Values:
        torch._dynamo.graph_break()
        self.value += other
        return self

    def __setitem__(self, key: int, value: int) -> None:
        torch._dynamo.graph_break()
        self.value = key * value


class Counted:
    def __init__(self) -> None:
        self.count = 0

    def __iter__(self) -> Counted:
        return self

    def __next__(self) -> int:
        torch._dynamo.graph_break()
        self.count += 1
        if self.count > 3:
            raise StopIteration
        return self.count


class Names(type):
    def __contains__(cls, item: str) -> bool:
        return item in [vars(cls)[name] for name in dir(cls) if not name.startswith("__")]


class Kinds(metaclass=Names):
    first = "first"
    second = "second"


def contained(x: Tensor, values: Values) -> Any:
    return x * (2 if 3 in values else 5), 3 in values, 4 in values


def not_contained(x: Tensor, values: Values) -> Any:
    return x * (2 if 3 not in values else 5), 3 not in values, 4 not in values


def both(x: Tensor, values: Values) -> Tensor:
    return x * (1 if 3 in values and 4 not in values else 6)


def among_names(x: Tensor, values: Values) -> Tensor:
    return x * (2 if "first" not in Kinds else 3) * (5 if "third" not in Kinds else 7)


def compared(x: Tensor, values: Values) -> Any:
    return x * (2 if values == 3 else 5), values == 4, values < 4


def negated(x: Tensor, values: Values) -> Any:
    return x * (2 if not values else 5), not values


def counted(x: Tensor, values: Values) -> Tensor:
    return x * sum(number for number in Counted())


def counted_in_a_loop(x: Tensor, values: Values) -> Tensor:
    for number in Counted():
        x = x * number
    return x


def changed(x: Tensor, values: Values) -> Tensor:
    values += 1
    values[2] = 7
    return x * values.value


@pytest.mark.parametrize(
    "function",
    [
        *(contained, not_contained, both, among_names, compared, negated, counted),
        *(counted_in_a_loop, changed),
    ],
)
@pytest.mark.parametrize("make", ["hostjit", "backend"])
def test_operators_give_what_they_do(function: Callable[..., Any], make: str) -> None:
    torch._dynamo.reset()
    compiled = hostjit.compile(function)
    fast = torch.compile(function, backend="hostjit") if make == "backend" else compiled
    for value in (3, 3, 1, 3):
        x, mine, other = torch.randn(2), Values(value), Values(value)
        found, expected = fast(x, mine), function(x, other)
        assert_close(found, expected)
        assert mine.value == other.value
        assert isinstance(found, Tensor) or [*map(type, found)] == [*map(type, expected)]
