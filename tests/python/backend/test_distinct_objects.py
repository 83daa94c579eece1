# SPDX-License-Identifier: Apache-2.0
"""Objects that were two when a program was traced, of which it changes one, and are one later."""

from __future__ import annotations

import collections
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters


class Box:
    def __init__(self) -> None:
        self.count, self.rate = 1, 0.5


def changes_boxes(one: Any, other: Any, x: Tensor) -> Tensor:
    one.count, one.rate = 7, 2.5
    return x + other.count + other.rate


def changes_dicts(one: Any, other: Any, x: Tensor) -> Tensor:
    one["count"], one["rate"] = 7, 2.5
    return x + other["count"] + other["rate"]


def changes_lists(one: Any, other: Any, x: Tensor) -> Tensor:
    one[0], one[1] = 7, 2.5
    return x + other[0] + other[1]


def appends(one: Any, other: Any, x: Tensor) -> Tensor:
    one.append(5.0)
    return x + len(other)


def adds(one: Any, other: Any, x: Tensor) -> Tensor:
    one.add(7)
    return x + (7 in other)


KINDS = pytest.mark.parametrize(
    ("make", "change"),
    [
        (Box, changes_boxes),
        (lambda: {"count": 1, "rate": 0.5}, changes_dicts),
        (lambda: [1, 0.5], changes_lists),
        (lambda: [1.0, 0.5], appends),
        (lambda: collections.deque([1.0, 0.5]), appends),
        (lambda: {1, 2}, adds),
    ],
    ids=["objects", "dicts", "lists", "growing lists", "growing deques", "sets"],
)
held = SimpleNamespace()


@KINDS
@pytest.mark.parametrize("breaks", [False, True])
def test_given(make: Callable[[], Any], change: Callable[..., Tensor], breaks: bool) -> None:
    def function(x: Tensor, one: Any, other: Any) -> Tensor:
        if breaks:
            torch._dynamo.graph_break()
        return change(one, other, x)

    run = torch.compile(function, backend="hostjit")
    for number in range(6):
        expected: list[Any] = []
        for call in (function, run):
            one = make()
            other = make() if number < 3 else one
            expected.append(call(torch.arange(2.0), one, other).tolist())
        assert expected[0] == expected[1]


@KINDS
def test_of_a_module(make: Callable[[], Any], change: Callable[..., Tensor]) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = make(), make()

        def forward(self, x: Tensor) -> Tensor:
            return change(self.one, self.other, x)

    plain, compiled = Net(), Net()
    run = torch.compile(compiled, backend="hostjit")
    for number in range(6):
        results = []
        for net, call in ((plain, plain), (compiled, run)):
            net.one = make()
            net.other = make() if number < 3 else net.one
            results.append(call(torch.arange(2.0)).tolist())
        assert results[0] == results[1]


@KINDS
def test_outside(make: Callable[[], Any], change: Callable[..., Tensor]) -> None:
    def function(x: Tensor) -> Tensor:
        return change(held.one, held.other, x)

    run = torch.compile(function, backend="hostjit")
    for number in range(6):
        results = []
        for call in (function, run):
            held.one = make()
            held.other = make() if number < 3 else held.one
            results.append(call(torch.arange(2.0)).tolist())
        assert results[0] == results[1]


def test_different_objects_are_not_compiled_again() -> None:
    def function(x: Tensor, one: Any, other: Any) -> Tensor:
        return changes_dicts(one, other, x)

    run = torch.compile(function, backend="hostjit")
    counters.clear()
    for _ in range(4):
        run(torch.arange(2.0), {"count": 1, "rate": 0.5}, {"count": 1, "rate": 0.5})
    assert counters["stats"]["unique_graphs"] == 1


def test_dicts_of_objects_that_become_one() -> None:
    def function(x: Tensor, one: Any, other: Any) -> Tensor:
        return changes_boxes(one, other, x)

    run = torch.compile(function, backend="hostjit")
    for number in range(6):
        results = []
        for call in (function, run):
            one, other = Box(), Box()
            if number >= 3:
                other.__dict__ = one.__dict__
            results.append(call(torch.arange(2.0), one, other).tolist())
        assert results[0] == results[1]
