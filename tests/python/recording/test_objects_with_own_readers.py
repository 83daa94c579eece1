# SPDX-License-Identifier: Apache-2.0
"""Recording looks at what a call can reach, and calls nothing that its classes define."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest
import torch
from torch import Tensor

import hostjit
from hostjit.recording.seen_code import globals_of

MAKERS = [
    hostjit.capture,
    # Dynamo asks them, and what they raise makes the function run eagerly.
    pytest.param(hostjit.compile, marks=pytest.mark.filterwarnings("ignore:hostjit")),
]


def never(*args: Any, **kwargs: Any) -> NoReturn:
    raise KeyError("called by nobody but its user")


READERS = ("__iter__", "__len__", "__getitem__", "__contains__", "keys", "values", "items", "get")


def lazy(kind: type) -> type:
    """A class of containers that load what they say they have when somebody asks."""
    return type(f"Lazy{kind.__name__}", (kind,), dict.fromkeys(READERS, never))


def filled(kind: type) -> Any:
    items: Any = {"a": 1, "b": 2} if issubclass(kind, dict) else [1, 2]
    return lazy(kind)(items)


class WithAttributes:
    """Its attributes are looked up in a dict, by code that raises another error."""

    def __init__(self, scale: float) -> None:
        self.known = {"scale": scale}

    def __getattr__(self, name: str) -> Any:
        return self.known[name]


class WithSlots:
    """The same, without a `__dict__`."""

    __slots__ = ("known",)

    def __init__(self, scale: float) -> None:
        self.known = {"scale": scale}

    def __getattr__(self, name: str) -> Any:
        return self.known[name]


@pytest.mark.parametrize(
    "kind", [dict, collections.OrderedDict, list, tuple, set, frozenset, collections.deque]
)
@pytest.mark.parametrize("make", MAKERS)
def test_containers_are_not_asked(make: Callable[..., Any], kind: type) -> None:
    container = filled(kind)
    container.scale = 2.0

    def step(x: Tensor) -> Tensor:
        return x * container.scale + 1

    fast = make(step)
    for scale in (2.0, 3.0, 4.0):
        container.scale = scale
        for _ in range(3):
            x = torch.randn(4)
            assert torch.equal(fast(x), step(x))


@pytest.mark.parametrize("kind", [WithAttributes, WithSlots])
@pytest.mark.parametrize("make", MAKERS)
def test_attributes_are_not_asked_for(make: Callable[..., Any], kind: Any) -> None:
    settings = kind(2.0)

    def step(x: Tensor) -> Tensor:
        return x * settings.scale + 1

    fast = make(step)
    for scale in (2.0, 3.0, 4.0):
        settings.known["scale"] = scale
        for _ in range(3):
            x = torch.randn(4)
            assert torch.equal(fast(x), step(x))


class Tables(dict[str, Any]):
    """Tables that are read when somebody asks, which a recording must not do."""

    loaded = 0

    def items(self) -> Any:
        Tables.loaded += 1
        return super().items()

    def __iter__(self) -> Iterator[str]:
        Tables.loaded += 1
        return super().__iter__()


def test_a_recording_loads_nothing() -> None:
    tables = Tables(gain=2.0)

    def step(x: Tensor) -> Tensor:
        return x * tables["gain"]

    fast = hostjit.capture(step)
    x = torch.randn(4)
    for gain in (2.0, 3.0):
        dict.__setitem__(tables, "gain", gain)
        for _ in range(4):
            assert torch.equal(fast(x), x * gain)
    assert Tables.loaded == 0


def test_what_pytest_adds_to_an_assertion_is_no_state() -> None:
    def step(x: Tensor) -> Tensor:
        assert x.dim() == 1
        return x * 2

    assert {name for name in step.__code__.co_names if name.startswith("@")}
    assert not {name for name in globals_of(step.__code__) if name.startswith("@")}
