# SPDX-License-Identifier: Apache-2.0
"""Dicts that each call changes, in parts: what else is read of them is compared at each call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


class Scaler:
    def __init__(self) -> None:
        self.settings: dict[str, Any] = {"mode": "mul", "by": {"first": 2.0}, "last": None}

    def step(self, x: Tensor, count: int) -> Tensor:
        self.settings["last"] = str(count)
        total = x
        for name in self.settings["by"]:
            total = total * 2 if name == "first" else total + 1
        if self.settings["mode"] == "add":
            total = total + self.settings["by"]["first"]
        print(end="")
        return total + len(self.settings)


def test_what_is_read_is_compared() -> None:
    fast, eager = Scaler(), Scaler()
    compiled = hostjit.compile(fast.step)
    x = torch.randn(5)
    for count in range(30):
        for scaler in (fast, eager):
            if count == 12:
                scaler.settings["mode"] = "add"
            if count == 16:
                scaler.settings["by"]["second"] = 1.0
            if count == 20:
                scaler.settings["by"]["first"] = 3.0
            if count == 22:
                scaler.settings["more"] = 1
            if count == 24:
                del scaler.settings["by"]["first"]
                scaler.settings["mode"] = "mul"
            if count == 27:
                scaler.settings["by"] = {"first": 1.0}
        assert_close(compiled(x, count), eager.step(x, count))
        assert fast.settings == eager.settings
