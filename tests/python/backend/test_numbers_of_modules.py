# SPDX-License-Identifier: Apache-2.0
"""Ints in attributes of modules that vary from call to call, through torch.compile."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import hostjit  # noqa: F401  # registers the backend


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = nn.Linear(4, 4), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        y: Tensor = self.layer(x) * self.calls
        return y


class Interrupted(Counter):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        torch._dynamo.graph_break()
        return y + self.calls


class Layer(nn.Module):
    def __init__(self, index: int) -> None:
        super().__init__()
        self.layer, self.index = nn.Linear(4, 4), index

    def forward(self, x: Tensor, kept: list[Tensor]) -> Tensor:
        torch._dynamo.graph_break()
        y: Tensor = self.layer(x) + kept[self.index] * (self.index + 1)
        return y


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(index) for index in range(5))

    def forward(self, x: Tensor) -> Tensor:
        kept = [x * number for number in range(5)]
        for layer in self.layers:
            x = layer(x, kept)
        return x


@pytest.fixture(autouse=True)
def no_graphs() -> None:
    torch._dynamo.reset()
    counters.clear()


@pytest.mark.parametrize("kind", [Counter, Interrupted, Layers])
def test_numbers_that_vary(kind: Any) -> None:
    torch.manual_seed(0)
    module = kind()
    twin = copy.deepcopy(module)
    fast = torch.compile(module, backend="hostjit")
    with torch.no_grad():
        for _ in range(12):
            x = torch.randn(4)
            torch.testing.assert_close(fast(x), twin(x))
    if kind is not Layers:
        assert module.calls == twin.calls
        assert counters["stats"]["unique_graphs"] <= 6
