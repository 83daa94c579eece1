# SPDX-License-Identifier: Apache-2.0
"""Parts of views of an input that are written: in place, at any depth and through any views."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from against_eager import RUNTIMES
from torch import Tensor, nn
from torch.testing import assert_close
from written_parts import check_calls, largest_buffer

import hostjit

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def part_of_row(x: Tensor, n: int, i: Tensor, y: Tensor) -> Tensor:
    x[i, 1:] = y[1:] * n
    return y + 1


def part_of_column(x: Tensor, n: int, i: Tensor, y: Tensor) -> Tensor:
    x[2:-1, i] = y[0]
    x[1:, i] += y[1] * n
    return y + 1


def part_of_rows(x: Tensor, n: int, i: Tensor, y: Tensor) -> Tensor:
    rows = torch.stack([i, i + 1])
    x[rows, 1::2] = y[1::2] + n
    x[rows, 0] += y[0]
    return y + 1


def element(x: Tensor, n: int, i: Tensor, y: Tensor) -> Tensor:
    x[n, n + 1] = y[0]
    x[n][n + 2] *= 2
    x[-1, n] = 1.5
    return y + 1


def nested(x: Tensor, n: int, i: Tensor, y: Tensor) -> Tensor:
    x[2:][n][1:][::2] = y[1::2]
    x[2:].select(0, n).add_(1)
    return x[n] + y


def reshaped(x: Tensor, n: int, i: Tensor, y: Tensor) -> Tensor:
    x.view(2, -1, x.shape[1])[1, n, 1:] = y[1:]
    return y + 1


def flat(x: Tensor, n: int, i: Tensor, y: Tensor) -> Tensor:
    x.view(-1)[n : n + 5] = y[:5]
    x.flatten()[n] += 1
    return y + 1


def transposed(x: Tensor, n: int, i: Tensor, y: Tensor) -> Tensor:
    x.t()[n] = y[0]
    x.mT[i, 1:] = y[1]
    return y + 1


def diagonal(x: Tensor, n: int, i: Tensor, y: Tensor) -> Tensor:
    x.diagonal().fill_(n)
    x.diagonal(1)[n:] = y[1]
    return y + 1


def pieces(x: Tensor, n: int, i: Tensor, y: Tensor) -> Tensor:
    x.split(4)[1][n].add_(y)
    x.unbind(1)[2][n] = y[3]
    x.chunk(2, 1)[0][i] = 1.0
    return y + 1


def chained(x: Tensor, n: int, i: Tensor, y: Tensor) -> Tensor:
    x[i, 1:] = y[1:]
    x[n, :-1] = x[i, 1:] * 2
    x[:, 0] += 1
    x.t()[n, 1:] = y[2]
    return x.sum(0)


IN_PLACE = (
    *(part_of_row, part_of_column, part_of_rows, element, nested, reshaped, transposed, diagonal),
    *(pieces, chained, flat),
)


def read_between(x: Tensor, n: int, i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    before = x[n, 1:].clone()
    part = x[:, 1:] * 1
    x[i, 1:] = before * 2
    return part, x[n] * 1


def from_itself(x: Tensor, n: int, i: Tensor, y: Tensor) -> Tensor:
    x[i, 1:] = x[n, :-1]
    x[1:, 0] = x[:-1, 0]
    x.view(-1)[1:7] = x.view(-1)[:6].clone()
    return y + 1


def part_as_result(x: Tensor, n: int, i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    row = x[n]
    part = row[1:]
    part[i] = y[0]
    return part, part + 1


def two_views(x: Tensor, n: int, i: Tensor, y: Tensor) -> Tensor:
    a, b = x[:4], x[2:]
    a[n, 1:] = y[1:]
    b[i, :3] = y[3:]
    a[3] = b[0]
    return a + 1


def check(function: Function, runtime: str, make: Callable[[], Tensor]) -> Any:
    fast = hostjit.compile(function, runtime=runtime, fallback=function is from_itself)
    for place in (1, 0, 2, 1, 3):
        args = make(), place, torch.tensor(place + 1), torch.randn(6)
        check_calls(fast, function, args)
    return fast


@pytest.mark.filterwarnings("ignore:hostjit")  # of what is written where it is read, by eager
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    "function", [*IN_PLACE, read_between, from_itself, part_as_result, two_views]
)
def test_against_eager(function: Function, runtime: str) -> None:
    check(function, runtime, lambda: torch.randn(8, 6))
    if function not in (reshaped, flat, from_itself):
        check(function, runtime, lambda: torch.randn(6, 8).t())
        check(function, runtime, lambda: torch.randn(8, 9)[:, 2:8])


@pytest.mark.parametrize("function", IN_PLACE)
def test_no_copy_of_much(function: Function) -> None:
    assert largest_buffer(check(function, "jit", lambda: torch.randn(8, 6))) <= 16


def test_buffers_of_modules() -> None:
    class History(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.zeros(64, 6))
            self.register_buffer("place", torch.tensor(0))

        def forward(self, y: Tensor) -> Tensor:
            self.rows[self.place, 1:] = y[1:]
            self.rows[self.place, 0] += 1
            self.place.add_(1).remainder_(64)
            return y * 2

    ours = History()
    eager = copy.deepcopy(ours)
    fast: Any = hostjit.compile(ours, fallback=False)
    with torch.no_grad():
        for _ in range(70):
            y = torch.randn(6)
            assert_close(fast(y), eager(y))
        assert_close(ours.state_dict(), eager.state_dict())
    assert largest_buffer(fast) <= 16


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_call_that_fails_ahead_of_an_operator(runtime: str) -> None:
    def function(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
        x[0, 1:] += 1
        x[i] = y
        return x.t() @ y  # an operator of PyTorch's, which computes with whatever there is

    fast = hostjit.compile(function, runtime=runtime, fallback=False)
    for place in (1, 0, 5, 9, 2):
        check_calls(fast, function, (torch.randn(6, 6), torch.tensor(place), torch.randn(6)))
