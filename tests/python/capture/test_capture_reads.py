# SPDX-License-Identifier: Apache-2.0
"""What a program read through properties, enumerations and tensors is watched, not read again."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from watch_checker import Watched

import hostjit


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
