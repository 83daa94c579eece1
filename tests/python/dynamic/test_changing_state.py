# SPDX-License-Identifier: Apache-2.0
"""Numbers that a call itself changes or returns: one program for all of them, and what eager does.

Each function takes a holder of numbers, which a call changes; a call of the compiled function is
compared with one of eager on a holder of its own: results, and all that is left in the holder.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import hostjit

count = 3
settings = {"t": 0.5, "other": 7}


@dataclasses.dataclass
class Counter:
    calls: int = 5


class Holder(nn.Module):
    """A module with numbers in all places, which `function` computes with."""

    def __init__(self, function: Callable[[Holder, torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function
        self.step = 3
        self.t = 0.5
        self.rate = 0.25
        self.state = {"t": 0.5, "n": 2}
        self.inner = Counter()
        self.weights = [0.5, 0.25]
        self.last: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)

    def numbers(self) -> dict[str, Any]:
        """All that is left behind, as it is written."""
        names = ("step", "t", "rate", "state", "weights")
        return {"inner": repr(self.inner), **{name: repr(getattr(self, name)) for name in names}}


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


def same(found: Any, expected: Any) -> None:
    """Compare results: tensors by value, numbers by type and value too."""
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, equal_nan=True)
    elif isinstance(expected, (tuple, list)):
        assert type(found) is type(expected)
        for mine, other in zip(found, expected, strict=True):
            same(mine, other)
    elif isinstance(expected, dict):
        same(list(found.items()), list(expected.items()))
    else:
        assert type(found) is type(expected)
        assert repr(found) == repr(expected)


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


def test_a_global() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        global count
        count += 1
        return x * count

    global count
    compiled = hostjit.compile(function, fallback=False)
    x, before = torch.randn(7), count
    for index in range(12):
        same(compiled(x), x * (before + index + 1))
        assert type(count) is int and count == before + index + 1
    assert len(compiled.specializations) == 2


def test_a_variable_of_an_enclosing_function(runtime: str) -> None:
    total = 0.5

    def function(x: torch.Tensor) -> torch.Tensor:
        nonlocal total
        total = total * 1.5 - 0.125
        return x - total

    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    x = torch.randn(7)
    expected = total
    for _ in range(12):
        expected = expected * 1.5 - 0.125
        same(compiled(x), x - expected)
        assert total == expected
    assert len(compiled.specializations) == 2


def test_an_item_of_a_global_dict() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        settings["t"] += 0.25
        return x * settings["t"]

    compiled = hostjit.compile(function, fallback=False)
    x = torch.randn(7)
    for _ in range(12):
        expected = settings["t"] + 0.25
        same(compiled(x), x * expected)
        assert settings == {"t": expected, "other": 7}
        assert list(settings) == ["t", "other"]
    assert len(compiled.specializations) == 2


def test_an_item_of_a_dict_that_each_call_brings(runtime: str) -> None:
    def function(x: torch.Tensor, state: dict[str, Any]) -> torch.Tensor:
        state["t"] += 0.25
        return x * state["t"]

    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    x = torch.randn(7)
    states = [{"t": 0.5}, {"t": 3.0}, {"t": -1.0}]
    for _ in range(4):
        for state in states:
            expected = state["t"] + 0.25
            same(compiled(x, state), x * expected)
            assert state == {"t": expected}
    assert len(compiled.specializations) == 2


def test_an_attribute_of_an_argument(runtime: str) -> None:
    def function(x: torch.Tensor, options: Any) -> torch.Tensor:
        options.calls += 1
        return x * options.calls

    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    x, options = torch.randn(7), Counter(0)
    for index in range(12):
        same(compiled(x, options), x * (index + 1))
        assert options.calls == index + 1
    assert len(compiled.specializations) == 2


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


def test_other_ways_to_set_an_attribute() -> None:
    class Checked:
        def __init__(self) -> None:
            self._n = 2
            self.log: list[int] = []

        @property
        def n(self) -> int:
            return self._n

        @n.setter
        def n(self, value: int) -> None:
            self._n = value * 2

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            self.n += 1
            return x * self.n

    class Slotted:
        __slots__ = ("n",)

        def __init__(self) -> None:
            self.n = 2

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            self.n += 1
            return x * self.n

    for kind in (Checked, Slotted):
        found, eager = kind(), kind()
        compiled = hostjit.compile(found)
        x = torch.randn(7)
        for _ in range(6):
            same(compiled(x), eager(x))
            assert found.n == eager.n


def test_another_holder_in_the_place_of_one() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        model.inner.calls += 1
        model.state["t"] += 0.5
        return x * model.inner.calls + model.state["t"]

    model = Holder(increment)
    compiled = hostjit.compile(function, fallback=False)
    x = torch.randn(7)
    for index in range(8):
        before = model.inner, model.state
        if index % 2:
            model.inner, model.state = Counter(index), {"t": index / 4}
        kept = before[0].calls, before[1]["t"]
        expected = model.inner.calls + 1, model.state["t"] + 0.5
        same(compiled(x), x * expected[0] + expected[1])
        assert (model.inner.calls, model.state["t"]) == expected
        if index % 2:
            assert (before[0].calls, before[1]["t"]) == kept
        else:
            model.state["extra"] = index


def test_a_property_where_an_attribute_was_set() -> None:
    class Options:
        def __init__(self) -> None:
            self.n = 2

    options = Options()

    def function(x: torch.Tensor) -> torch.Tensor:
        options.n = 5
        return x * 2

    compiled = hostjit.compile(function)
    x, seen = torch.randn(7), []
    for _ in range(3):
        same(compiled(x), x * 2)
    Options.n = property(lambda self: 1, lambda self, value: seen.append(value))  # type: ignore
    same(compiled(x), x * 2)
    assert seen == [5]


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
