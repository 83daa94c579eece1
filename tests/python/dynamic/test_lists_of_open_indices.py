# SPDX-License-Identifier: Apache-2.0
"""Lists of indices that are computed from ints of the call: one program for all of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit

Function = Callable[..., Any]


def last_few(x: Tensor, i: int) -> Tensor:
    return x[[(i - k) % 8 for k in range(4)]] * 2


def of_columns(x: Tensor, i: int) -> Tensor:
    return x[:, [i, 0, i - 1]].sum(0) + x[i, [i % 3, 2]].sum()


def pairs(x: Tensor, i: int) -> Tensor:
    return x[[i, i - 1], [0, i % 4]] + 1


def written(x: Tensor, i: int) -> Tensor:
    x[[i % 8, (i + 3) % 8]] = x[0] * 2
    x[2, [i % 4]] += 1
    return x.sum(1)


FUNCTIONS = (last_few, of_columns, pairs, written)


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_one_program(function: Function, runtime: str) -> None:
    fast: Any = hostjit.compile(function, runtime=runtime, fallback=False)
    torch.manual_seed(0)
    with torch.no_grad():
        for i in (3, 1, 4, 2, 7, 5, 6, -2, 8, 0):
            ours = torch.randn(8, 8)
            eager = copy.deepcopy(ours)
            try:
                expected = function(eager, i)
            except IndexError as error:
                with pytest.raises(IndexError, match=str(error)):
                    fast(ours, i)
            else:
                assert_close(fast(ours, i), expected)
            assert_close(ours, eager)
    assert len(fast.specializations) <= 4


def element(x: Tensor, i: int) -> Tensor:
    return x[i % 8, 1] * x[:, i % 3 :]


@pytest.mark.parametrize("function", [last_few, element, pairs])
def test_gradients(function: Function) -> None:
    fast: Any = hostjit.compile(function, fallback=False)
    for i in range(1, 8):
        found = []
        for call in (fast, function):
            torch.manual_seed(i)
            x = torch.randn(8, 5, requires_grad=True)
            with torch.enable_grad():
                call(x, i).square().sum().backward()
            found.append(x.grad)
        assert_close(*found)
    assert len(fast.specializations) <= 3


def test_a_counter_of_a_module() -> None:
    class History(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.zeros(8, 3))
            self.step = 0

        def forward(self, y: Tensor) -> Tensor:
            self.rows[self.step % 8] = y
            self.step += 1
            return self.rows[[(self.step - k) % 8 for k in range(1, 4)]].flatten()

    ours = History()
    eager = copy.deepcopy(ours)
    fast: Any = hostjit.compile(ours, fallback=False)
    torch.manual_seed(0)
    with torch.no_grad():
        for _ in range(20):
            y = torch.randn(3)
            assert_close(fast(y), eager(y))
    assert ours.step == eager.step
    assert len(fast.specializations) <= 3
