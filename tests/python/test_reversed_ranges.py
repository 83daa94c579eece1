# SPDX-License-Identifier: Apache-2.0
"""Iterators of ranges that code hands to what Dynamo does not follow, or across a break."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*runs (in parts|eagerly)")

WAYS = {"compile": hostjit.compile, "torch": lambda f: torch.compile(f, backend="hostjit")}


@torch._dynamo.disable
def consume(found: Iterable[Any]) -> list[Any]:
    return list(found)


def up(x: Tensor) -> Any:
    return x * 2, consume(reversed(range(5, 0, -2)))


def down(x: Tensor) -> Any:
    return x * 2, consume(reversed(range(12)))


def from_below_zero(x: Tensor) -> Any:
    return x * 2, consume(reversed(range(-7, 8, 3)))


def empty(x: Tensor) -> Any:
    return x * 2, consume(reversed(range(3, 3))), consume(reversed(range(2, -5)))


def one(x: Tensor) -> Any:
    return x * 2, consume(reversed(range(4, 9, 100)))


def across_a_break(x: Tensor) -> Any:
    found = reversed(range(4))
    first = next(found)
    print("", end="")
    return x * 2, first, list(found)


def consumed_in_part(x: Tensor) -> Any:
    found, other = reversed(range(2, 9, 2)), iter(range(1, 8, 3))
    next(found)
    next(other)
    return x * 2, consume(found), consume(other)


def exhausted(x: Tensor) -> Any:
    found = reversed(range(2))
    return x * 2, list(found), consume(found)


def zipped(x: Tensor) -> Any:
    return x * 2, consume(zip(reversed(range(4)), range(4), strict=True))


def returned(x: Tensor) -> Any:
    found = reversed(range(len(x)))
    return x * 2, found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "function",
    [
        up,
        down,
        from_below_zero,
        empty,
        one,
        across_a_break,
        consumed_in_part,
        exhausted,
        zipped,
        returned,
    ],
)
def test_iterators_of_ranges(way: str, function: Callable[[Tensor], Any]) -> None:
    torch._dynamo.reset()
    fast = WAYS[way](function)
    for size in (3, 4):
        x = torch.arange(float(size))
        (expected, *of_eager), (found, *of_fast) = function(x), fast(x)
        torch.testing.assert_close(found, expected)
        for one_way, other in zip(of_eager, of_fast, strict=True):
            assert type(one_way) is type(other)
            if isinstance(one_way, int):
                assert one_way == other
            else:
                assert list(one_way) == list(other)
