# SPDX-License-Identifier: Apache-2.0
"""Objects that a call makes before a break, and that what is behind it makes use of."""

from __future__ import annotations

import collections
import functools
import io
from typing import Any

import pytest
import torch
from in_parts import counted_captures
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

NOWHERE = io.StringIO()


class Output(collections.OrderedDict[str, Tensor]):
    pass


class Cache:
    def __init__(self) -> None:
        self.layers: list[Tensor] = []


class Writer:
    def __init__(self, x: Tensor) -> None:
        self.x = x

    def write(self, y: Tensor) -> Tensor:
        return self.x + y


def with_a_subclass_of_a_dict(x: Tensor) -> Tensor:
    output = Output(first=x + 1, second=x * 2)
    print("dict", file=NOWHERE)
    return output["first"].relu() - output["second"]


def with_an_object_that_holds_a_list(x: Tensor) -> Tensor:
    cache = Cache()
    cache.layers.append(x + 1)
    print("list", file=NOWHERE)
    cache.layers.append(x * 2)
    return torch.stack(cache.layers).exp()


def with_a_bound_method(x: Tensor) -> Tensor:
    write = Writer(x + 1).write
    print("method", file=NOWHERE)
    return write(x).exp()


def with_a_partial(x: Tensor) -> Tensor:
    add = functools.partial(torch.add, alpha=2)
    print("partial", file=NOWHERE)
    return add(x, x).exp()


FUNCTIONS = [
    with_a_subclass_of_a_dict,
    with_an_object_that_holds_a_list,
    with_a_bound_method,
    with_a_partial,
]


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_object_of_one_call_is_compiled_for_few_times(function: Any, keeps: bool) -> None:
    torch.manual_seed(0)
    fast, kept, traced = hostjit.compile(function), [], []
    for number in range(12):
        x = torch.randn(3 + number % 2, 4)
        with counted_captures() as count:
            result = fast(x)
        assert_close(result, function(x))
        kept += [result] if keeps else []
        traced.append(count[0])
    # Some calls are eager between: they were to be recorded, and print.
    assert traced[9:] == [0, 0, 0]
    assert sum(traced) < 12


class Layers(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        x = layer_after_a_print(self.layers[0], x)
        x = layer_after_a_print(self.layers[1], x)
        return layer_after_a_print(self.layers[2], x)


def layer_after_a_print(layer: nn.Module, x: Tensor) -> Tensor:
    x = x + 1
    print("layer", file=NOWHERE)
    y: Tensor = layer(x)
    return y.tanh()


def test_modules_that_stay_are_compiled_for() -> None:
    torch.manual_seed(0)
    model = Layers(3)
    fast = hostjit.compile(model)
    for number in range(5):
        x = torch.randn(3, 4)
        with torch.no_grad(), counted_captures() as count:
            assert_close(fast(x), model(x))
        assert count[0] == 0 or number == 0


def total_of_layers(cache: Cache, x: Tensor) -> Tensor:
    cache.layers.append(x * 2)
    return torch.stack(cache.layers).sum(0)


def test_an_argument_that_is_another_object_at_each_call() -> None:
    fast, traced = hostjit.compile(total_of_layers), []
    for number in range(8):
        x, cache, expected = torch.randn(3 + number % 2, 4), Cache(), Cache()
        with counted_captures() as count:
            assert_close(fast(cache, x), total_of_layers(expected, x))
        assert_close(cache.layers, expected.layers)
        traced.append(count[0])
    assert traced[5:] == [0, 0, 0]
    assert sum(traced) < 9


def test_without_fallback_such_an_argument_has_programs() -> None:
    fast = hostjit.compile(total_of_layers, fallback=False)
    for _ in range(3):
        x = torch.randn(3, 4)
        assert_close(fast(Cache(), x), total_of_layers(Cache(), x))
    assert all(made.program is not None for made in fast.specializations)
