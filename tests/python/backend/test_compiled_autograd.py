# SPDX-License-Identifier: Apache-2.0
"""Backward passes that compiled autograd hands to the backend: inputs in a list."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo import compiled_autograd

pytestmark = pytest.mark.filterwarnings("error:hostjit. .* runs eagerly")


def compiled_backward(runtime: str, **arguments: Any) -> Any:
    options = {"runtime": runtime, "fallback": False}
    return compiled_autograd._enable(torch.compile(backend="hostjit", options=options, **arguments))


@pytest.mark.parametrize("dynamic", [None, True])
def test_gradients_are_added_up(dynamic: bool | None, runtime: str) -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    trained = copy.deepcopy(model)
    compiled = torch.compile(trained, backend="hostjit", options={"runtime": runtime})
    for rows in (3, 3, 5, 6):
        x = torch.randn(rows, 4)
        model(x).square().sum().backward()
        with compiled_backward(runtime, dynamic=dynamic):
            compiled(x).square().sum().backward()
    for ours, eager in zip(trained.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, eager.grad)


def test_hooks_and_eager_forwards(runtime: str) -> None:
    def train(x: Tensor) -> Tensor | None:
        x.register_hook(lambda gradient: gradient * 3)
        y = x.sin() * x
        y.register_hook(lambda gradient: gradient + 1)
        y.sum().backward()
        return x.grad

    x = torch.randn(3, requires_grad=True)
    expected = train(x.detach().clone().requires_grad_())
    with compiled_backward(runtime):
        torch.testing.assert_close(train(x), expected)


def test_a_step_of_which_dynamo_sees_the_backward(runtime: str) -> None:
    model, x = nn.Linear(4, 2), torch.randn(3, 4)
    trained = copy.deepcopy(model)

    def step(model: nn.Module) -> Tensor:
        loss = model(x).square().sum()
        loss.backward()
        return loss.detach()

    compiled = torch.compile(step, backend="hostjit", options={"runtime": runtime})
    with torch._dynamo.config.patch(compiled_autograd=True):
        for _ in range(3):
            torch.testing.assert_close(compiled(trained), step(model))
    torch.testing.assert_close(trained.weight.grad, model.weight.grad)


def test_later_calls_keep_nothing(runtime: str) -> None:
    for _ in range(2):
        x = torch.randn(3, requires_grad=True)
        with compiled_backward(runtime):
            saved = x * 2
            y = saved.sin().sum()
            kept = weakref.ref(saved)
            del saved
            y.backward()
        del y
        gc.collect()
    assert kept() is None
