# SPDX-License-Identifier: Apache-2.0
"""Inputs that are changed as a whole, or a part of them: by the kernel that computes the change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from against_eager import RUNTIMES
from torch import Tensor
from written_parts import check_calls, largest_buffer

import hostjit

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def scaled(x: Tensor, y: Tensor, n: int) -> Tensor:
    x.mul_(0.5)
    return y + 1


def averaged(x: Tensor, y: Tensor, n: int) -> Tensor:
    x.mul_(0.9).add_(y, alpha=0.1)
    return y * 2


def part(x: Tensor, y: Tensor, n: int) -> Tensor:
    x[1:5].mul_(y).clamp_(-1, 1)
    x[n] = y.exp() - 1
    return y * 2


def masked(x: Tensor, y: Tensor, n: int) -> Tensor:
    x.masked_fill_(y > 0, 2.0)
    x.copy_(torch.where(x > 1, x * n, x - 1))
    return y * 2


def filled(x: Tensor, y: Tensor, n: int) -> Tensor:
    x.copy_(y.sin() * n)
    return x[n] - y


def both(x: Tensor, y: Tensor, n: int) -> Tensor:
    x.add_(y)
    y.mul_(2)
    return y + n


def rows(x: Tensor, y: Tensor, n: int) -> Tensor:
    x.copy_(y[:, None].softmax(0) + y.sum())
    return y + n


IN_PLACE = (scaled, averaged, part, masked, filled, both, rows)


def by_its_own_row(x: Tensor, y: Tensor, n: int) -> Tensor:
    x.mul_(x[0])
    x.add_(x[:, n : n + 1])
    return y + 1


def by_its_own_sums(x: Tensor, y: Tensor, n: int) -> Tensor:
    x.sub_(x.mean(0))
    x.copy_(x.softmax(1))
    x.copy_(x / x.sum(1, keepdim=True))
    return y + 1


def moved(x: Tensor, y: Tensor, n: int) -> Tensor:
    x.copy_(x.t() * 2)
    x.copy_(x.flip(0) + 1)
    x.copy_(x.roll(n, 1) - 1)
    x[1:] = x[:-1] * 2
    x[:-1] = x[1:] + y
    return y + 1


def exchanged(x: Tensor, y: Tensor, n: int) -> tuple[Tensor, Tensor]:
    before, x0 = y * 1, x[0] + 1
    y.copy_(x[n] * 2)
    x[n] = before
    x[0] = x0
    return before, x0


def seen(x: Tensor, y: Tensor, n: int) -> tuple[Tensor, ...]:
    new = x * 2
    old = x.t()
    x.copy_(new)
    x.add_(y)
    return new, old + 1, x, x[n], new.view(-1)


def chosen(x: Tensor, y: Tensor, n: int) -> Tensor:
    x.copy_(x[(y > 0).long()] + x)
    x.copy_(torch.gather(x, 1, (x > 0).long()) * 2)
    return y + 1


def products(x: Tensor, y: Tensor, n: int) -> Tensor:
    x.copy_((x @ x).tanh())
    y.copy_(x @ y + y)
    return x @ y


def fails_behind(x: Tensor, y: Tensor, n: int) -> Tensor:
    x.mul_(2)
    return y[(y * 0).long() + n + 6]


OTHERS = (by_its_own_row, by_its_own_sums, moved, exchanged, seen, chosen, products, fails_behind)


def check(function: Function, runtime: str, make: Callable[[], Tensor]) -> Any:
    fast = hostjit.compile(function, runtime=runtime)
    for n in (1, 0, 2, 1, 3):
        check_calls(fast, function, (make(), torch.randn(8), n))
    return fast


@pytest.mark.filterwarnings("ignore:hostjit")  # of what is written where it is read, by eager
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("function", [*IN_PLACE, *OTHERS])
def test_against_eager(function: Function, runtime: str) -> None:
    check(function, runtime, lambda: torch.randn(8, 8))
    check(function, runtime, lambda: torch.randn(8, 9)[:, 1:].t())


@pytest.mark.parametrize("function", IN_PLACE)
def test_no_copy_of_much(function: Function) -> None:
    assert largest_buffer(check(function, "jit", lambda: torch.randn(8, 8))) <= 16


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
def test_other_types_and_sizes(dtype: torch.dtype) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2).add_(y)
        x[1:] -= 1
        return y + 1

    fast: Any = hostjit.compile(function, fallback=False)
    for rows in (4, 5, 9, 2, 1, 300):
        x, y = (torch.randn(size) * 8 for size in ((rows, 33), (33,)))
        check_calls(fast, function, (x.to(dtype), y.to(dtype)))
    assert len(fast.specializations) <= 4


def test_large_inputs_on_threads() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        x.copy_(torch.where(x > y, x.exp() * 2, x.sin() - y))
        return y + 1

    fast: Any = hostjit.compile(function, fallback=False)
    for _ in range(3):
        check_calls(fast, function, (torch.randn(700, 300), torch.randn(300)))
    assert largest_buffer(fast) <= 300


def test_gradients() -> None:
    def function(x: Tensor, state: Tensor) -> Tensor:
        y = x.sin() * 2
        state.mul_(0.5).add_(x.detach())
        return (y * state.clone()).sum()

    fast = hostjit.compile(function)
    for _ in range(3):
        x, state = torch.randn(4, 3), torch.randn(4, 3)
        found = []
        for call in (fast, function):
            leaf, own = x.clone().requires_grad_(), state.clone()
            call(leaf, own).backward()
            found.append((leaf.grad, own))
        torch.testing.assert_close(*found)
