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


class Stream(nn.Module):
    """A causal convolution whose results go to a ring."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.position = nn.Conv1d(6, 3, 3), 0
        self.register_buffer("ring", torch.zeros(1, 3, 64))
        self.register_buffer("before", torch.zeros(1, 6, 2))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.before, x], -1)
        self.before = x[..., -2:].detach()
        y = self.conv(x)
        count, size = y.shape[-1], self.ring.shape[-1]
        end = self.position + count
        if end <= size:
            self.ring[..., self.position : end] = y
        else:
            rest = size - self.position
            self.ring[..., self.position :] = y[..., :rest]
            self.ring[..., : count - rest] = y[..., rest:]
        self.position = end % size
        result: Tensor = self.ring.mean(-1)
        return result


@torch.no_grad()
def test_a_position_that_follows_from_sizes() -> None:
    """Dynamo hands it to the graph beside the size that it is made of."""
    torch.manual_seed(0)
    eager = Stream()
    model = copy.deepcopy(eager)
    fast = torch.compile(model, backend="hostjit")
    for call in range(40):
        x = torch.randn(1, 6, (4, 4, 5, 4, 7, 4, 3, 4)[call % 8])
        torch.testing.assert_close(fast(x), eager(x))
        assert model.position == eager.position
        torch.testing.assert_close(model.ring, eager.ring)
