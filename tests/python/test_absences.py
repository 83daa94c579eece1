# SPDX-License-Identifier: Apache-2.0
"""Attributes and keys that compiled code asks for before they are there, and when they are gone."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*runs in parts")


class Plain:
    pass


def function() -> None: ...


HOLDERS: dict[str, Callable[[], Any]] = {
    "object": Plain,
    "class": lambda: type("Made", (), {}),
    "function": lambda: types.FunctionType(function.__code__, {}),
    "module": lambda: types.ModuleType("made"),
    "nn.Module": nn.Identity,
    "namespace": types.SimpleNamespace,
    "parameter": lambda: nn.Parameter(torch.ones(1)),
}


def asked(holder: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: x * (2 if hasattr(holder, "mark") else 1)


def read_or_one(holder: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: x * getattr(holder, "mark", 1)


def tried(holder: Any) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        try:
            return x * holder.mark
        except AttributeError:
            return x

    return function


@pytest.mark.parametrize("ask", [asked, read_or_one, tried])
@pytest.mark.parametrize("kind", HOLDERS)
def test_attributes_that_come_and_go(kind: str, ask: Callable[[Any], Any]) -> None:
    holder = HOLDERS[kind]()
    eager = ask(holder)
    fast = hostjit.compile(eager, fallback=False)
    x = torch.ones(1)
    for mark in (None, 5, 7, None, 5):
        if mark is not None:
            holder.mark = mark
        elif hasattr(holder, "mark"):
            del holder.mark
        for _ in range(2):
            assert fast(x).item() == eager(x).item()


def test_an_object_behind_a_key_with_a_dtype() -> None:
    settings = {("cpu", torch.float32): Plain()}

    def step(x: Tensor) -> Tensor:
        return x * getattr(settings[x.device.type, x.dtype], "scale", 2.0)

    fast = hostjit.compile(step, fallback=False)
    assert fast(torch.ones(1)).item() == 2
    settings["cpu", torch.float32].scale = 5.0  # type: ignore[attr-defined]
    assert fast(torch.ones(1)).item() == 5


def test_a_function_that_counts_its_calls() -> None:
    def step(x: Tensor) -> Tensor:
        step.calls = getattr(step, "calls", 0) + 1  # type: ignore[attr-defined]
        return x * step.calls  # type: ignore[attr-defined]

    fast = hostjit.compile(step)
    assert [fast(torch.ones(1)).item() for _ in range(4)] == [1, 2, 3, 4]


def test_a_function_beside_the_compiled_one() -> None:
    def helper(x: Tensor) -> Tensor:
        return x

    def step(x: Tensor) -> Tensor:
        if not hasattr(helper, "seen"):
            helper.seen = 1  # type: ignore[attr-defined]
            return helper(x)
        return helper(x) * 10

    fast = hostjit.compile(step)
    assert [fast(torch.ones(1)).item() for _ in range(3)] == [1, 10, 10]


@pytest.mark.parametrize("in_module", [True, False])
def test_keys_that_come_and_go(in_module: bool) -> None:
    model = nn.Module()
    kept: dict[str, Any] = {"other": 2}
    model.kept = kept

    def step(x: Tensor) -> Tensor:
        try:
            return x * (model.kept if in_module else kept)["key"]
        except KeyError:
            return x

    fast = hostjit.compile(step, fallback=False)
    x = torch.ones(1)
    for value in (None, 5, 7, None):
        if value is None:
            kept.pop("key", None)
        else:
            kept["key"] = value
        for _ in range(2):
            assert fast(x).item() == step(x).item()


def test_a_cache_in_a_dict() -> None:
    tables: dict[int, Tensor] = {}

    def step(x: Tensor) -> Tensor:
        try:
            table = tables[len(x)]
        except KeyError:
            table = tables[len(x)] = torch.rand(len(x))
        return x * table

    fast = hostjit.compile(step)
    for n in (2, 3, 2, 2, 3):
        assert torch.equal(fast(torch.ones(n)), tables[n])
    assert sorted(tables) == [2, 3]
