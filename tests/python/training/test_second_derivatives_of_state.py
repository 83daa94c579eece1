# SPDX-License-Identifier: Apache-2.0
"""Second derivatives of what changes tensors take what these were before the call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, spectral_norm
from torch.testing import assert_close
from ways_to_differentiate import COMPILERS, in_each_way, leaf

import hostjit

# Of float32, in a tensor that is more than a call may copy.
MANY = 1 << 17


def decayed(x: Tensor, state: Tensor, count: Tensor) -> Tensor:
    state.mul_(0.5).add_(x.detach().mean())
    count += 1
    return (x.sin() * state.clone() + x / count.clone()).square().sum()


def before_and_after(x: Tensor, state: Tensor, count: Tensor) -> Tensor:
    before = state.clone() * x.exp()
    state.copy_(x.detach() + count)
    count.zero_()
    return (before * state.clone() * x).sum()


FUNCTIONS = [decayed, before_and_after]


def derivatives(run: Callable[..., Tensor], x: Tensor, *state: Tensor) -> list[Tensor]:
    """Return the first to the third, with the state changed in between."""
    y = run(x, *state)
    found = [y]
    for _ in range(3):
        for tensor in state:
            tensor += 3
        (y,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        found.append(y)
    return [*found, *state]


@in_each_way
@pytest.mark.parametrize("function", FUNCTIONS)
def test_state_that_is_written(function: Callable[..., Tensor], way: str) -> None:
    fast = COMPILERS[way](function)
    for _ in range(4):
        x, state, count = leaf(3), torch.rand(3, dtype=torch.float64), torch.tensor(2.0)
        twins = state.clone(), count.clone()
        assert_close(derivatives(fast, x, state, count), derivatives(function, x, *twins))


@in_each_way
def test_two_calls_before_their_gradients(way: str) -> None:
    def both(run: Callable[..., Tensor]) -> list[Tensor]:
        torch.manual_seed(0)
        x, state, count = leaf(3), torch.ones(3, dtype=torch.float64), torch.zeros(())
        first, second = run(x, state, count), run(x, state, count)
        (gradient,) = torch.autograd.grad(first * second, x, create_graph=True)
        (gradient,) = torch.autograd.grad(gradient.prod(), x)
        return [gradient, state, count]

    fast = COMPILERS[way](decayed)
    for _ in range(4):
        assert_close(both(fast), both(decayed))


def critic(norm: Callable[[nn.Module], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(norm(nn.Linear(4, 6)), nn.Tanh(), norm(nn.Linear(6, 6)), nn.Linear(6, 1))
    return model.double()


def penalty(model: Any, x: Tensor) -> Tensor:
    x = x.requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return (gradient.norm(dim=1) - 1).square().mean() + model(x).mean()


@in_each_way
@pytest.mark.parametrize("norm", [spectral_norm, parametrizations.spectral_norm])
def test_gradient_penalty_of_spectral_norms(norm: Any, way: str) -> None:
    def train(make: Callable[[Any], Any]) -> list[Any]:
        model = critic(norm)
        run = make(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = penalty(run, torch.randn(3, 4, dtype=torch.float64))
            loss.backward()
            optimizer.step()
            found.append(loss.detach())
        return [*found, copy.deepcopy(model.state_dict())]

    assert_close(train(COMPILERS[way]), train(lambda model: model))


@pytest.mark.filterwarnings("ignore:hostjit. .* runs in parts")
@pytest.mark.parametrize("way", ["compile", "backend"])
def test_gradient_penalty_in_one_step(way: str) -> None:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = penalty(model, x)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def train(run: Callable[..., Tensor]) -> list[Any]:
        model = critic(spectral_norm)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        found = [run(model, optimizer, torch.randn(3, 4, dtype=torch.float64)) for _ in range(12)]
        return [found, dict(model.state_dict())]

    assert_close(train(COMPILERS[way](step)), train(step))


def test_any_size() -> None:
    fast = hostjit.compile(decayed, dynamic=True)
    for size in (3, 4, 7):
        x, state, count = leaf(size), torch.rand(1, dtype=torch.float64), torch.tensor(2.0)
        twins = state.clone(), count.clone()
        assert_close(derivatives(fast, x, state, count), derivatives(decayed, x, *twins))


@pytest.mark.parametrize("way", ["compile", "evaluator", "backend"])
def test_large_state_is_not_copied(way: str) -> None:
    fast = COMPILERS[way](decayed)
    x, state = torch.randn(MANY, requires_grad=True), torch.rand(MANY)
    found = fast(x, state, torch.ones(()))
    (gradient,) = torch.autograd.grad(found, x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"second derivatives of '.*' are not possible"):
        torch.autograd.grad(gradient.sum(), x)
