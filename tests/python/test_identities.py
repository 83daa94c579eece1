# SPDX-License-Identifier: Apache-2.0
"""Which tensors are one object is part of what a call was compiled for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import hostjit


def tensors() -> tuple[torch.Tensor, ...]:
    return tuple(torch.full((2,), float(value)) for value in (1, 10, 100))


def answers(module: Any, calls: tuple[torch.Tensor, ...]) -> list[float]:
    return [float(module(tensor)[0]) for tensor in calls]


class LastInput(nn.Module):
    """Answers with the last result when it is asked the same again."""

    def __init__(self) -> None:
        super().__init__()
        self.last: torch.Tensor | None = None
        self.result: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor | None:
        if x is self.last:
            return self.result
        self.last, self.result = x, x * 2
        return self.result


class Difference(nn.Module):
    """The difference to the last input."""

    def __init__(self, previous: torch.Tensor | None = None) -> None:
        super().__init__()
        self.previous = previous

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.previous is None:
            self.previous = x
        difference = x - self.previous
        self.previous = x
        return difference


@pytest.mark.parametrize("with_gradients", [False, True])
@pytest.mark.parametrize("make", [LastInput, Difference, lambda: Difference(torch.zeros(2))])
def test_an_attribute_that_was_an_argument(
    make: Callable[[], nn.Module], with_gradients: bool
) -> None:
    x, y, z = tensors()
    calls = (x, x, y, y, x, x, y, z, z, x)
    with torch.set_grad_enabled(with_gradients):
        assert answers(hostjit.compile(make()), calls) == answers(make(), calls)


def test_an_attribute_that_is_set_to_an_argument_outside() -> None:
    class Scale(nn.Module):
        other: torch.Tensor | None = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x is self.other else x * 3

    x, y, _ = tensors()
    model = Scale()
    fast = hostjit.compile(model)
    for other, argument in ((x, x), (x, y), (y, y), (y, x), (None, x), (x, x)):
        model.other = other
        assert_close(fast(argument), model(argument))


def test_arguments_that_are_one_object() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + 1 if x is y else x - 1

    fast = hostjit.compile(function)
    x, y, z = tensors()
    for call in ((x, y), (x, x), (x, y), (y, y), (z, x)):
        assert_close(fast(*call), function(*call))
    assert len(fast.specializations) == 2


@pytest.mark.parametrize("count", [3, 12])
def test_lists_with_one_object_twice(count: int) -> None:
    def function(x: torch.Tensor, items: list[torch.Tensor]) -> torch.Tensor:
        unique = {id(item): item for item in items}
        return x * len(unique) + sum(item is x for item in items)

    fast = hostjit.compile(function)
    x = torch.ones(3)
    different = [torch.full((3,), float(i)) for i in range(count)]
    for items in (
        different,
        [*different[:-1], different[0]],
        different[::-1],
        [x, *different[1:]],
        [different[0]] * count,
        [x] * count,
    ):
        assert_close(fast(x, items), function(x, items))


_GLOBAL = torch.ones(3)


def uses_global(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + _GLOBAL


@pytest.mark.parametrize("first", [0, 1])
def test_a_global_that_is_an_argument(first: int) -> None:
    fast = hostjit.compile(uses_global)
    other = torch.full((3,), 10.0)
    calls = (_GLOBAL, other, _GLOBAL, other.clone())
    for x in calls[first:]:
        assert_close(fast(x), uses_global(x))


@pytest.mark.parametrize("first", [0, 1])
def test_a_parameter_that_is_an_argument(first: int) -> None:
    weight = nn.Parameter(torch.ones(2))
    other = nn.Parameter(torch.full((2,), 5.0))

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * weight).sum()

    fast = hostjit.compile(function)
    for x in (weight, other, weight, other)[first:]:
        weight.grad = other.grad = None
        expected = function(x)
        expected.backward()
        gradients = (weight.grad, other.grad)
        weight.grad = other.grad = None
        found = fast(x)
        found.backward()
        assert_close(found, expected)
        assert_close((weight.grad, other.grad), gradients)


def test_a_parameter_is_asked_for() -> None:
    layer = nn.Linear(3, 3)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x is layer.weight else x * 3

    fast = hostjit.compile(function)
    with torch.no_grad():
        for x in (torch.ones(3, 3), layer.weight, nn.Parameter(torch.ones(3, 3)), layer.weight):
            assert_close(fast(x), function(x))


def test_buffers_beside_an_argument() -> None:
    """A leaf of a buffer's type is compared with all buffers, and is none of them."""
    model = nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4)).eval()
    fast = hostjit.compile(lambda x, mean: model(x) + mean)
    x = torch.randn(2, 4)
    with torch.no_grad():
        for mean in (torch.ones(4), model[0].running_mean, model[1].running_mean, torch.ones(4)):
            assert_close(fast(x, mean), model(x) + mean)


@pytest.mark.parametrize("with_gradients", [False, True])
@pytest.mark.parametrize("with_work", [False, True])
def test_an_attribute_that_is_returned(with_work: bool, with_gradients: bool) -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = nn.Parameter(torch.ones(2)) if with_gradients else torch.ones(2)

        def forward(self, x: torch.Tensor) -> Any:
            return (self.held, x * self.held) if with_work else self.held

    model = Holder()
    fast = hostjit.compile(model)
    x = torch.ones(2)
    for value in range(1, 7):
        held = torch.full((2,), float(value))
        model.held = nn.Parameter(held) if with_gradients else held
        found = fast(x)
        assert_close(found, model(x))
        assert (found[0] if with_work else found) is model.held
    if not with_work and not with_gradients:
        assert len(fast.specializations) == 1
