# SPDX-License-Identifier: Apache-2.0
"""Objects that the compiled code makes itself, of classes whose methods change afterwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*runs (in parts|eagerly)")

Function = Callable[[Tensor], Tensor]


@dataclasses.dataclass
class Config:
    gain: float = 2.0


class Base:
    def __init__(self, gain: float = 2.0, *, other: float = 3.0) -> None:
        self.gain, self.other = gain, other

    def __enter__(self, gain: float = 2.0) -> float:
        return gain

    def __exit__(self, *_: object) -> None: ...


class Derived(Base):
    def __init__(self) -> None:
        super().__init__()
        self.prepare()

    def prepare(self, held: float = 2.0) -> None:
        self.held = held

    def method(self, factor: float = 2.0) -> float:
        return self.gain * factor

    def __call__(self, factor: float = 2.0) -> float:
        return factor

    def __add__(self, value: int, factor: float = 2.0) -> float:
        return factor

    def __len__(self, length: int = 2) -> int:
        return length


class Made:
    def __new__(cls, gain: float = 2.0) -> Made:
        made = super().__new__(cls)
        made.gain = gain  # type: ignore[attr-defined]
        return made


class Empty:
    pass


def in_context(x: Tensor) -> Tensor:
    with Base() as gain:
        return x * gain


def length_of_an_empty_one(x: Tensor) -> Tensor:
    try:
        return x * len(Empty())  # type: ignore[arg-type]
    except TypeError:
        return x * 7


# The function, and whose attribute is changed: which, and to what.
CHANGES: dict[str, tuple[Function, Any, str, Any]] = {
    "dataclass": (lambda x: x * Config().gain, Config.__init__, "__defaults__", (7.0,)),
    "default": (lambda x: x * Base().gain, Base.__init__, "__defaults__", (7.0,)),
    "keyword": (lambda x: x * Base().other, Base.__init__, "__kwdefaults__", {"other": 7.0}),
    "of a base": (lambda x: x * Derived().gain, Base.__init__, "__defaults__", (7.0,)),
    "called by another": (lambda x: x * Derived().held, Derived.prepare, "__defaults__", (7.0,)),
    "method": (lambda x: x * Derived().method(), Derived.method, "__defaults__", (7.0,)),
    "call": (lambda x: x * Derived()(), Derived.__call__, "__defaults__", (7.0,)),
    "operator": (lambda x: x * (Derived() + 1), Derived.__add__, "__defaults__", (7.0,)),
    "length": (lambda x: x * len(Derived()), Derived.__len__, "__defaults__", (7,)),
    "new": (lambda x: x * Made().gain, Made.__new__, "__defaults__", (7.0,)),
    "context": (in_context, Base.__enter__, "__defaults__", (7.0,)),
    "code": (
        *(lambda x: x * Derived().method(), Derived.method, "__code__"),
        (lambda self, factor: 7.0).__code__,
    ),
    "replaced": (lambda x: x * Derived().method(), Derived, "method", lambda self: 7.0),
    "replaced special": (lambda x: x * Derived()(), Derived, "__call__", lambda self: 7.0),
    "replaced context": (in_context, Base, "__enter__", lambda self: 7.0),
    "gained": (length_of_an_empty_one, Empty, "__len__", lambda self: 2),
    "hidden": (
        lambda x: x * Derived().gain,
        Derived,
        "__init__",
        lambda self: Base.__init__(self, 7.0),
    ),
}


@pytest.mark.parametrize("compile", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("name", CHANGES)
def test_methods_change(name: str, compile: Callable[[Any], Any]) -> None:
    function, owner, attribute, new = CHANGES[name]
    fast = compile(function)
    x = torch.ones(2)
    before = function(x)
    with pytest.MonkeyPatch.context() as patch:
        for _ in range(2):
            for _ in range(2):
                assert torch.equal(fast(x), before)
            patch.setattr(owner, attribute, new, raising=False)
            assert not torch.equal(function(x), before)
            for _ in range(2):
                assert torch.equal(fast(x), function(x))
            patch.undo()
            assert torch.equal(fast(x), before)


def test_keyword_defaults_are_changed_in_place() -> None:
    fast = hostjit.compile(lambda x: x * Base().other)
    assert fast(torch.ones(1)).item() == 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(Base.__init__.__kwdefaults__, "other", 7.0)
        assert fast(torch.ones(1)).item() == 7
    assert fast(torch.ones(1)).item() == 3
