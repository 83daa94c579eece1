# SPDX-License-Identifier: Apache-2.0
"""`a is b` of numbers, texts and tuples, which may be equal and two objects."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*runs (in parts|eagerly)")

# Pairs of equal values that are two objects.
EQUAL: list[tuple[Any, Any]] = [
    (2.5, float("2.5")),
    (100_000, int("100000")),
    (2j, complex("2j")),
    ("some text", " ".join(("some", "text"))),
    (b"bytes", bytes(bytearray(b"bytes"))),
    ((1, 2), tuple(range(1, 3))),
    (float("nan"), float("nan")),
]


@pytest.mark.parametrize("number", range(len(EQUAL)))
@pytest.mark.parametrize("compile", [hostjit.compile, hostjit.capture])
def test_arguments(number: int, compile: Callable[[Any], Any]) -> None:
    first, second = EQUAL[number]

    def function(x: Tensor, a: Any, b: Any) -> Tensor:
        return x * (2 if a is b else 3) + operator.is_not(a, b)

    fast = compile(function)
    for a, b in ((first, second), (first, first), (second, first), (second, second)):
        for _ in range(2):
            assert torch.equal(fast(torch.ones(2), a, b), function(torch.ones(2), a, b))


@pytest.mark.parametrize("number", range(len(EQUAL)))
@pytest.mark.parametrize("is_argument", [False, True])
def test_values_outside_of_the_arguments(number: int, is_argument: bool) -> None:
    first, second = EQUAL[number]
    held = types.SimpleNamespace(value=first)
    kept = second

    def function(x: Tensor, value: Any = None) -> Tensor:
        found = value if is_argument else held.value
        return x * (2 if found is kept else 3)

    fast = hostjit.compile(function)
    for found in (first, second, "another", first, second):
        held.value = found
        given = (found,) if is_argument else ()
        for _ in range(2):
            assert torch.equal(fast(torch.ones(2), *given), function(torch.ones(2), *given))


@pytest.mark.parametrize("number", range(len(EQUAL)))
def test_values_beside_state_that_is_replaced(number: int) -> None:
    first, second = EQUAL[number]
    held = types.SimpleNamespace(value=first, state=torch.ones(2))
    kept = second

    def function() -> Tensor:
        return held.state * (2 if held.value is kept else 3)

    fast = hostjit.compile(function)
    for step, held.value in enumerate((first, second, second, first, second)):
        held.state = torch.full((2,), float(step))
        assert torch.equal(fast(), function())


@pytest.mark.parametrize("number", range(5))
def test_values_outside_of_the_arguments_are_compiled(number: int) -> None:
    first, second = EQUAL[number]
    held = types.SimpleNamespace(value=first)

    def function(x: Tensor) -> Tensor:
        return x * (2 if held.value is second else 3)

    fast = hostjit.compile(function, fallback=False)
    for held.value in (first, second, first, second):
        assert torch.equal(fast(torch.ones(2)), function(torch.ones(2)))
    assert len(fast.specializations) == 2


def of_slices(x: Tensor, row: Any) -> Tensor:
    return x * (2 if row[:] is row else 3) + (tuple(row) is row) + (row[:1] is row)


def of_small_numbers(x: Tensor, number: Any) -> Tensor:
    return x * (2 if number is SMALL else 3)


def of_others(x: Tensor, value: Any) -> Tensor:
    return x * (2 if value is None else 3) + (value is True) + (value is torch.float32)


SMALL = 7


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (of_slices, [(1, 2), (), (3,)]),
        (of_small_numbers, [7, 8, int("7")]),
        (of_others, [None, True, torch.float32, 4, 2.5]),
    ],
)
def test_results_of_python(function: Callable[..., Tensor], values: list[Any]) -> None:
    fast = hostjit.compile(function)
    for value in values:
        for _ in range(2):
            assert torch.equal(fast(torch.ones(2), value), function(torch.ones(2), value))


@pytest.mark.parametrize("function", [of_small_numbers, of_others])
def test_objects_that_there_is_one_of_are_compiled(function: Callable[..., Tensor]) -> None:
    fast = hostjit.compile(function, fallback=False)
    for value in (None, True, torch.float32, 7):
        assert torch.equal(fast(torch.ones(2), value), function(torch.ones(2), value))
