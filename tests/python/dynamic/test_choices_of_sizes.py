# SPDX-License-Identifier: Apache-2.0
"""`cond` on sizes and numbers that are open: a program for either side, whoever compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.map import map as map_rows
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import hostjit

SIZES = [6, 7, 3, 8, 2, 9, 4, 10, 3, 20, 5, 11]
FUNCTIONS: dict[str, tuple[Callable[[Tensor], Any], int]] = {}

Example = Callable[[Tensor], Any]


def example(programs: int) -> Callable[[Example], Example]:
    def register(function: Example) -> Example:
        FUNCTIONS[function.__name__] = function, programs
        return function

    return register


@example(programs=2)
def choose(x: Tensor) -> Tensor:
    rows = x.shape[0]
    return torch.cond(rows > 4, lambda x: x.sin() * x.shape[0], lambda x: x.cos() + rows, (x,))


@example(programs=2)
def choose_several(x: Tensor) -> Any:
    weight = torch.arange(3.0)

    def yes(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * weight, x.mean(0)

    a, b = torch.cond(x.shape[0] > 4, yes, lambda x: (x + 1, x.amax(0)), (x,))
    return {"sum": a + b, "half": x.shape[0] / 2}


@example(programs=4)
def choose_twice(x: Tensor) -> Tensor:
    y = torch.cond(x.shape[0] > 4, lambda x: x.sin(), lambda x: x.cos(), (x,))
    return torch.cond(x.shape[0] % 2 == 0, lambda y: y * 2, lambda y: y + 1, (y,))


@example(programs=3)
def choose_in_choices(x: Tensor) -> Tensor:
    rows = x.shape[0]

    def yes(x: Tensor) -> Tensor:
        def no(x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda x: x * rows, lambda x: x - 1, (x,))

        return torch.cond(rows > 7, lambda x: x.sin(), no, (x,))

    return torch.cond(rows > 4, yes, lambda x: x * 2, (x,))


@example(programs=2)
def choose_in_a_branch(x: Tensor) -> Tensor:
    def yes(x: Tensor) -> Tensor:
        return torch.cond(x.shape[0] > 4, lambda x: x.sin(), lambda x: x * 3, (x,))

    return torch.cond(x.sum() > 0, yes, lambda x: x * 2, (x,))


@example(programs=2)
def choose_in_rows(x: Tensor) -> Tensor:
    rows = x.shape[0]
    return map_rows(lambda r: torch.cond(rows > 4, lambda r: r * 2, lambda r: r.sin(), (r,)), x)


@example(programs=2)
def choose_in_a_checkpoint(x: Tensor) -> Tensor:
    return checkpoint(lambda x: choose(x) + 1, x, use_reentrant=False)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    programs: list[object] = []
    original = hostjit._C.CompiledProgram

    def record(program: hostjit._C.Program) -> hostjit._C.CompiledProgram:
        programs.append(program)
        return original(program)

    monkeypatch.setattr(hostjit._C, "CompiledProgram", record)
    torch.compiler.reset()
    return programs


def by_torch_compile(function: Callable[..., Any], runtime: str) -> Callable[..., Any]:
    options = {"fallback": False, "runtime": runtime}
    return torch.compile(function, backend="hostjit", dynamic=True, options=options)


def by_hostjit(function: Callable[..., Any], runtime: str) -> Callable[..., Any]:
    return hostjit.compile(function, dynamic=True, fallback=False, runtime=runtime)


@pytest.mark.parametrize("compile", [by_torch_compile, by_hostjit])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_program_for_either_side(
    name: str, compile: Callable[..., Any], made: list[object]
) -> None:
    function, programs = FUNCTIONS[name]
    compiled = compile(function, "jit")
    for rows in SIZES:
        for x in (torch.randn(rows, 3) + 1, torch.randn(rows, 3) - 1):
            torch.testing.assert_close(compiled(x), function(x), check_stride=True)
    assert len(made) == programs


@pytest.mark.parametrize("compile", [by_torch_compile, by_hostjit])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_either_side(
    name: str, compile: Callable[..., Any], made: list[object]
) -> None:
    function, programs = FUNCTIONS[name]
    compiled = compile(function, "jit")
    with torch.enable_grad():
        for rows in SIZES:
            x = torch.randn(rows, 3, requires_grad=True)
            found = []
            for call in (compiled, function):
                leaves = [v for v in pytree.tree_leaves(call(x)) if isinstance(v, Tensor)]
                found.append(torch.autograd.grad(sum(leaf.square().sum() for leaf in leaves), x))
            torch.testing.assert_close(*found)
    assert len(made) == 2 * programs


@pytest.mark.parametrize("gradients", [False, True])
def test_either_side_of_a_number(gradients: bool, runtime: str) -> None:
    def damp(x: Tensor, dt: float) -> Tensor:
        return torch.cond(dt > 0.5, lambda x: x * 2, lambda x: x.sin(), (x,))

    compiled = hostjit.compile(damp, fallback=False, runtime=runtime)
    with torch.set_grad_enabled(gradients):
        for step in range(12):
            x, dt = torch.randn(3, requires_grad=gradients), 0.3 + 0.4 * (step % 2) + 0.01 * step
            torch.testing.assert_close(compiled(x, dt), damp(x, dt))
    assert len(compiled.specializations) == 3


def test_sizes_that_the_user_has_given_bounds(made: list[object]) -> None:
    compiled = by_torch_compile(choose, "jit")
    for rows in (6, 7, 3, 8, 3, 9, 3):
        x = torch.randn(rows, 3)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=100)
        torch.testing.assert_close(compiled(x), choose(x))
    assert len(made) == 2


def test_a_size_that_the_program_for_any_is_not_made_for(runtime: str, made: list[object]) -> None:
    def function(x: Tensor) -> Tensor:
        return x.clone().mul_(2)[1:].add_(1)

    compiled = by_torch_compile(function, runtime)
    for rows in (6, 2, 7, 2, 8, 2, 9, 2, 3, 2, 2, 2, 2):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x), function(x), check_stride=True)
    assert len(made) == 2
