# SPDX-License-Identifier: Apache-2.0
"""Modules that keep what they computed: one program for all calls, and eager's results."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import hostjit


class Recurrent(nn.Module):
    """Keeps its state in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)
        self.state = torch.zeros(2, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state = torch.tanh(self.layer(x) + self.state)
        return self.state


class RecurrentPair(Recurrent):
    """Keeps two tensors in a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = (torch.zeros(2, 4), torch.ones(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, c = self.pair
        c = torch.sigmoid(self.layer(x)) * c + h
        self.pair = (torch.tanh(c), c)
        return self.pair[0]


class BufferOfMeans(nn.Module):
    """Replaces a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return x - self.mean


class Layers(nn.Module):
    """Keeps a state for each layer in a list."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.states = [torch.zeros(2, 4) for _ in range(3)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            x = torch.tanh(layer(x) + self.states[i])
            self.states[i] = x
        return x


class Sums:
    """Keeps its state in a dict."""

    def __init__(self) -> None:
        self.values: dict[str, torch.Tensor] = {"sum": torch.zeros(2, 4)}

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.values["sum"] = self.values["sum"] + x
        return self.values["sum"] * 2


KINDS = [Recurrent, RecurrentPair, BufferOfMeans, Layers, Sums]


def inputs(count: int) -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(2, 4) for _ in range(count)]


@pytest.mark.parametrize("make", KINDS)
def test_one_program_follows_the_state(make: Any) -> None:
    model, expected = make(), make()
    fast = hostjit.compile(model)
    with torch.no_grad():
        for x in inputs(3):
            assert_close(fast(x), expected(x))
        compiled = len(fast.specializations)
        owner = fast.owner
        with mock.patch.object(owner, "specialize", wraps=owner.specialize) as specialize:
            for x in inputs(20):
                assert_close(fast(x), expected(x))
    assert len(fast.specializations) == compiled
    assert specialize.call_count == 0


@pytest.mark.parametrize("make", [Recurrent, RecurrentPair])
def test_gradients_through_the_state(make: Any) -> None:
    model, expected = make(), make()
    fast = hostjit.compile(model)
    for round_ in range(3):
        for part in (model, expected):
            part.state = torch.zeros(2, 4)
            part.pair = (torch.zeros(2, 4), torch.ones(2, 4))
            part.zero_grad()
        found = sum(fast(x).sum() for x in inputs(4 + round_))
        wanted = sum(expected(x).sum() for x in inputs(4 + round_))
        found.backward()
        wanted.backward()
        assert_close(found, wanted)
        assert_close(model.layer.weight.grad, expected.layer.weight.grad)


def test_a_state_that_others_set() -> None:
    model, expected = Recurrent(), Recurrent()
    fast = hostjit.compile(model)
    x = torch.ones(2, 4)
    states = [
        torch.ones(2, 4),
        torch.ones(2, 4, dtype=torch.float64),
        torch.ones(4, 2).t(),
        torch.ones(1, 4),
        torch.ones(2, 4, requires_grad=True),
        x,
        torch.zeros(2, 4),
    ]
    with torch.no_grad():
        for state in states:
            model.state = expected.state = state
            for _ in range(2):
                found, wanted = fast(x), expected(x)
                assert found.dtype == wanted.dtype and found.stride() == wanted.stride()
                assert_close(found, wanted)


def test_a_state_that_becomes_another_one_of_the_module() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.zeros(3), torch.ones(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result = x + self.a * 2 if self.a is self.b else x + self.a
            return result + self.b

    model = Two()
    fast = hostjit.compile(model)
    x, y = torch.full((3,), 5.0), torch.full((3,), 7.0)
    with torch.no_grad():
        for a, b in ((x, y), (y, x), (x, x), (y, y), (x, y), (torch.zeros(3), y)):
            model.a, model.b = a, b
            for argument in (torch.ones(3), x, y):
                assert_close(fast(argument), model(argument))


def test_a_state_of_which_more_is_read() -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.state = torch.zeros(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale = 2.0 if hasattr(self.state, "note") else 3.0
            return x * scale + self.state

    model = Reader()
    fast = hostjit.compile(model)
    noted = torch.ones(3)
    noted.note = True  # type: ignore[attr-defined]
    x = torch.ones(3)
    with torch.no_grad():
        for state in (torch.zeros(3), torch.ones(3), noted, torch.ones(3), noted):
            model.state = state
            assert_close(fast(x), model(x))
