# SPDX-License-Identifier: Apache-2.0
"""Files of functions that read numbers in tuples, objects and classes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hostjit


@dataclasses.dataclass
class Gains:
    kp: float
    kd: float = 0.5


class Controller(nn.Module):
    rate = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.gains: Any = (1.0, 2.0)
        self.options = Gains(1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gains[0] + self.gains[1] * self.options.kp


@torch.no_grad()
def test_numbers_in_structures_are_as_they_are(tmp_path: Path) -> None:
    model, x = Controller(), torch.randn(5)
    compiled = hostjit.compile(model)
    for value in (0.5, 0.25, 0.75, -1.5):
        model.gains, model.options = (value, 2.0), Gains(value + 1)
        compiled(x)
    hostjit.save(compiled, tmp_path / "controller")
    torch.testing.assert_close(hostjit.load(tmp_path / "controller")(x), model(x))


@torch.no_grad()
def test_numbers_in_arguments(tmp_path: Path) -> None:
    x = torch.randn(5)
    compiled = hostjit.compile(lambda x, gains: x * gains.kp)
    for value in (0.5, 0.25, 0.75):
        compiled(x, Gains(value))
    hostjit.save(compiled, tmp_path / "arguments")
    loaded = hostjit.load(tmp_path / "arguments", classes=[Gains])
    torch.testing.assert_close(loaded(x, Gains(3.0)), x * 3)


@torch.no_grad()
def test_what_no_file_can_hold(tmp_path: Path) -> None:
    x = torch.randn(5)
    by_class = hostjit.compile(lambda x: x * Controller.rate)
    for value in (0.5, 0.25, 0.75):
        Controller.rate = value
        by_class(x)
    with pytest.raises(hostjit.Error, match="it reads a number of a type, 'rate'"):
        hostjit.save(by_class, tmp_path / "class")
