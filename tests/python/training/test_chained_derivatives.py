# SPDX-License-Identifier: Apache-2.0
"""Gradients with a graph of their own through several calls, of inputs made of one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit

Compile = Callable[[Any], Any]
WAYS: dict[str, Compile] = {
    "compile": hostjit.compile,
    "backend": lambda target: torch.compile(target, backend="hostjit"),
}


def product(a: Tensor, b: Tensor) -> Tensor:
    return torch.sin(a) * b


def step(x: Tensor, u: Tensor) -> Tensor:
    return x + 0.1 * torch.stack([x[1], torch.sin(x[0]) + u[0]])


def verlet(x: Tensor, before: Tensor) -> Tensor:
    return 2 * x - before - 0.01 * torch.sin(x)


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3) * 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.weight) + x


def of_an_operand(compiled: Compile) -> list[Tensor]:
    a = torch.tensor([1.0, 2.0], requires_grad=True)
    y = compiled(product)(a, a * 2)
    (gradient,) = torch.autograd.grad(y.sum(), a, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), a)
    return [gradient, second]


def of_a_cell(compiled: Compile) -> list[Tensor]:
    torch.manual_seed(0)
    cell = Cell()
    call, x = compiled(cell), torch.randn(2, 3)
    for _ in range(6):
        x = call(x)
    (gradient,) = torch.autograd.grad(x.sum(), cell.weight, create_graph=True)
    gradient.square().sum().backward()
    assert cell.weight.grad is not None
    return [gradient, cell.weight.grad]


def of_a_trajectory(compiled: Compile) -> list[Tensor]:
    call = compiled(verlet)
    start = torch.linspace(0.5, 1.0, 3).requires_grad_()
    x, before = start * 1.01, start
    for _ in range(5):
        x, before = call(x, before), x
    (gradient,) = torch.autograd.grad(x.square().sum(), start, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), start)
    return [gradient, second]


def of_backward(compiled: Compile) -> list[Tensor]:
    call, u = compiled(step), torch.tensor([0.3], requires_grad=True)
    x = torch.tensor([0.1, 0.2])
    for _ in range(3):
        x = call(x, u)
    x.sum().backward(create_graph=True)
    assert u.grad is not None
    return [u.grad]


def rollout(call: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
    def run(u: Tensor) -> Tensor:
        x = torch.tensor([0.1, 0.2]) + 0 * u
        for _ in range(3):
            x = call(x, u)
        return x

    return run


def of_a_jacobian(compiled: Compile) -> list[Tensor]:
    run, u = rollout(compiled(step)), torch.tensor([0.3])
    found = [
        torch.autograd.functional.jacobian(run, u),
        torch.autograd.functional.jacobian(run, u, create_graph=True),
        torch.autograd.functional.jacobian(run, u, vectorize=True),
    ]
    return [*found, torch.autograd.functional.hessian(lambda u: run(u).square().sum(), u)]


def of_many_tangents(compiled: Compile) -> list[Tensor]:
    u = torch.tensor([0.3], requires_grad=True)
    x = rollout(compiled(step))(u)
    (first,) = torch.autograd.grad(x, u, torch.eye(2), is_grads_batched=True, retain_graph=True)
    (again,) = torch.autograd.grad(x, u, torch.eye(2), is_grads_batched=True)
    return [first, again]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "case",
    [
        *(of_an_operand, of_a_cell, of_a_trajectory, of_backward, of_a_jacobian),
        of_many_tangents,
    ],
    ids=lambda case: case.__name__,
)
@pytest.mark.filterwarnings("ignore:Using backward\\(\\) with create_graph")
def test_gradients_through_several_calls(case: Callable[..., list[Tensor]], way: str) -> None:
    expected = case(lambda target: target)
    found = case(WAYS[way])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
