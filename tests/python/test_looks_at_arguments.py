# SPDX-License-Identifier: Apache-2.0
"""hostjit looks at arguments without running code of their classes."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*(runs (in parts|eagerly)|keeps meeting)")

ASKED: list[str] = []


class Logs(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        ASKED.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class AsksItself(torch.Tensor):
    """One without `DisableTorchFunctionSubclass`: it can be asked for nothing."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Key(enum.Enum):
    FIRST = 1
    SECOND = 2

    def __str__(self) -> str:
        return self.value  # type: ignore[return-value]

    def __repr__(self) -> str:
        raise RuntimeError("is shown")

    def __format__(self, spec: str) -> str:
        raise RuntimeError("is formatted")


def compute(x: Tensor) -> Tensor:
    return x * 2 + 1


def asks_for_overrides(x: Tensor) -> tuple[bool, bool]:
    unary = torch.overrides.has_torch_function_unary(x)
    return unary, torch.overrides.has_torch_function_variadic(x)


@pytest.mark.parametrize("function", [compute, asks_for_overrides])
def test_a_subclass_of_tensors_is_asked_as_by_eager(function: Callable[[Tensor], Any]) -> None:
    x = torch.ones(3).as_subclass(Logs)
    ASKED.clear()
    expected = function(x)
    by_eager = list(ASKED)
    fast = hostjit.compile(function)
    for _ in range(3):
        ASKED.clear()
        found = fast(x)
        assert by_eager == ASKED
        assert type(found) is type(expected)


def test_a_subclass_that_cannot_be_asked() -> None:
    fast = hostjit.compile(asks_for_overrides)
    x = AsksItself()
    assert fast(x) == asks_for_overrides(x) == (True, True)


def test_sizes_differ_of_a_subclass() -> None:
    fast = hostjit.compile(compute)
    for size in (3, 4, 5):
        x = torch.ones(size).as_subclass(Logs)
        ASKED.clear()
        fast(x)
        assert ASKED == ["mul", "add"]


def test_keys_that_cannot_be_shown() -> None:
    def by_key(values: dict[Key, Any]) -> Tensor:
        found: Tensor = values[Key.FIRST] * values[Key.SECOND]
        return found

    fast = hostjit.compile(by_key, fallback=False)
    for factor in (2.0, 3.0, 4.0):
        values = {Key.FIRST: torch.ones(3), Key.SECOND: factor}
        torch.testing.assert_close(fast(values), by_key(values))


def test_keys_that_cannot_be_shown_beside_a_break() -> None:
    def makes(x: Tensor) -> Tensor:
        values = {Key.FIRST: x + 1, Key.SECOND: torch.ones(3)}
        torch._dynamo.graph_break()
        return values[Key.FIRST] * values[Key.SECOND]

    fast = hostjit.compile(makes)
    for _ in range(3):
        torch.testing.assert_close(fast(torch.ones(3)), torch.full((3,), 2.0))


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@pytest.mark.parametrize(
    "keys",
    [
        *(((1, 2), (3, 4)), (Level.LOW, Level.HIGH), ("a, b", "c, d"), (1.5, 2.5), ("a", None)),
        *((True, False), (b"a", b"b"), (int, float), (torch.float32, torch.float64), (-1, -2)),
    ],
    ids=str,
)
def test_numbers_at_keys_of_any_kind(keys: tuple[Any, Any]) -> None:
    first, second = keys

    def by_key(values: dict[Any, Any]) -> Tensor:
        found: Tensor = values[first] * values[second]
        return found

    fast = hostjit.compile(by_key, fallback=False)
    for number in (2.0, 3.0, 4.0, 2, 3, 4):
        values = {first: torch.ones(2), second: number}
        torch.testing.assert_close(fast(values), by_key(values))
    for size in (3, 4, 5):
        values = {first: torch.ones(size), second: torch.ones(size)}
        torch.testing.assert_close(fast(values), by_key(values))
