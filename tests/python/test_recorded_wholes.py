# SPDX-License-Identifier: Apache-2.0
"""Calls whose parts would be left to frames, for objects that the code makes: they are recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit

W = torch.linspace(-0.5, 0.5, 9).view(3, 3)


class Solver:
    """Made by each call, as those of torchdiffeq are."""

    def __init__(self, weight: Tensor, times: Tensor) -> None:
        self.weight = weight
        self.times = times
        self.steps = 0

    def check(self, x: Tensor) -> None:
        slope = torch.tanh(x @ self.weight)
        if not (slope.abs() < 0.999).all():
            raise ValueError("it is too steep")

    def step(self, x: Tensor, width: Tensor) -> Tensor:
        self.steps += 1
        return x + width * torch.tanh(x @ self.weight)

    def run(self, x: Tensor) -> Tensor:
        self.check(x)
        for begin, end in zip(self.times[:-1], self.times[1:], strict=True):
            x = self.step(x, end - begin)
        return x


def solve(x: Tensor, times: Tensor) -> tuple[Tensor, int]:
    solver = Solver(W, times)
    y = solver.run(x * 2)
    return y.relu(), solver.steps


def solve_and_tell(x: Tensor, times: Tensor) -> tuple[Tensor, int]:
    solver = Solver(W, times)
    y = solver.run(x * 2)
    print(solver.steps)
    return y.relu(), solver.steps


class Memory:
    """Outlives the calls."""

    def __init__(self) -> None:
        self.sums: list[float] = []


MEMORY = Memory()


def solve_and_keep(x: Tensor, times: Tensor) -> tuple[Tensor, int]:
    solver = Solver(W, times)
    y = solver.run(x * 2)
    MEMORY.sums = [round(float(y.sum()), 3), *MEMORY.sums[:2]]
    return y.relu(), len(MEMORY.sums)


def frames_of(function: Callable[..., Any], *args: Any) -> int:
    """Count the Python functions that a call runs."""
    count = 0

    def note(frame: Any, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        function(*args)
    finally:
        sys.setprofile(None)
    return count


def times(*ends: float) -> Tensor:
    return torch.tensor([0.0, *ends])


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_calls_are_recorded(runtime: str) -> None:
    torch.manual_seed(0)
    function = hostjit.compile(solve, runtime=runtime)
    for _ in range(10):
        x = torch.randn(2, 3)
        assert_close(function(x, times(0.1, 0.4)), solve(x, times(0.1, 0.4)))
    assert frames_of(function, torch.randn(2, 3), times(0.2, 0.3)) == 0
    # Others are recorded for themselves, or raise.
    for _ in range(4):
        x = torch.randn(2, 3)
        assert_close(function(x, times(0.1, 0.4, 0.9)), solve(x, times(0.1, 0.4, 0.9)))
        with pytest.raises(ValueError, match="too steep"):
            function(x * 100, times(0.1, 0.4))
    for _ in range(4):
        x = torch.randn(2, 3)
        assert_close(function(x, times(0.1, 0.4)), solve(x, times(0.1, 0.4)))


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("program", [solve_and_tell, solve_and_keep])
def test_what_cannot_be_recorded_runs_in_parts(
    program: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    function = hostjit.compile(program)
    for _ in range(10):
        x = torch.randn(2, 3)
        MEMORY.sums = [1.0]
        expected, kept, said = program(x, times(0.1, 0.4)), MEMORY.sums, capsys.readouterr()
        MEMORY.sums = [1.0]
        assert_close(function(x, times(0.1, 0.4)), expected)
        assert kept == MEMORY.sums
        assert capsys.readouterr() == said


@pytest.mark.filterwarnings("ignore:hostjit")
def test_each_size_is_recorded_or_runs_in_parts() -> None:
    torch.manual_seed(0)
    function = hostjit.compile(solve)
    for count in (2, 3, 2, 4, 5, 3, 7, 9, 2, 4, 1, 6):
        x = torch.randn(count, 3)
        assert_close(function(x, times(0.1, 0.4)), solve(x, times(0.1, 0.4)))


@pytest.mark.filterwarnings("ignore:hostjit")
def test_gradients_flow_through_what_was_recorded() -> None:
    torch.manual_seed(0)
    function = hostjit.compile(solve)
    for _ in range(10):
        x = torch.randn(2, 3, requires_grad=True)
        twin = x.detach().clone().requires_grad_()
        for given, call in ((x, function), (twin, solve)):
            call(given, times(0.1, 0.4))[0].sum().backward()
        assert_close(x.grad, twin.grad)
