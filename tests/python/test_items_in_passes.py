# SPDX-License-Identifier: Apache-2.0
"""Passes of loops over several things at once, and over numbers: `for i, x in enumerate(...)`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from in_passes import Passes, check, compiled
from torch import Tensor
from torch.testing import assert_close

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

U = torch.linspace(-1, 1, 36, dtype=torch.float64).view(12, 3)
V = torch.linspace(0.5, 2, 12, dtype=torch.float64)
STEPS = [0.02 * (1 + i % 5) for i in range(12)]
PLACES = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8)


def counted(x: Tensor) -> tuple[Tensor, int]:
    last = -1
    for i, row in enumerate(U):
        x = torch.tanh(x + row * (i + 1))
        if x.norm().item() > 2.4:
            break
        last = i
    return x, last


def counted_from_three(x: Tensor) -> tuple[Tensor, int]:
    i = 0
    for i, row in enumerate(U, 3):
        x = torch.tanh(x + row / i)
        if x.norm().item() > 2.3:
            break
    return x, i


def two_at_once(x: Tensor) -> tuple[Tensor, list[float]]:
    found = []
    for row, weight in zip(U, V, strict=True):
        x = torch.tanh(x * weight + row)
        found.append(x.sum().item())
        if found[-1] > 5.5:
            return x, found
    return x * 2, found


def one_in_the_other(x: Tensor) -> tuple[Tensor, float]:
    time = 0.0
    for i, (row, (weight, step)) in enumerate(zip(U, zip(V, STEPS, strict=True), strict=False)):
        x = x + step * torch.sin(row * x - weight)
        time += step * i
        if x.norm().item() > 30:
            break
    return x, time


def numbers(x: Tensor) -> tuple[Tensor, float]:
    step = 0.0
    for step in STEPS:
        x = x - step * x**3
        if x.abs().max().item() < 0.6:
            break
    return x, step


def places(x: Tensor) -> Tensor:
    for place in PLACES:
        x = torch.tanh(x + U[place])
        if x.norm().item() > 2.3:
            break
    return x


def back_and_forth(x: Tensor) -> tuple[Tensor, int]:
    back = 0
    for back, row in zip(range(11, -1, -1), U, strict=False):
        x = torch.tanh(x + row * U[back])
        if x.norm().item() > 2.3:
            break
    return x, back


def of_the_shortest(x: Tensor) -> tuple[Tensor, int]:
    count = 0
    for row, _, step in zip(U, range(7), STEPS[2:], strict=False):
        x = x - step * row
        count += 1
        if x.norm().item() > 50:
            break
    return x, count


def of_rows_in_a_list(x: Tensor) -> Tensor:
    for i, row in enumerate(list(U)[2:9]):
        x = torch.tanh(x + row) * (1 + i / 10)
        if x.norm().item() > 4:
            break
    return x


def with_what_the_last_pass_had(x: Tensor) -> tuple[Tensor, float]:
    before = 0.0
    for i, weight in enumerate(STEPS):
        x = x * (1 - weight) + before
        before = weight + i
        if x.norm().item() > 500:
            break
    return x, before


def beside_a_list(x: Tensor) -> tuple[Tensor, list[float]]:
    errors: list[float] = []
    for i, (row, step) in enumerate(zip(U, STEPS, strict=True)):
        x = x + 0.5 * step * torch.tanh(row - x)
        errors.append((row - x).square().sum().item())
        if errors[-1] > 90 and i > 5:
            break
    return x, errors


REPEATED: list[Callable[..., Any]] = [
    *(counted, counted_from_three, two_at_once, one_in_the_other, numbers, places),
    *(back_and_forth, of_the_shortest, of_rows_in_a_list, with_what_the_last_pass_had),
    beside_a_list,
]


def the_row_is_kept(x: Tensor) -> tuple[Tensor, Tensor]:
    row = x[0]
    for i, row in enumerate(U):
        x = torch.tanh(x + row * i)
        if x.norm().item() > 2.4:
            break
    return x, row


def of_another_order(x: Tensor) -> Tensor:
    rows = iter(U)
    next(rows)
    for i, (row, other) in enumerate(zip(rows, V, strict=False)):
        x = torch.tanh(x + row * other / (i + 1))
        if x.norm().item() > 2.4:
            break
    return x


def of_mixed_numbers(x: Tensor) -> tuple[Tensor, Any]:
    number: Any = None
    for i, number in enumerate([1, 2.0, True, 3, 0.5, 7]):
        x = torch.tanh(x * number + i)
        if x.norm().item() < 0.1:
            break
    return x, number


def of_large_numbers(x: Tensor) -> tuple[Tensor, int]:
    total = 0
    for number in [1 << 62, 1 << 63, 1 << 64, 3, 4, 5]:
        x = torch.tanh(x + 0.1)
        total += number
        if x.norm().item() > 2.4:
            break
    return x, total


def of_a_list_that_grows(x: Tensor) -> tuple[Tensor, list[float]]:
    waiting = [0.5, 0.25]
    for step in waiting:
        x = x - step * x**3 / 9
        if len(waiting) < 9:
            waiting.append(step / 2)
        if x.norm().item() < 0.1:
            break
    return x, waiting


class Held:
    """Has what a loop is over, and changes it."""

    def __init__(self) -> None:
        self.waiting = [0.5, 0.25, 0.5, 0.75]

    def run(self, x: Tensor) -> Tensor:
        for i, step in enumerate(self.waiting):
            x = x - step * torch.sin(x)
            if x.norm().item() > 2 and len(self.waiting) < 12:
                self.waiting.append(step / 2 + i)
            elif i + 1 < len(self.waiting):
                self.waiting[i + 1] = step + 0.125
        return x


def of_a_list_of_an_object(x: Tensor) -> tuple[Tensor, list[float]]:
    held = Held()
    return held.run(x), held.waiting


def steps() -> Iterator[float]:
    yield from STEPS


def of_a_generator(x: Tensor) -> tuple[Tensor, int]:
    i = 0
    for i, step in enumerate(steps()):  # noqa: B007
        x = x - step * x**3
        if x.norm().item() < 0.5:
            break
    return x, i


def of_a_dict(x: Tensor) -> tuple[Tensor, list[str]]:
    names = []
    for name, row in {"a": U[0], "b": U[3], "c": U[7]}.items():
        x = torch.tanh(x + row)
        names.append(name)
        if x.norm().item() > 2.3:
            break
    return x, names


def of_rows_that_are_written(x: Tensor) -> tuple[Tensor, Tensor]:
    rows = U.clone()
    for i, row in enumerate(rows):
        x = torch.tanh(x + row)
        rows[min(i + 1, 11)] += x[0]
        row.mul_(2)
        if x.norm().item() > 2.3:
            break
    return x, rows


def of_lengths_that_must_be_equal(x: Tensor) -> tuple[Tensor, str]:
    try:
        for row, step in zip(U, STEPS[:7], strict=True):
            x = x - step * row
            if x.norm().item() > 50:
                break
    except ValueError as error:
        return x, str(error)
    return x, ""


def of_three_where_two_are_wanted(x: Tensor) -> tuple[Tensor, str]:
    items: Any = zip(U, V, STEPS, strict=True)
    try:
        for row, weight in items:
            x = x - row * weight
            if x.norm().item() > 50:
                break
    except ValueError as error:
        return x, str(error)
    return x, ""


def in_attributes_and_cells(x: Tensor) -> tuple[Tensor, list[int]]:
    held = Held()
    seen = []
    row = x[0]
    for i, row in enumerate(U):
        shifted = (lambda: row + 1)()
        x = torch.tanh(x + shifted * 0.1)
        held.last = i  # type: ignore[attr-defined]
        if x.norm().item() > 2.3:
            break
        seen.append(i)
    return x + row, seen


SINGLE: list[Callable[..., Any]] = [
    *(the_row_is_kept, of_another_order, of_mixed_numbers, of_large_numbers, of_a_list_that_grows),
    *(of_a_generator, of_a_dict, of_rows_that_are_written),
]
OTHERS: list[Callable[..., Any]] = [
    *(of_a_list_of_an_object, of_lengths_that_must_be_equal, of_three_where_two_are_wanted),
    in_attributes_and_cells,
]


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("function", REPEATED)
def test_one_program_looks_items_up(function: Any, runtime: str) -> None:
    passes = Passes(function, runtime)
    check(function, passes.run)
    assert passes.loops() > 0


@pytest.mark.parametrize("function", SINGLE)
def test_passes_are_as_eagers(function: Any) -> None:
    check(function, Passes(function).run)


@pytest.mark.parametrize("how", ["hostjit.compile", "torch.compile"])
@pytest.mark.parametrize("function", [*REPEATED, *SINGLE, *OTHERS])
def test_calls_are_as_eagers(function: Any, how: str) -> None:
    check(function, compiled(how, function))


@pytest.mark.parametrize("count", [40, 100])
def test_items_of_an_argument(count: int) -> None:
    """Lists with many values are not looked at one by one."""

    def decay(x: Tensor, steps: list[float]) -> tuple[Tensor, int]:
        i = 0
        for i, step in enumerate(steps):  # noqa: B007
            x = x - step * x**3
            if x.abs().max().item() < 0.05:
                break
        return x, i

    fast = compiled("hostjit.compile", decay)
    for shift in range(40):
        steps = [0.01 * (1 + (i + shift) % 7) for i in range(count)]
        x = torch.linspace(0.1, 1 + shift / 50, 8, dtype=torch.float64)
        assert_close(fast(x, steps), decay(x, steps))


def test_calls_with_other_beginnings() -> None:
    """A program for each of many would be compiled for nothing."""

    def begins(x: Tensor, first: int) -> tuple[Tensor, int]:
        i = 0
        for i, row in enumerate(U, first):
            x = torch.tanh(x + row * i)
            if x.norm().item() > 2.45:
                break
        return x, i

    fast = compiled("hostjit.compile", begins)
    for first in itertools.chain([0] * 20, range(40)):
        x = torch.full((2, 3), first / 40, dtype=torch.float64)
        assert_close(fast(x, first), begins(x, first))
