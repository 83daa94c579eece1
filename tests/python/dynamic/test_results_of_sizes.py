# SPDX-License-Identifier: Apache-2.0
"""Calls that return or keep numbers which follow from sizes: one program, and eager's numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

import hostjit

FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "size": lambda x: (x * 2, x.shape[0]),
    "length": lambda x: (x * 2, len(x), x.numel()),
    "of a result": lambda x: ((y := torch.cat([x, x[1:]])), y.numel() / 2, y.stride()),
    "all sizes": lambda x: (x * 2, x.shape, x.t().shape),
    "of a result alone": lambda x: (*(y := x[1:] * 2).shape, y.dim()),
    "in a structure": lambda x: {"y": x * 2, "sizes": [*x.shape, (x.size(0) + 1, 3)]},
    "arithmetic": lambda x: (x * 2, x.shape[0] ** 2 // 3, -x.shape[0] % 7, x.shape[0] << 2),
    "floats": lambda x: (x * 2, float(x.shape[0]), x.shape[0] // 1.5, round(x.shape[0] / 3, 1)),
    "functions": lambda x: (x * 2, math.sqrt(x.shape[0]), math.log(x.numel()), max(x.shape)),
    "truth": lambda x: (x * 2, x.shape[0] % 3 == 0, x.shape[0] > 1),
    "made of one": lambda x: (x * math.log(x.shape[0]), math.exp(-x.shape[0] / 9)),
    "of a window": lambda x: ((y := functional.avg_pool1d(x.t(), 2, 1)), y.shape[1]),
    "constants": lambda x: (x * 2, x.dim(), 3, 2.5, True),
    "and a view": lambda x: (x[: x.shape[0] // 2], x.shape[0] // 2),
    "alone": lambda x: x.shape[0],
    "a view that a function ends": lambda x: x[: math.ceil(len(x) / 2)],
    "a view and its size": lambda x: ((y := x[math.isqrt(len(x)) :]), y.shape[0], x[1] * 2),
}


def numbers(result: Any) -> str:
    return repr([leaf for leaf in tree_leaves(result) if not isinstance(leaf, Tensor)])


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_program_for_all_sizes(name: str, gradients: bool, runtime: str) -> None:
    function = FUNCTIONS[name]
    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    with torch.set_grad_enabled(gradients):
        for n in (8, 12, 5, 6, 9, 20, 31, 7, 4, 10):
            x = torch.randn(n, 6, requires_grad=gradients)
            found, expected = compiled(x), function(x)
            assert type(found) is type(expected) and numbers(found) == numbers(expected)
            torch.testing.assert_close(found, expected)
    assert len(compiled.specializations) == 2


def test_sizes_of_what_the_program_does_not_take() -> None:
    def function(x: Tensor, like: Tensor, n: int, t: float) -> Any:
        return x[:n] * t, like.shape[0] - n, like.shape[1] * t

    compiled = hostjit.compile(function, fallback=False)
    x = torch.randn(40)
    for n in range(2, 14):
        call = x, torch.empty(n + 3, 2 * n), n, n / 3
        found, expected = compiled(*call), function(*call)
        torch.testing.assert_close(found, expected)
        assert numbers(found) == numbers(expected)
    assert len(compiled.specializations) == 2


def refused(x: Tensor, log: list[int]) -> Tensor | int:
    log.append(len(x))
    return -1 if len(x) == 3 else x * 2


def caught(x: Tensor, log: list[int]) -> Tensor | None:
    try:
        if len(x) == 3:
            raise ValueError
        return x * 2
    except ValueError:
        log.append(len(x))


@pytest.mark.parametrize("function", [refused, caught])
def test_a_size_for_which_only_python_runs(function: Callable[..., Any]) -> None:
    compiled = hostjit.compile(function)
    found: list[int] = []
    expected: list[int] = []
    for n in (2, 3, 2, 3, 4, 3, 5):
        x = torch.randn(n)
        answer, as_eager = compiled(x, found), function(x, expected)
        assert type(answer) is type(as_eager)
        if isinstance(as_eager, Tensor):
            torch.testing.assert_close(answer, as_eager)
        else:
            assert answer == as_eager
    assert found == expected


def test_a_decision_by_a_size_that_is_returned() -> None:
    def function(x: Tensor) -> Any:
        return x * 2, x.shape[0] if x.shape[0] > 10 else 0

    compiled = hostjit.compile(function, fallback=False)
    for n in (5, 20, 6, 10, 11, 2, 30):
        x = torch.randn(n, 4)
        assert compiled(x)[1] == function(x)[1]
    assert len(compiled.specializations) == 3


class Counter(nn.Module):
    """Counts rows, and keeps sizes in a list, which Python code has to make."""

    def __init__(self, keeps: bool) -> None:
        super().__init__()
        self.rows = 0
        self.keeps = keeps
        self.last: list[Any] = []

    def forward(self, x: Tensor) -> Any:
        self.rows += x.shape[0]
        if self.keeps:
            self.last = [x.shape[0], x.shape[0] / 2, x]
        return x * 2, self.rows


@pytest.mark.parametrize("keeps", [False, True])
def test_numbers_that_a_call_keeps(keeps: bool, runtime: str) -> None:
    compiled_counter, eager_counter = Counter(keeps), Counter(keeps)
    compiled = hostjit.compile(compiled_counter, runtime=runtime, fallback=False)
    for n in (4, 6, 5, 8, 3, 9, 4, 7, 6, 11):
        x = torch.randn(n, 3)
        found, expected = compiled(x), eager_counter(x)
        torch.testing.assert_close(found, expected)
        assert compiled_counter.rows == eager_counter.rows
        assert compiled_counter.last[:2] == eager_counter.last[:2]
    assert len(compiled.specializations) == 2


def test_sizes_of_zero_and_one(runtime: str) -> None:
    function = FUNCTIONS["arithmetic"]
    compiled = hostjit.compile(function, runtime=runtime, dynamic=True, fallback=False)
    for n in (5, 1, 0, 7, 1, 0):
        x = torch.randn(n, 4)
        assert numbers(compiled(x)) == numbers(function(x))


def test_saving(tmp_path: Path) -> None:
    def function(x: Tensor, t: float) -> Any:
        y = x[1:].sin()
        return y, y.numel() * t, x.shape[0] // 2

    compiled = hostjit.compile(function, fallback=False)
    for n in (4, 5, 6):
        compiled(torch.randn(n, 3), n / 2)
    hostjit.save(compiled, tmp_path / "sizes.hostjit")
    loaded = hostjit.load(tmp_path / "sizes.hostjit")
    for n in (9, 4, 12):
        x = torch.randn(n, 3)
        found, expected = loaded(x, n / 3), function(x, n / 3)
        torch.testing.assert_close(found, expected)
        assert numbers(found) == numbers(expected)
