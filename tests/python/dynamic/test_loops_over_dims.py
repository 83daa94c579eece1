# SPDX-License-Identifier: Apache-2.0
"""Loops whose turns a Dim counts, as PyTorch's operators write them: one program for all counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.testing import assert_close

import hostjit

WEIGHT, ROWS = torch.linspace(-1, 1, 16).reshape(4, 4), torch.linspace(-2, 2, 48).reshape(12, 4)
Loop = Callable[[torch.Tensor, int], Any]


def _count_up(x: torch.Tensor, n: int) -> Any:
    first = torch.zeros((), dtype=torch.int64)
    return while_loop(
        lambda i, _: i < n, lambda i, x: (i + 1, torch.tanh(x @ WEIGHT) + i), (first, x)
    )


def _count_down(x: torch.Tensor, n: int) -> Any:
    left = torch.full((), n)
    return while_loop(
        lambda i, _: i > 0, lambda i, x: (i - 1, torch.tanh(x @ WEIGHT) + i), (left, x)
    )


def _fill(x: torch.Tensor, n: int) -> Any:
    def turn(i: torch.Tensor, x: torch.Tensor, filled: torch.Tensor) -> Any:
        x = torch.tanh(x @ WEIGHT) + ROWS.index_select(0, i.reshape(1))[0]
        return i + 1, x, filled.index_copy(0, i.reshape(1), x[None])

    first = torch.zeros((), dtype=torch.int64)
    return while_loop(lambda i, *_: i < n, turn, (first, x, torch.zeros(12, 4)))[2][:n]


def _scan(x: torch.Tensor, n: int) -> Any:
    return scan(lambda x, row: (torch.tanh(x @ WEIGHT + row), x * 2), x, ROWS[:n])


def _scan_numbers(x: torch.Tensor, n: int) -> Any:
    return scan(lambda x, i: (torch.tanh(x @ WEIGHT) + i, x * i), x, torch.arange(n))


def _map(x: torch.Tensor, n: int) -> Any:
    return map_rows(lambda row: torch.tanh(row @ WEIGHT) + x, ROWS[:n])


def _vmap(x: torch.Tensor, n: int) -> Any:
    return torch.vmap(lambda row: torch.tanh(row @ WEIGHT) + x)(ROWS[:n])


# How many programs there may be: one element broadcasts, and no element has no strides.
LOOPS = [
    *((loop, 0, 1) for loop in (_count_up, _count_down)),
    *((loop, 0, 3) for loop in (_fill,)),
    *((loop, 1, 2) for loop in (_scan, _scan_numbers, _map, _vmap)),
]


@pytest.mark.parametrize(("loop", "least", "programs"), LOOPS)
@pytest.mark.parametrize("make", [hostjit.capture, hostjit.compile])
def test_one_program_for_all_counts(
    make: Callable[..., hostjit.CompiledFunction],
    loop: Loop,
    least: int,
    programs: int,
    runtime: str,
) -> None:
    n = hostjit.Dim("n", least, 12)
    fast = make(loop, runtime=runtime, fallback=False)
    for k in (3, 3, 12, least, 1, 7, 2, least, 12, 11, 1, 5):
        x = torch.randn(4)
        assert_close(fast(x, n(k)), loop(x, k))
    assert len(fast.specializations) <= programs


@pytest.mark.parametrize("loop", [_scan, _scan_numbers, _map])
@torch.enable_grad()
def test_gradients_of_loops(loop: Loop, runtime: str) -> None:
    if loop is _scan and torch.__version__ < (2, 12):
        pytest.skip("a scan whose results share memory with what it carries is refused")
    n = hostjit.Dim("n", 1, 12)
    fast = hostjit.capture(loop, runtime=runtime, fallback=False)

    def gradient(function: Loop, x: torch.Tensor, k: int) -> Any:
        results = torch.utils._pytree.tree_leaves(function(x, k))
        return torch.autograd.grad(sum(result.sum() for result in results), x)

    for k in (3, 3, 12, 1, 7, 2, 1, 12, 5):
        x = torch.randn(4, requires_grad=True)
        assert_close(gradient(fast, x, n(k)), gradient(loop, x, k))
    assert len(fast.specializations) <= 2


@pytest.mark.parametrize("loop", [_scan, _map])
def test_no_turns_are_what_they_are_in_eager_mode(loop: Loop) -> None:
    """That is an error, but for scan of torch 2.15."""
    n = hostjit.Dim("n", 0, 12)
    fast = hostjit.capture(loop)
    for k in (3, 0, 3, 0, 5):
        x = torch.randn(4)
        try:
            expected = loop(x, k)
        except RuntimeError:
            assert k == 0
            with pytest.raises(RuntimeError, match="dimension"):
                fast(x, n(k))
        else:
            assert_close(fast(x, n(k)), expected)


def _power(x: torch.Tensor, n: int) -> torch.Tensor:
    for _ in range(n):
        x = x * 1.5
    return x


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("make", [hostjit.capture, hostjit.compile])
def test_a_program_for_one_count_answers_all_of_its_calls(
    make: Callable[..., hostjit.CompiledFunction], runtime: str
) -> None:
    fast = make(_power, runtime=runtime)
    for n in (hostjit.Dim("n", 0, 9), hostjit.Dim("n", 0, 9)):
        for k in (3, 3, 3, 0, 0, 0, 1, 1, 3, 1):
            x = torch.randn(4)
            assert_close(fast(x, n(k)), _power(x, k))
    assert_close(fast(x, 3), _power(x, 3))
    assert len(fast.specializations) == 3


@pytest.mark.filterwarnings("ignore")
@torch.enable_grad()
def test_gradients_of_a_while_loop_are_those_of_eager_mode() -> None:
    n = hostjit.Dim("n", 0, 9)
    fast = hostjit.capture(_count_up, warmup=0)
    for k in (3, 0, 3, 4):
        x = torch.randn(4, requires_grad=True)
        found, expected = fast(x, n(k))[1], _count_up(x, k)[1]
        assert_close(found, expected)
        if k:
            gradients = [torch.autograd.grad(result.sum(), x) for result in (found, expected)]
            assert_close(*gradients)


def test_dynamo_takes_a_bound_dim_for_an_int() -> None:
    n = hostjit.Dim("n", -3, 9)
    scale = torch.compile(lambda x, k: x * k + (x < k), backend="hostjit", fullgraph=True)
    for k in (3, -3, 0, 1, 9, 3):
        x = torch.randn(4)
        assert_close(scale(x, n(k)), x * k + (x < k))
    assert_close(_count_up(x, n(4)), _count_up(x, 4))
