# SPDX-License-Identifier: Apache-2.0
"""Decorated functions that break off: the decorator is Python's, what it wraps is compiled."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit
from hostjit.parts.decorated import compiled_inside

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

W = torch.linspace(-0.5, 0.5, 9).view(3, 3)
CALLS: list[str] = []


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        CALLS.append(f"call {len(args)}")
        return function(*args, **kwargs)

    return wrapper


def named(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        CALLS.append(function.__name__)  # which what is called in its place need not have
        return function(*args, **kwargs)

    return wrapper


class Policy:
    def __init__(self) -> None:
        self.window: list[Tensor] = []

    @torch.no_grad()
    def act(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        self.window.append(x)
        if len(self.window) > 3:
            self.window.pop(0)
        y = torch.stack(self.window) @ W
        y = torch.tanh(y) * scale
        return (y * y).sum(0) + y.mean(0)

    @logged
    @torch.inference_mode()
    def observe(self, x: Tensor) -> Tensor:
        self.window.append(x)
        y = torch.stack(self.window[-2:]) @ W
        y = torch.tanh(y)
        return (y * y).sum(0) + y.mean(0)


@logged
def decide(x: Tensor) -> Tensor:
    y = torch.tanh(x @ W)
    print(end="")
    return (y * 2).relu() + y.exp()


@pytest.mark.parametrize("name", ["act", "observe"])
def test_methods(name: str) -> None:
    results = []
    for make in (hostjit.compile, lambda x: x):
        CALLS.clear()
        policy = Policy()
        call = make(getattr(policy, name))
        found = [call(torch.full((3,), i / 8)) for i in range(20)]
        modes = [(each.requires_grad, each.is_inference()) for each in found]
        results.append(((found, policy.window), (modes, [*CALLS])))
    (found, logs), (expected, expected_logs) = results
    assert_close(found, expected)
    assert logs == expected_logs


def test_what_is_inside_is_a_program() -> None:
    policy = Policy()
    call = hostjit.compile(policy.act)
    for _ in range(20):
        call(torch.ones(3), scale=2.0)
    seen = set()

    def note(frame: types.FrameType, event: str, argument: Any) -> None:
        seen.add(getattr(argument, "__name__", "") if event == "c_call" else "")

    sys.setprofile(note)
    try:
        call(torch.ones(3), scale=2.0)
    finally:
        sys.setprofile(None)
    assert "program @Policy_act" in call.host_ir()
    assert "stack" in seen
    assert seen.isdisjoint({"tanh", "sum", "mean"})


def test_a_function() -> None:
    call = hostjit.compile(decide)
    CALLS.clear()
    for i in range(12):
        x = torch.full((3,), i / 8)
        assert_close(call(x), decide(x))
    assert CALLS == ["call 1"] * 24


def test_one_in_its_place() -> None:
    found = compiled_inside(decide, lambda function: lambda x: function(x) + 1)
    assert found is not None
    inside, x = found[0], torch.ones(3)
    assert_close(inside(x), decide(x) + 1)
    cell = decide.__closure__[0]  # type: ignore[attr-defined]
    wrapped = cell.cell_contents
    try:
        cell.cell_contents = lambda x: x * 3
        assert_close(inside(x), x * 3)
    finally:
        cell.cell_contents = wrapped


def test_methods_of_other_objects() -> None:
    policy, other = Policy(), Policy()
    found = compiled_inside(policy.act, lambda method: lambda *args, **kwargs: "compiled")
    assert found is not None
    inside = found[0]
    assert isinstance(inside, types.MethodType)
    assert inside(torch.ones(3)) == "compiled"
    assert_close(inside.__func__(other, torch.ones(3)), Policy().act(torch.ones(3)))
    assert len(other.window) == 1


@pytest.mark.parametrize(
    "function",
    [Policy.__init__, named(decide), functools.partial(decide), print],
    ids=["plain", "asked for its name", "partial", "builtin"],
)
def test_others(function: Callable[..., Any]) -> None:
    assert compiled_inside(function, lambda found: found) is None
