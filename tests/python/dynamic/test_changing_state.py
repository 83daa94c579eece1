# SPDX-License-Identifier: Apache-2.0
"""Numbers that a call itself changes or returns: one program for all of them, and what eager does.

Each function takes a holder of numbers, which a call changes; a call of the compiled function is
compared with one of eager on a holder of its own: results, and all that is left in the holder.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from number_holders import Holder, same

import hostjit


def increment(holder: Holder, x: torch.Tensor) -> torch.Tensor:
    holder.step += 1
    return x * holder.step


def old_value(holder: Holder, x: torch.Tensor) -> torch.Tensor:
    step = holder.step
    holder.step = step + 1
    return x * step


def no_use(holder: Holder, x: torch.Tensor) -> torch.Tensor:
    holder.step += 1
    return x * 2


def average(holder: Holder, x: torch.Tensor) -> torch.Tensor:
    holder.t = holder.t * 0.9 + 0.1
    return x * holder.t


def least(holder: Holder, x: torch.Tensor) -> torch.Tensor:
    holder.t = min(holder.t + 0.125, 1.0)
    return x * holder.t


def remainder(holder: Holder, x: torch.Tensor) -> torch.Tensor:
    holder.step = (holder.step + 1) % 5
    return x * holder.step


def of_two(holder: Holder, x: torch.Tensor) -> torch.Tensor:
    holder.step += 1
    holder.t = holder.step * holder.rate
    return x * holder.t


def item(holder: Holder, x: torch.Tensor) -> torch.Tensor:
    holder.state["t"] += 0.25
    return x * holder.state["t"]


def inner(holder: Holder, x: torch.Tensor) -> torch.Tensor:
    holder.inner.calls += 1
    return x + holder.inner.calls


def several(holder: Holder, x: torch.Tensor) -> torch.Tensor:
    holder.step += 1
    holder.t -= 0.25
    holder.state["n"] = holder.step * 2
    holder.inner.calls = holder.state["n"] - 1
    holder.rate = 0.75
    return x * holder.step + holder.t


def element(holder: Holder, x: torch.Tensor) -> torch.Tensor:
    holder.weights[0] += 0.25
    return x * holder.weights[0] + holder.weights[1]


def with_a_tensor(holder: Holder, x: torch.Tensor) -> torch.Tensor:
    holder.step += 1
    holder.last = x * holder.step
    return holder.last + 1


def returned(holder: Holder, x: torch.Tensor) -> Any:
    return x * holder.t, holder.t, {"next": holder.step + 1}, [holder.step]


def returned_and_changed(holder: Holder, x: torch.Tensor) -> Any:
    before = holder.step
    holder.step += 1
    return x * before, before, holder.step


def quotient(holder: Holder, x: torch.Tensor) -> Any:
    holder.step += 1
    return x * (holder.step / 2), holder.step // 2, holder.step / 2, -holder.t


def in_a_row(holder: Holder, x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        holder.step += 2
        x = x * holder.step
    return x


FUNCTIONS = (
    *(increment, old_value, no_use, average, least, remainder, of_two, item, inner, several),
    *(element, with_a_tensor, returned, returned_and_changed, quotient, in_a_row),
)


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except (ArithmeticError, RuntimeError, TypeError, ValueError, IndexError) as error:
        return type(error)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_one_program_for_all_values(function: Any, runtime: str) -> None:
    holder, eager = Holder(function), Holder(function)
    compiled = hostjit.compile(holder, runtime=runtime, fallback=False)
    x = torch.randn(7)
    # Twelve values: more than there may be programs.
    for _ in range(12):
        same(compiled(x), eager(x))
        assert holder.numbers() == eager.numbers()
    expected = 3 if function in (least, remainder, returned) else 2
    assert len(compiled.specializations) <= expected


VALUES: tuple[Any, ...] = (
    *(3, 4, 0, -7, 2**31, 2**63 - 1, 2**70, True, 0.5, -0.0, 0.25),
    *(math.inf, math.nan, 1e300, 5, 6),
)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
@pytest.mark.filterwarnings("ignore:hostjit")
def test_values_of_all_kinds(function: Any) -> None:
    holder, eager = Holder(function), Holder(function)
    with hostjit.knobs(enable="recompile_limit(64)"):
        compiled = hostjit.compile(holder)
        x = torch.randn(7)
        for value in VALUES:
            for one in (holder, eager):
                one.step = one.t = one.inner.calls = value
                one.state = {**one.state, "t": value}
                one.weights = [value, one.weights[1]]
            for _ in range(2):
                same(outcome(compiled, x), outcome(eager, x))
                assert holder.numbers() == eager.numbers()


def test_numbers_of_arguments_that_are_returned(runtime: str) -> None:
    def function(x: torch.Tensor, n: int, t: float) -> Any:
        return x * n, n + 1, t, t * n, (x.sum(), n)

    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    x = torch.randn(7)
    for n in range(2, 14):
        same(compiled(x, n, n / 3), function(x, n, n / 3))
    assert len(compiled.specializations) == 2


@torch.enable_grad()
@pytest.mark.parametrize("function", [increment, average, with_a_tensor, returned_and_changed])
def test_with_gradients(function: Any, runtime: str) -> None:
    holder, eager = Holder(function), Holder(function)
    compiled = hostjit.compile(holder, runtime=runtime, fallback=False)
    x, y = (torch.ones(7, requires_grad=True) for _ in range(2))
    for _ in range(12):
        results = []
        for call, given in ((compiled, x), (eager, y)):
            given.grad = None
            found = call(given)
            tensor = found[0] if isinstance(found, tuple) else found
            tensor.sum().backward()
            results.append((found, given.grad))
        same(*results)
        assert holder.numbers() == eager.numbers()
    assert len(compiled.specializations) == 2


def test_a_decision_on_a_counter() -> None:
    def function(holder: Holder, x: torch.Tensor) -> torch.Tensor:
        holder.step += 1
        return x * holder.step if holder.step % 3 == 0 else x + holder.step

    holder, eager = Holder(function), Holder(function)
    compiled = hostjit.compile(holder, fallback=False)
    x = torch.randn(7)
    for _ in range(20):
        same(compiled(x), eager(x))
        assert holder.numbers() == eager.numbers()
    assert len(compiled.specializations) == 3


def test_what_is_left_behind_by_a_call_that_fails() -> None:
    def function(holder: Holder, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        holder.step += 1
        y = x[index]
        holder.t += 1.0
        return y * holder.step

    class Indexed(Holder):
        def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return function(self, x, index)

    holder, eager = Indexed(increment), Indexed(increment)
    compiled = hostjit.compile(holder, fallback=False)
    x, good, bad = torch.randn(7), torch.tensor([1, 2]), torch.tensor([1, 200])
    for index in (good, good, good, bad, good, bad, good):
        same(outcome(compiled, x, index), outcome(eager, x, index))
        assert holder.numbers() == eager.numbers()


def test_a_number_that_python_cannot_compute() -> None:
    def function(holder: Holder, x: torch.Tensor) -> torch.Tensor:
        holder.state["n"] += 1
        holder.t = 1 / holder.step
        return x * 2

    holder, eager = Holder(function), Holder(function)
    compiled = hostjit.compile(holder)
    x = torch.randn(7)
    for step in (3, 4, 5, 0, 6, 0, 7, 2):
        holder.step = eager.step = step
        same(outcome(compiled, x), outcome(eager, x))
        assert holder.numbers() == eager.numbers()


@pytest.mark.filterwarnings("ignore:hostjit")
def test_parts_of_a_call() -> None:
    lines: list[int] = []

    def function(holder: Holder, x: torch.Tensor) -> torch.Tensor:
        holder.step += 1
        lines.append(holder.step)
        print(end="")
        holder.t += 0.5
        return x * holder.step + holder.t

    holder, eager = Holder(function), Holder(function)
    compiled = hostjit.compile(holder)
    x = torch.randn(7)
    for _ in range(12):
        same(compiled(x), eager(x))
        assert holder.numbers() == eager.numbers()
    assert lines == [step for step in range(4, 16) for _ in range(2)]


def test_a_bool_that_a_call_turns() -> None:
    def function(holder: Holder, x: torch.Tensor) -> torch.Tensor:
        holder.step = not holder.step
        return x * 2 if holder.step else x * 3

    holder, eager = Holder(function), Holder(function)
    compiled = hostjit.compile(holder, fallback=False)
    x = torch.randn(7)
    for _ in range(6):
        same(compiled(x), eager(x))
        assert holder.numbers() == eager.numbers()
    assert len(compiled.specializations) == 3


def test_the_type_that_min_and_max_choose() -> None:
    def function(x: torch.Tensor, t: float, n: int) -> Any:
        return x * max(t, 1), min(n, 2.5), max(n, t), x * min(1, t)

    compiled = hostjit.compile(function, fallback=False)
    x = torch.arange(4)
    for t in (0.5, 2.5, 0.75, 3.5, 0.25):
        for n in (2, 3, 1):
            same(compiled(x, t, n), function(x, t, n))


COMPARISONS: dict[str, Callable[[int], bool]] = {
    "greater": lambda n: n > 5,
    "greater or equal": lambda n: n >= 6,
    "less": lambda n: n < 6,
    "less or equal": lambda n: n <= 5,
    "different": lambda n: n != 4,
    "equal": lambda n: n == 4,
    "divisible": lambda n: n % 3 == 0,
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_counter_that_is_compared_first_and_changed_then(name: str) -> None:
    decide = COMPARISONS[name]

    def function(holder: Holder, x: torch.Tensor) -> torch.Tensor:
        result = x * 2 if decide(holder.step) else x * 3
        holder.step += 1
        return result

    holder, eager = Holder(function), Holder(function)
    compiled = hostjit.compile(holder, fallback=False)
    x = torch.randn(7)
    for _ in range(12):
        same(compiled(x), eager(x))
        assert holder.numbers() == eager.numbers()
    assert len(compiled.specializations) <= 3
