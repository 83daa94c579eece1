# SPDX-License-Identifier: Apache-2.0
"""Training on tensors made in inference mode, observations that an actor has collected say."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit


class Memory(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.state = nn.Linear(3, 3), torch.zeros(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.state = 0.5 * self.state + self.layer(2 * x)
        return self.state


def of_a_clone(layer: nn.Module, x: Tensor) -> Any:
    return layer(x.clone())


def of_what_is_computed(layer: nn.Module, x: Tensor) -> Any:
    return layer(2 * x) * x.sum(1, keepdim=True).sin()


def of_a_view(layer: nn.Module, x: Tensor) -> Any:
    return layer(x[:2] + 1) + x[0]


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("function", [of_a_clone, of_what_is_computed, of_a_view])
def test_gradients_of_observations(function: Callable[..., Any], runtime: str) -> None:
    layer = nn.Linear(3, 3)
    layers = [layer, copy.deepcopy(layer)]
    fast = hostjit.compile(function, runtime=runtime)
    for seed in range(3):
        with torch.inference_mode():
            x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
        for run, each in ((function, layers[0]), (fast, layers[1])):
            run(each, x).square().sum().backward()
        torch.testing.assert_close(layers[1].weight.grad, layers[0].weight.grad)
        torch.testing.assert_close(layers[1].bias.grad, layers[0].bias.grad)


def test_what_is_kept_is_of_the_call() -> None:
    layer, x = nn.Linear(3, 1), torch.ones(2, 3)
    fast = hostjit.compile(lambda x: layer(2 * x).sum())
    with torch.inference_mode():
        x = torch.ones(2, 3)
    loss = fast(x)
    with torch.inference_mode():
        x.mul_(5)
    loss.backward()
    torch.testing.assert_close(layer.weight.grad, torch.full((1, 3), 4.0))


def test_state_that_an_evaluation_leaves() -> None:
    torch.manual_seed(0)
    eager = Memory()
    model = copy.deepcopy(eager)
    fast = hostjit.compile(model)
    for _ in range(2):
        x = torch.randn(4, 3)
        with torch.inference_mode():
            torch.testing.assert_close(fast(x), eager(x))
        for owner, run in ((eager, eager), (model, fast)):
            owner.zero_grad()
            run(x).square().sum().backward()
            owner.state = owner.state.detach()
        torch.testing.assert_close(model.layer.weight.grad, eager.layer.weight.grad)
