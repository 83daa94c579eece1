# SPDX-License-Identifier: Apache-2.0
"""What a program read through properties, enumerations and tensors is watched, not read again."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from watch_checker import Watched

import hostjit
from hostjit.capturing.guards.full_check import GuardCheck


class Identity(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Step(enum.Enum):
    SMALL = 1.0
    LARGE = 5.0


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.gain = 2.0
        self.step = Step.SMALL

    @property
    def scale(self) -> float:
        return self.gain * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.scale + self.step.value
        if hasattr(self, "shift"):
            x = x + 1
        return x + 1 if self.weight.dtype == torch.float32 else x


SCALED_CHANGES: dict[str, Callable[[Any], object]] = {
    "what a getter reads": lambda net: setattr(net, "gain", 5.0),
    "member of an enumeration": lambda net: setattr(net, "step", Step.LARGE),
    "attribute that was asked for": lambda net: setattr(net, "shift", 1.0),
    "class of a module with a property": lambda net: setattr(net, "__class__", Identity),
    # The weight is read for its dtype only: it is no input of the graph.
    "dtype of a tensor that is no input": lambda net: setattr(
        net.weight, "data", net.weight.data.double()
    ),
}


@pytest.mark.parametrize("name", SCALED_CHANGES)
def test_what_a_property_and_a_tensor_say_is_watched(name: str) -> None:
    net = Scaled()
    watched = Watched(net, torch.randn(3))
    assert watched.is_right()
    SCALED_CHANGES[name](net)
    watched.assert_invalid()


def test_an_attribute_that_a_property_hides_changes_nothing() -> None:
    net = Scaled()
    watched = Watched(net, torch.randn(3))
    net.__dict__["scale"] = 7.0
    if watched.revalidate():
        watched.assert_still_valid()
    assert Watched(net, torch.randn(3)).is_right()


GRADIENTS: dict[str, Callable[[nn.Module], Any]] = {
    "of a parameter": lambda net: net.weight.grad * 2,
    "of all parameters": lambda net: sum(p.grad.sum() for p in net.parameters()),
    "absent or not": lambda net: net.bias * (2 if net.weight.grad is None else 3),
    "clipped": lambda net: nn.utils.clip_grad_norm_(net.parameters(), 0.5),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient_that_is_replaced_is_read_anew(name: str) -> None:
    net = nn.Linear(3, 2)
    read = GRADIENTS[name]
    compiled = hostjit.compile(lambda: read(net))
    for factor in (1.0, 2.0, 3.0, None):
        if factor is None and name != "absent or not":
            continue
        found = []
        for run in (lambda: read(net), compiled):
            for parameter in net.parameters():
                has_one = factor is not None
                parameter.grad = torch.full_like(parameter, factor) if has_one else None
            found.append([run(), *(p.grad for p in net.parameters())])
        torch.testing.assert_close(found[1], found[0])


def test_gradients_are_inputs_that_c_code_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Linear(3, 2)
    compiled = hostjit.compile(lambda: nn.utils.clip_grad_norm_(net.parameters(), 0.5))
    for step in range(3):
        if step == 1:  # what a call needs beyond its C code starts here
            monkeypatch.setattr(GuardCheck, "check", None)
            monkeypatch.setattr(GuardCheck, "holds_now", None)
        for parameter in net.parameters():
            parameter.grad = torch.full_like(parameter, step)
        expected = math.sqrt(8) * step
        torch.testing.assert_close(compiled(), torch.tensor(expected))
        found = torch.stack([p.grad.norm() for p in net.parameters() if p.grad is not None])
        torch.testing.assert_close(found.norm(), torch.tensor(min(expected, 0.5)))
    assert len(compiled.specializations) == 1


OTHER_GRADIENTS: dict[str, Callable[[nn.Linear, torch.Tensor], None]] = {
    "one of the arguments": lambda net, x: setattr(net.weight, "grad", x),
    "that of another": lambda net, x: setattr(net.weight, "grad", net.twin.grad),
    "of another size": lambda net, x: setattr(net, "weight", resized(net.weight)),
    "one that needs a gradient": lambda net, x: setattr(
        net.weight, "grad", torch.ones(2, 3, requires_grad=True)
    ),
    "none": lambda net, x: setattr(net.weight, "grad", None),
}


def resized(parameter: nn.Parameter) -> nn.Parameter:
    larger = nn.Parameter(torch.ones(4, *parameter.shape[1:]))
    larger.grad = torch.ones_like(larger)
    return larger


@pytest.mark.parametrize("name", OTHER_GRADIENTS)
def test_what_a_gradient_is_is_compared(name: str) -> None:
    net = nn.Linear(3, 2)
    net.twin = nn.Parameter(torch.ones(2, 3))

    def describe(x: torch.Tensor) -> torch.Tensor:
        gradient = net.weight.grad
        if gradient is None:
            return x * 2
        factor = 3 if gradient is x else 5 if gradient is net.twin.grad else 7
        return gradient.sum() * factor + len(gradient) + gradient.requires_grad

    compiled = hostjit.compile(describe)
    net.weight.grad, net.twin.grad = torch.ones(2, 3), torch.ones(2, 3)
    x = torch.ones(2, 3)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), describe(x))
    OTHER_GRADIENTS[name](net, x)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), describe(x))
