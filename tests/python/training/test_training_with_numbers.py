# SPDX-License-Identifier: Apache-2.0
"""Gradients of calls whose numbers differ: one program and its backward for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import hostjit


def gradients(function: Callable[..., Any], x: Tensor, *numbers: float) -> list[Tensor]:
    x = x.detach().clone().requires_grad_()
    result = function(x, *numbers)
    torch.manual_seed(1)
    (gradient,) = torch.autograd.grad(result, x, torch.randn_like(result))
    return [result.detach(), gradient]


def annealed(x: Tensor, beta: float) -> Tensor:
    return x.sin().square().mean() + beta * (x.exp() - x).mean()


def tempered(x: Tensor, temperature: float) -> Tensor:
    return F.log_softmax(x / temperature, -1)


def derived(x: Tensor, t: float) -> Tensor:
    return (x * (t * 2.0)).sin() * (t * 2.0 + 1.0) + F.leaky_relu(x, t)


def scaled(x: Tensor, n: int) -> Tensor:
    return (x * n).tanh() / n


def sliced(x: Tensor, n: int) -> Tensor:
    return x[:, :n].sum(0) * n


@pytest.mark.parametrize("function", [annealed, tempered, derived, scaled, sliced])
def test_one_program_for_all_numbers(function: Callable[..., Tensor], runtime: str) -> None:
    x = torch.randn(4, 9)
    compiled = hostjit.compile(function, runtime=runtime)
    numbers = (2, 3, 5, 4) if function in (scaled, sliced) else (0.5, 0.25, 1.5, 1.0)
    for number in numbers:
        found, expected = gradients(compiled, x, number), gradients(function, x, number)
        torch.testing.assert_close(found, expected)
    assert len(compiled.specializations) == 2


def test_powers_have_a_program_for_each_exponent(runtime: str) -> None:
    def focal(x: Tensor, gamma: float) -> Tensor:
        return (1 - x.sigmoid()) ** gamma * F.logsigmoid(x)

    x = torch.randn(9)
    compiled = hostjit.compile(focal, runtime=runtime)
    for gamma in (0.5, 2.0, 1.5, 3.0):
        torch.testing.assert_close(gradients(compiled, x, gamma), gradients(focal, x, gamma))


def test_calls_in_flight_keep_their_numbers(runtime: str) -> None:
    compiled = hostjit.compile(derived, runtime=runtime)
    leaves = [torch.randn(5, requires_grad=True) for _ in range(4)]
    results = [compiled(x, 0.25 * (n + 1)) for n, x in enumerate(leaves)]
    for n, (x, result) in enumerate(zip(leaves, results, strict=True)):
        expected = gradients(lambda x, t=0.25 * (n + 1): derived(x, t).sum(), x)
        (found,) = torch.autograd.grad(result.sum(), x)
        torch.manual_seed(1)
        torch.testing.assert_close(found * torch.randn(()), expected[1])


def test_second_derivatives(runtime: str) -> None:
    def function(x: Tensor, t: float, n: int) -> Tensor:
        return x**3 * t + x * n

    compiled = hostjit.compile(function, runtime=runtime)
    for t, n in ((0.5, 2), (0.25, 3), (1.5, 4)):
        x = torch.randn(5, requires_grad=True)
        (first,) = torch.autograd.grad(compiled(x, t, n).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        torch.testing.assert_close(second, 6 * x.detach() * t)
    assert len(compiled.specializations) == 2


def test_a_model_with_a_weight_in_its_loss(runtime: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x: Tensor, weight: float) -> Tensor:
            return self.layer(x).square().mean() + weight * self.layer.weight.abs().sum()

    torch.manual_seed(0)
    model = Model()
    compiled = hostjit.compile(model, runtime=runtime)
    for step in range(5):
        x, weight = torch.randn(4, 6), 0.9**step
        expected = torch.autograd.grad(model(x, weight), [*model.parameters()])
        found = torch.autograd.grad(compiled(x, weight), [*model.parameters()])
        torch.testing.assert_close(found, expected)
    assert len(compiled.specializations) == 2
