# SPDX-License-Identifier: Apache-2.0
"""Inputs written where several lists of indices, masks and scatters say: in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from against_eager import RUNTIMES
from torch import Tensor
from torch.testing import assert_close
from written_parts import check_calls, largest_buffer

import hostjit

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def pairs(x: Tensor, i: Tensor, j: Tensor, y: Tensor) -> Tensor:
    x[i, j] = y
    x[j, i] = 2.5
    return y + 1


def pairs_added(x: Tensor, i: Tensor, j: Tensor, y: Tensor) -> Tensor:
    x[i, j] += y
    x.index_put_((j, i), y, accumulate=True)
    return y + 1


def crossed(x: Tensor, i: Tensor, j: Tensor, y: Tensor) -> Tensor:
    x[i[:, None], j] = y[:, None] * y
    x[i.view(3, 1), j.view(1, 3)] *= 2
    return y + 1


def several_rows(x: Tensor, i: Tensor, j: Tensor, y: Tensor) -> Tensor:
    x[torch.stack([i, j])] = y[0]
    x[:, torch.stack([i, j])] = y[:1].expand(3)
    return y + 1


def with_one(x: Tensor, i: Tensor, j: Tensor, y: Tensor) -> Tensor:
    x[i, 3] = y
    x[:5, j] = y * 2
    x[i, 0] += y
    return y + 1


def by_the_largest(x: Tensor, i: Tensor, j: Tensor, y: Tensor) -> Tensor:
    x[y.argmax()] = 1.5
    x[i, y.argmin() + 0 * j] = y
    return y + 1


def apart(x: Tensor, i: Tensor, j: Tensor, y: Tensor) -> Tensor:
    x.view(4, 2, 8)[i.clamp(max=3), :, j] = y[:, None]
    return y + 1


def by_index(x: Tensor, i: Tensor, j: Tensor, y: Tensor) -> Tensor:
    x.index_add_(0, i, y[:, None].expand(3, 8))
    x.index_fill_(1, j, 0.5)
    x.index_fill_(0, j, y[0])
    return y + 1


def scattered(x: Tensor, i: Tensor, j: Tensor, y: Tensor) -> Tensor:
    x.scatter_(1, i[:, None], y[:, None])
    x.scatter_(0, j[None], 1.5)
    x.scatter_add_(1, i[:, None].expand(3, 2), y.repeat(4, 1))
    return y + 1


def reduced(x: Tensor, i: Tensor, j: Tensor, y: Tensor) -> Tensor:
    x.scatter_reduce_(1, i[:, None], y[:, None], "amax")
    x.scatter_reduce_(1, j[:, None], y[:, None], "prod")
    x.scatter_reduce_(0, i[None], y[None] - 1, "amin")
    x.scatter_reduce_(0, j[None], y[None], "sum")
    return y + 1


def masked(x: Tensor, y: Tensor) -> Tensor:
    x[y > 0] = 0
    x[:, y < 0.5] = 1.5
    x[2, y > 1] = y[0]
    x[x > 1] = y[0]
    return y + 1


def masked_rows(x: Tensor, y: Tensor) -> Tensor:
    x[x[:, 0] > 0] = y
    x[:, x[0] > 0] = y[:, None]
    x[x[:, 1] > 0.5, 1:] = y[1:]
    x.index_put_((y > 0,), y[1], accumulate=True)
    return y + 1


def masked_blocks(x: Tensor, y: Tensor) -> Tensor:
    blocks = x.view(2, 4, 2, 4)
    blocks[:, y[:4] > 0] = y[:4]
    blocks[:, y.view(4, 2) > 0] = y[4:]
    blocks[y.view(2, 4) > 0] = 2.0
    return y + 1


FUNCTIONS = (
    by_the_largest,
    *(pairs, pairs_added, crossed, several_rows, with_one, apart, by_index, scattered, reduced),
)
MASKED = (masked, masked_rows, masked_blocks)


def arguments(places: tuple[list[int], list[int]], make: Callable[[], Tensor]) -> tuple[Any, ...]:
    return (make(), *map(torch.tensor, places), torch.randn(3))


PLACES: tuple[tuple[list[int], list[int]], ...] = (
    ([1, 0, 5], [2, 3, 4]),
    ([2, 2, 2], [7, 7, 7]),
    ([7, 6, 0], [0, 0, 1]),
    ([-1, 2, -8], [3, -2, 1]),
    ([1, 8, 0], [0, 1, 2]),
    ([1, 2, 3], [0, -9, 2]),
)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_against_eager(function: Function, runtime: str) -> None:
    fast = hostjit.compile(function, runtime=runtime)
    for places in PLACES:
        check_calls(fast, function, arguments(places, lambda: torch.randn(8, 8)))
    if function is not apart:
        for places in PLACES:
            make = lambda: torch.randn(8, 10)[:, 1:9].t()  # noqa: E731
            check_calls(fast, function, arguments(places, make))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_copy_of_much(function: Function) -> None:
    fast: Any = hostjit.compile(function, fallback=False)
    check_calls(fast, function, arguments(PLACES[0], lambda: torch.randn(8, 8)))
    assert largest_buffer(fast) <= 24
    assert "aten_call" not in fast.host_ir()


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("function", MASKED)
def test_masks(function: Function, runtime: str) -> None:
    fast: Any = hostjit.compile(function, runtime=runtime, fallback=False)
    for _ in range(4):
        check_calls(fast, function, (torch.randn(8, 8), torch.randn(8)))
    assert "aten_call" not in fast.host_ir()
    if function is not masked_blocks:
        check_calls(fast, function, (torch.randn(8, 10)[:, 1:9].t(), torch.randn(8)))


@pytest.mark.parametrize("of", [torch.float64, torch.bfloat16, torch.int32, torch.bool])
def test_other_types(of: torch.dtype) -> None:
    def function(x: Tensor, i: Tensor, m: Tensor, y: Tensor) -> Tensor:
        x[i, i.flip(0)] = y
        x[m] = y[0]
        x.scatter_(1, i[:, None].long(), y[:, None])
        x.index_put_((i, i), y, accumulate=True)
        return y.flip(0)

    fast = hostjit.compile(function, fallback=False)
    for _ in range(3):
        x, y = (torch.randn(shape).to(of) for shape in ((6, 6), (3,)))
        i = torch.randperm(6, dtype=torch.int32)[:3]
        check_calls(fast, function, (x, i, torch.rand(6) > 0.5, y))


def test_any_number_of_places() -> None:
    def function(x: Tensor, i: Tensor, j: Tensor, y: Tensor) -> Tensor:
        x[i, j] = y
        x.index_add_(0, i, x[j] * 2)
        return y + 1

    fast: Any = hostjit.compile(function, fallback=False)
    for count in (3, 4, 6, 2, 0, 1, 5):
        i, j = torch.randperm(8)[:count], torch.randperm(8)[:count]
        check_calls(fast, function, (torch.randn(8, 8), i, j, torch.randn(count)))
    assert len(fast.specializations) <= 4


def test_gradients_through_what_is_written() -> None:
    def function(x: Tensor, i: Tensor, j: Tensor, y: Tensor) -> Tensor:
        z = x * 2
        z[i, j] = y.sin()
        z[y[:1].expand(8) > 0] = 0.5
        z.index_add_(0, j, y[:, None].expand(3, 8))
        return (z * z).sum()

    fast = hostjit.compile(function, fallback=False)
    for places in PLACES[:4]:
        i, j = (torch.tensor(place) % 8 for place in places)
        x, y = torch.randn(8, 8), torch.randn(3)
        found = []
        for call in (fast, function):
            leaves = x.clone().requires_grad_(), y.clone().requires_grad_()
            result = call(leaves[0], i, j, leaves[1])
            found.append((result, *torch.autograd.grad(result, leaves)))
        assert_close(*found)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("way", ["compile", "torch.compile"])
def test_gradients_that_are_one_element_are_written_apart(way: str, runtime: str) -> None:
    """The gradient of a sum is one element, expanded: the part that was replaced has none of it."""

    def function(x: Tensor, q: Tensor) -> Tensor:
        t = x * q
        t[q > 0] = 0
        t[[0], :1] = 1
        return 0.1 * t.sum(-1)

    if way == "compile":
        fast: Function = hostjit.compile(function, runtime=runtime, fallback=False)
    else:
        options = {"runtime": runtime, "fallback": False}
        fast = torch.compile(function, backend="hostjit", options=options)
    for rows in (3, 4, 3, 5):
        q = torch.randn(rows, 4)
        x, twin = (torch.ones(rows, 4, requires_grad=True) for _ in range(2))
        found, expected = fast(x, q), function(twin, q)
        found.sum().backward()
        expected.sum().backward()
        assert_close((found, x.grad), (expected, twin.grad))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_is_expanded_is_copied(runtime: str) -> None:
    def function(x: Tensor, i: Tensor) -> Tensor:
        y = (x * 2).expand(5, 4)
        return y.index_put((i,), x) + y.index_add(0, i, y[:2])

    fast = hostjit.compile(function, runtime=runtime, fallback=False)
    x, i = torch.randn(1, 4), torch.tensor([3, 1])
    assert_close(fast(x, i), function(x, i))
