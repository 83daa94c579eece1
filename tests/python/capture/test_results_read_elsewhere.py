# SPDX-License-Identifier: Apache-2.0
"""What a call returns as it found it, outside of its arguments, is that of the call."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import hostjit

current: Any = None


def follow(function: Callable[..., Any], change: Callable[[Any], None], values: list[Any]) -> None:
    compiled = hostjit.compile(function, fallback=False)
    x = torch.randn(3)
    with torch.no_grad():
        for value in values:
            change(value)
            found, expected = compiled(x), function(x)
            torch.testing.assert_close(found[0], expected[0])
            assert type(found[1]) is type(expected[1])
            assert found[1] is expected[1] or repr(found[1]) == repr(expected[1])


OTHERS = {
    "numbers": [0.1, 0.2, -0.0, 0.0, 5, True],
    "texts": ["a", "b", None],
    "objects": [types.SimpleNamespace(v=1), types.SimpleNamespace(v=1), nn.ReLU(), nn.ReLU()],
    "tensors": [torch.ones(2), torch.ones(2), torch.zeros(3)],
    "lists": [[1, 2.0], [1, 3.0], (1, 3.0)],
}


@pytest.mark.parametrize("kind", OTHERS)
def test_an_attribute(kind: str) -> None:
    holder = types.SimpleNamespace(v=None)
    follow(lambda x: (x * 2, holder.v), lambda value: setattr(holder, "v", value), OTHERS[kind])


@pytest.mark.parametrize("kind", OTHERS)
def test_an_attribute_of_a_module(kind: str) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x * 2, self.__dict__.get("v", None)

    class Other(Model):
        def forward(self, x: torch.Tensor) -> Any:
            return x * 2, self.v

    for model in (Model(), Other()):
        follow(model, lambda value, model=model: vars(model).update(v=value), OTHERS[kind])


@pytest.mark.parametrize("kind", OTHERS)
def test_a_global(kind: str) -> None:
    def change(value: Any) -> None:
        global current
        current = value

    follow(lambda x: (x * 2, current), change, OTHERS[kind])


@pytest.mark.parametrize("kind", OTHERS)
def test_in_a_container(kind: str) -> None:
    holder = types.SimpleNamespace(v=None)

    def change(value: Any) -> None:
        holder.v = value

    compiled = hostjit.compile(lambda x: {"x": x * 2, "rest": [holder.v]}, fallback=False)
    x = torch.randn(3)
    for value in OTHERS[kind]:
        change(value)
        found = compiled(x)["rest"][0]
        assert found is value or repr(found) == repr(value)


def test_negative_zero_outside_of_the_arguments() -> None:
    holder = types.SimpleNamespace(v=0.0)
    compiled = hostjit.compile(lambda x: x / holder.v, dynamic=False, fallback=False)
    x = torch.ones(3)
    for value in (0.0, -0.0, 0.0, -0.0):
        holder.v = value
        torch.testing.assert_close(compiled(x), x / value)
