# SPDX-License-Identifier: Apache-2.0
"""Operators with the same operands are computed once, unless that is another computation."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import check
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import hostjit
from hostjit.capturing.gradients.common_subexpressions import merge_common_subexpressions


def leaf() -> Tensor:
    return torch.randn(2, 3, requires_grad=True)


def drawn(draw: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the difference of two draws, times what needs a gradient."""
    return lambda x: x * (draw(x.detach()) - draw(x.detach()))


DRAWS = {
    "randn_like": torch.randn_like,
    "randint_like": lambda x: torch.randint_like(x, 1000),
    "uniform_": lambda x: torch.empty_like(x).uniform_(),
    "exponential_": lambda x: torch.empty_like(x).exponential_(),
    "geometric_": lambda x: torch.empty_like(x).geometric_(0.1),
    "cauchy_": lambda x: torch.empty_like(x).cauchy_(),
    "bernoulli": lambda x: torch.bernoulli(torch.full_like(x, 0.5)),
    "normal": lambda x: torch.normal(x, 1.0),
    "poisson": lambda x: torch.poisson(x.square() * 50),
    "multinomial": lambda x: torch.multinomial(x.square(), 2)[:, :1],
    "dropout": lambda x: F.dropout(x, 0.5),
    "rrelu": lambda x: F.rrelu(-x.abs(), training=True),
    "dirichlet": lambda x: torch._sample_dirichlet(x.square() + 1),
}


@pytest.mark.parametrize("compile", [hostjit.compile, None], ids=["compile", "backend"])
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_every_draw_has_numbers_of_its_own(draw: Any, compile: Any, runtime: str) -> None:
    check(drawn(draw), (leaf(),), runtime=runtime, compile=compile)


@pytest.mark.parametrize("compile", [hostjit.compile, None], ids=["compile", "backend"])
def test_zeros_of_either_sign_are_different_numbers(compile: Any, runtime: str) -> None:
    def infinite(x: Tensor) -> Tensor:
        return 1 / (x.abs() * 0.0) - 1 / (x.abs() * -0.0)

    check(infinite, (leaf(),), runtime=runtime, compile=compile)


def results(x: Tensor) -> list[Tensor]:
    largest = [x.sin().max(dim=1).values, x.sin().max(dim=1).values]
    return [x.exp(), x.exp(), *largest, *(x * 2).split(1), *(x * 2).split(1)]


@pytest.mark.parametrize("compile", [hostjit.compile, None], ids=["compile", "backend"])
def test_every_result_has_memory_of_its_own(compile: Any, runtime: str) -> None:
    check(results, (leaf(),), runtime=runtime, compile=compile, may_fall_back=True)


def count_after_merging(function: Callable[..., Any], *arguments: Tensor) -> int:
    """Return how many operators of a trace are left."""
    graph = make_fx(function, tracing_mode="fake")(*arguments).graph
    merge_common_subexpressions(graph)
    graph.lint()
    return sum(node.op == "call_function" for node in graph.nodes)


def equal_operators(x: Tensor) -> Tensor:
    return x.sin().sum(dim=1) * x.sin().sum(dim=1) + x.sort(dim=1)[0].sum() + x.sort(dim=1)[0].sum()


def written_in_between(x: Tensor) -> Tensor:
    first = x.sin()
    x.add_(1)
    return first * x.sin()


def other_operands(x: Tensor) -> Tensor:
    return x.clamp(0, 1) * x.clamp(0.0, 1.0) * x.clamp(0, 2)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (equal_operators, 9),
        (written_in_between, 4),
        (other_operands, 5),
    ],
)
def test_what_is_left(function: Callable[..., Any], count: int) -> None:
    assert count_after_merging(function, torch.randn(2, 3)) == count


SCRIPT = """
import sys
import torch, hostjit
x = torch.ones(3, requires_grad=True)
hostjit.compile(lambda x: torch.tanh(x * 2).sum())(x).backward()
print([name for name in ("torch._inductor.lowering", "torch._inductor.ir") if name in sys.modules])
"""


def test_the_first_step_imports_no_lowerings_of_inductor() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
