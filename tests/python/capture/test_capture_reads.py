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
