# SPDX-License-Identifier: Apache-2.0
"""Code that is given a parameter, and looks it up in an optimizer of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


class Optimizer(torch.optim.Optimizer):
    """Keeps what the parameters were, and measures how far gradients lead away from there."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {})
        for parameter in parameters:
            self.state[parameter]["before"] = parameter.detach().clone()

    def step(self) -> float:  # type: ignore[override]
        total = 0.0
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    before = self.state[p]["before"]
                    total += 1e-3 * torch.dot(p.grad, before.data - p.data).item()
                    p.add_(p.grad, alpha=-0.01)
        return total


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.full((4,), float(n))) for n in range(1, 4)]


def by_gradient(optimizer: Optimizer, p: Tensor) -> Tensor:
    assert p.grad is not None
    found: Tensor = p.grad * optimizer.state[p]["before"]
    return found


def by_value(optimizer: Optimizer, p: Tensor) -> Tensor:
    found: Tensor = p * optimizer.state[p]["before"]
    return found


def by_membership(optimizer: Optimizer, p: Tensor) -> Tensor:
    return p * 2 if p in optimizer.state else p * 3


def by_place(optimizer: Optimizer, p: Tensor) -> Tensor:
    for index, other in enumerate(optimizer.param_groups[0]["params"]):
        if other is p:
            return p * index
    return p * -1


BACKENDS: list[Callable[..., Any]] = [
    hostjit.compile,
    lambda function: torch.compile(function, backend="hostjit"),
]
FUNCTIONS = [by_gradient, by_value, by_membership, by_place]


@pytest.mark.parametrize("compile", BACKENDS, ids=["compile", "torch.compile"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_has_its_own_state(function: Any, compile: Callable[..., Any]) -> None:
    """Dynamo has no guard on which of them it is given."""
    torch._dynamo.reset()
    given = parameters()
    optimizer = Optimizer(given[:-1] if function in (by_membership, by_place) else given)
    for number, p in enumerate(given):
        p.grad = torch.full((4,), 10.0 + number)
    fast = compile(function)
    with torch.no_grad():
        for p in (*given, *reversed(given)):
            torch.testing.assert_close(fast(optimizer, p), function(optimizer, p))


@pytest.mark.parametrize("compile", BACKENDS, ids=["compile", "torch.compile"])
@pytest.mark.parametrize("whole", [False, True])
def test_steps_in_passes(whole: bool, compile: Callable[..., Any]) -> None:
    def run(compile: Callable[..., Any]) -> list[float]:
        given = parameters()
        optimizer = Optimizer(given)

        def train(x: Tensor) -> float:
            for p in given:
                p.grad = None
            (x * given[0] + given[1] * given[2]).square().sum().backward()
            return step()

        step = optimizer.step if whole else compile(optimizer.step)
        fast = compile(train) if whole else train
        torch.manual_seed(1)
        return [fast(torch.randn(4)) for _ in range(14)]

    torch._dynamo.reset()
    assert run(compile) == pytest.approx(run(lambda function: function), rel=1e-4)
