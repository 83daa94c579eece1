# SPDX-License-Identifier: Apache-2.0
"""Members of enumerations, and numbers of users' classes, whose attributes change."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*runs (in parts|eagerly)")

Function = Callable[[Tensor], Tensor]


class Color(enum.Enum):
    RED = 2.0
    BLUE = 3.0

    def __init__(self, value: float) -> None:
        self.gain = value * 10

    @property
    def twice(self) -> float:
        return self.value * 2


class Level(enum.IntEnum):
    LOW = 2
    HIGH = 3


class Word(enum.StrEnum):
    SHORT = "ab"


class Options(enum.Flag):
    FIRST = 1
    SECOND = 2


held = types.SimpleNamespace(color=Color.RED, colors=[Color.RED])

FUNCTIONS: dict[str, tuple[Function, Any, str, Any]] = {
    "value": (lambda x: x * Color.RED.value, Color.RED, "_value_", 7.0),
    "own value": (lambda x: x * Color.RED._value_, Color.RED, "_value_", 7.0),
    "name": (lambda x: x * len(Color.RED.name), Color.RED, "_name_", "longer"),
    "attribute": (lambda x: x * Color.RED.gain, Color.RED, "gain", 7.0),
    "property": (lambda x: x * Color.RED.twice, Color.RED, "_value_", 7.0),
    "in an attribute": (lambda x: x * held.color.value, Color.RED, "_value_", 7.0),
    "in a list": (lambda x: x * held.colors[0].value, Color.RED, "_value_", 7.0),
    "by value": (lambda x: x * Color(2.0).value, Color.RED, "_value_", 7.0),
    "by name": (lambda x: x * Color["RED"].value, Color.RED, "_value_", 7.0),
    "all": (lambda x: x * sum(color.value for color in Color), Color.RED, "_value_", 7.0),
    "int": (lambda x: x * Level.LOW.value + Level.HIGH, Level.LOW, "_value_", 7),
    "text": (lambda x: x * len(Word.SHORT.value), Word.SHORT, "_value_", "longer"),
    "formatted": (lambda x: x * len(f"{Color.RED.name}!"), Color.RED, "_name_", "longer"),
    "flag": (lambda x: x * Options.FIRST.value, Options.FIRST, "_value_", 7),
}


@pytest.mark.parametrize("compile", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_members_change(name: str, compile: Callable[[Any], Any]) -> None:
    function, member, attribute, new = FUNCTIONS[name]
    fast = compile(function)
    x = torch.ones(2)
    before = function(x)
    with pytest.MonkeyPatch.context() as patch:
        for _ in range(2):
            assert torch.equal(fast(x), before)
            patch.setattr(member, attribute, new)
            assert not torch.equal(function(x), before)
            for _ in range(2):
                assert torch.equal(fast(x), function(x))
            patch.undo()
            assert torch.equal(fast(x), before)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_members_are_compiled_with(name: str) -> None:
    if name in ("by value", "all") and torch.__version__ < (2, 12):
        pytest.skip("Dynamo does not follow what the class of an enumeration does")
    function, *_ = FUNCTIONS[name]
    fast = hostjit.compile(function, fallback=False)
    assert torch.equal(fast(torch.ones(2)), function(torch.ones(2)))


def test_members_among_the_arguments_change() -> None:
    fast = hostjit.compile(lambda x, color: x * color.value)
    with pytest.MonkeyPatch.context() as patch:
        for value in (2.0, 7.0, 2.0):
            patch.setattr(Color.RED, "_value_", value)
            for _ in range(3):
                assert fast(torch.ones(1), Color.RED).item() == value


class Number(float):
    gain = 2


class Text(str):
    gain = 2


class Row(tuple[int, ...]):
    gain = 2


@pytest.mark.parametrize("compile", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("value", [Number(2.0), Text("ab"), Row((1, 2))])
def test_attributes_of_numbers_texts_and_tuples(value: Any, compile: Callable[[Any], Any]) -> None:
    def changes() -> Iterator[Any]:
        yield
        value.gain = 3
        yield
        value.gain = 4
        yield
        del value.gain
        yield

    fast = compile(lambda x: x * value.gain)
    for _ in changes():
        for _ in range(2):
            assert fast(torch.ones(1)).item() == value.gain
