# SPDX-License-Identifier: Apache-2.0
"""Inputs written at the places that an int tensor lists: in place, as replay buffers are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from against_eager import RUNTIMES
from torch import Tensor
from torch.testing import assert_close
from written_parts import check_calls

import hostjit

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def rows(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    x[i] = y
    return y.sum(0)


def rows_by_a_method(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    x.index_copy_(0, i, y)
    return x.sum(1)


def columns(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    x[:, i] = y[:, :2].exp().t().repeat(2, 1)[:, :2]
    return y * 2


def last_columns(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    x.index_copy_(-1, i, y.t().repeat(2, 1)[:4])
    return x @ x.t()


def one_value(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    x[i] = 2.5
    return x.mean(0)


def one_row(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    x[i] = y[0]
    x[:, i] = y[0, :1]
    return x.mean(0)


def what_it_had(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    x[i] = x[:2] + y
    return x - 1


def added(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    x.index_add_(0, i, y)
    x.index_put_((i,), y, accumulate=True)
    return x * 1


FUNCTIONS = (rows, rows_by_a_method, columns, last_columns, one_value, one_row, what_it_had, added)
WHOLE = re.compile(r"copy\(source=%args_0,|out=%args_0\)|target=\"aten::index_(put|copy)\"")


def main_of(fast: Any) -> str:
    """The program without its kernels, and without the places that its ops come from."""
    program = str(fast.host_ir()).split("kernel @")[0]
    return re.sub(r' loc\(".*?"\)', "", program)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_against_eager(function: Function, runtime: str) -> None:
    fast = hostjit.compile(function, runtime=runtime)
    for make in (lambda: torch.randn(4, 4), lambda: torch.randn(4, 8)[:, ::2]):
        for places in ([1, 0], [2, 3], [0, 0], [3, -1], [-4, 1], [1, 4], [-5, 2]):
            check_calls(fast, function, (make(), torch.tensor(places), torch.randn(2, 4)))


@pytest.mark.parametrize("function", [rows, rows_by_a_method, columns, last_columns, one_value])
def test_no_copy_of_the_whole(function: Function) -> None:
    fast: Any = hostjit.compile(function, fallback=False)
    check_calls(fast, function, (torch.randn(4, 4), torch.tensor([2, 0]), torch.randn(2, 4)))
    assert not WHOLE.search(main_of(fast))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("of_places", [torch.int64, torch.int32])
def test_types(dtype: torch.dtype, of_places: torch.dtype) -> None:
    def function(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
        x[i] = y
        return y.flip(0)

    fast = hostjit.compile(function, fallback=False)
    for places in ([1, 0], [2, 3], [-1, 0]):
        args = torch.randn(4, 3).to(dtype), torch.tensor(places, dtype=of_places), torch.randn(2, 3)
        check_calls(fast, function, (*args[:2], args[2].to(dtype)))


@pytest.mark.parametrize("function", [rows, rows_by_a_method])
def test_any_number_of_places(function: Function) -> None:
    fast: Any = hostjit.compile(function, fallback=False)
    for count in (2, 3, 5, 7, 0, 1):
        places = torch.randperm(8)[:count]
        check_calls(fast, function, (torch.randn(8, 3), places, torch.randn(count, 3)))
        assert len(fast.specializations) <= 2 or count < 2
    assert not WHOLE.search(main_of(fast))


def test_tensors_without_dims() -> None:
    def function(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
        x.index_copy_(0, i, y)
        return x + 1

    for index in (torch.tensor([0]), torch.tensor(0)):
        fast = hostjit.compile(function, fallback=False)
        for shape in ((), (1,), (3,)):
            check_calls(fast, function, (torch.zeros(shape), index, torch.ones(shape[:1] and (1,))))


def test_the_last_of_equal_places_counts() -> None:
    check_calls(
        hostjit.compile(rows, fallback=False),
        rows,
        (torch.zeros(3, 2), torch.tensor([1, 1, 2, 1]), torch.arange(8.0).view(4, 2)),
    )


@pytest.mark.parametrize("way", [hostjit.compile, hostjit.capture])
def test_a_cache_of_keys_and_values(way: Callable[[Function], Any]) -> None:
    def step(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, at: Tensor) -> Tensor:
        keys.index_copy_(2, at, k)
        values.index_copy_(2, at, v)
        mask = torch.arange(keys.shape[2]) <= at[:, None]
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)

    fast = way(step)
    keys, values = torch.zeros(2, 1, 2, 16, 8), torch.zeros(2, 1, 2, 16, 8)
    with torch.no_grad():
        for place in range(12):
            q, k, v = torch.randn(3, 1, 2, 1, 8)
            at = torch.tensor([place])
            found = [call(q, k, v, keys[n], values[n], at) for n, call in enumerate((fast, step))]
            assert_close(*found)
            assert_close(keys[0], keys[1])
            assert_close(values[0], values[1])
    assert not re.search(r"copy\(source|clone|aten::index", main_of(fast))


def test_gradients_through_a_copy() -> None:
    def function(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
        z = x * 2
        z[i] = y.sin()
        z.index_copy_(1, i, y.t().repeat(2, 1)[:4])
        return (z * z).sum()

    fast = hostjit.compile(function, fallback=False)
    for places in ([1, 0], [2, 3], [3, 1]):
        x, y = torch.randn(4, 4), torch.randn(2, 4)
        found = []
        for call in (fast, function):
            leaves = x.clone().requires_grad_(), y.clone().requires_grad_()
            result = call(leaves[0], torch.tensor(places), leaves[1])
            found.append((result, *torch.autograd.grad(result, leaves)))
        assert_close(*found)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_writes_are_counted(runtime: str) -> None:
    fast = hostjit.compile(rows, runtime=runtime, fallback=False)
    x, i, y = torch.randn(4, 4), torch.tensor([2, 0]), torch.randn(2, 4)
    with torch.no_grad():
        for _ in range(3):
            version = x._version
            fast(x, i, y)
            assert x._version > version
