# SPDX-License-Identifier: Apache-2.0
"""Functions in two: the parts together are the function."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from hostjit.bytecode.splits import split_behind_gradients


class Value:
    """Counts what is done to it, in the place of a tensor and an optimizer."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.count = 0

    def step(self) -> None:
        self.log.append("step")

    def item(self) -> float:
        self.log.append("item")
        return 1.5

    def __enter__(self) -> Value:
        self.log.append("enter")
        return self

    def __exit__(self, *_: object) -> bool:
        self.log.append("exit")
        return True


KEPT = Value()


def read(value: Value) -> Any:
    value.step()
    return value.item()


def signature(value: Value, /, factor: int = 2, *rest: int, named: int = 3, **others: int) -> Any:
    total = factor + sum(rest) + named
    value.step()
    return value.item() * total, rest, others, named


def replaced_arguments(value: Value, factor: int = 2) -> Any:
    factor = factor + 1
    value.step()
    value.count += factor
    return factor, value.item()


def branches(value: Value, factor: int = 2) -> Any:
    if factor > 2:
        found = "more"
    elif factor == 2:
        found = "two"
    else:
        found = "less"
    value.step()
    return found if value.item() > 1 else None


def loops(value: Value, factor: int = 2) -> Any:
    total = 0
    for number in range(factor):
        if number % 2:
            continue
        total += number
        value.step()
    while total < 10:
        total += factor or 1
    return [value.item() for _ in range(total)]


def handled(value: Value, factor: int = 2) -> Any:
    try:
        found = 1 // factor
        value.step()
    except ZeroDivisionError:
        found = -1
    return found * value.item()


def handled_at_the_end(value: Value, factor: int = 2) -> Any:
    value.step()
    try:
        return value.item() / factor
    except ZeroDivisionError as error:
        return str(error)
    finally:
        value.count += 1


def blocks(value: Value, factor: int = 2) -> Any:
    found = 0
    with value:
        value.step()
        found = 1 // factor
    with value as inside:
        found += int(inside.item()) // factor
    return found


def deleted(value: Value, factor: int = 2) -> Any:
    made = factor
    value.step()
    del made
    text = f"{value.item():.2f}"
    return text


def global_names(value: Value, factor: int = 2) -> Any:
    kept = KEPT
    value.step()
    kept.count = factor
    return KEPT.count is factor and float(value.item())


def many_lines(value: Value, factor: int = 2) -> Any:
    value.step()
    return {
        "item": value.item(),
        "factor": (
            factor,
            [value.item(), *(n for n in range(factor))],
        ),
    }


def early_end(value: Value, factor: int = 2) -> Any:
    value.step()
    if value.item() < factor:
        return "early"
    value.count = factor
    return value.item()


def closure(value: Value, factor: int = 2) -> Any:
    def add(value: Value, factor: int) -> Any:
        found = factor + outside
        value.step()
        return value.item() + found + outside

    outside = 10
    return add


def ends_before(value: Value, factor: int = 2) -> Any:
    if factor == 3:
        return "at once"
    value.step()
    return value.item()


def not_always_assigned(value: Value, factor: int = 2) -> Any:
    if factor == 3:
        found = 1
    value.step()
    return value.item() + (found if factor == 3 else 0)


def read_before_it_is_assigned(value: Value, factor: int = 2) -> Any:
    if factor == 3:
        found = 1
    value.step()
    value.log.append(str(found))
    value.step()
    return value.item() + found


def own_variables(value: Value, factor: int = 2) -> Any:
    value.step()
    return value.item(), sorted(locals())


def of_a_function(value: Value, factor: int = 2) -> Any:
    value.step()
    return (lambda: value.item() * factor)()


def function_of_both(value: Value, factor: int = 2) -> Any:
    factor = factor * 2
    scaled = [number * factor for number in range(3)]
    weigh = lambda: value.item() * factor + len(scaled)  # noqa: E731
    value.step()
    return weigh(), value.item(), factor, [number + factor for number in scaled]


def changes_a_variable(value: Value, factor: int = 2) -> Any:
    def count() -> None:
        nonlocal factor
        factor += 1

    value.step()
    count()
    return value.item() * factor


def stores_for_a_function(value: Value, factor: int = 2) -> Any:
    weigh = lambda: factor * 2  # noqa: E731
    value.step()
    found = value.item()
    factor = 7
    return found * weigh()


def errors_that_a_block_drops(value: Value, factor: int = 2) -> Any:
    with value:
        found = 6 // factor
        value.step()
    return value.item() * found


def sometimes_assigned(value: Value, factor: int = 2) -> Any:
    if factor == 3:
        found = 1
    value.step()
    value.count += 1
    return value.item() + (found if factor else 0)


def assigned_for_a_function(value: Value, factor: int = 2) -> Any:
    with value:
        found = 6 // factor
        value.step()
    return [value.item() + found for _ in range(2)]


def nothing_behind(value: Value, factor: int = 2) -> Any:
    value.item()
    value.step()
    return factor


def ends_within(value: Value, factor: int = 2) -> Any:
    for number in range(factor):
        with value:
            if number == 2:
                return factor, "in a loop"
    try:
        if factor == 1:
            return "handled"
        value.step()
    finally:
        value.log.append("finally")
    return value.item()


def ends_with_a_value(value: Value, factor: int = 2) -> Any:
    if factor == 0:
        return ()
    if factor == 1:
        return None
    value.step()
    return value.item()


def generator(value: Value, factor: int = 2) -> Any:
    value.step()
    yield value.item()


class Counter(Value):
    def learn(self, factor: int = 2) -> Any:
        self.step()
        self.count += factor
        return self.item()


SPLIT = [
    *(read, signature, replaced_arguments, branches, loops, handled, handled_at_the_end, blocks),
    *(deleted, global_names, many_lines, early_end, of_a_function, function_of_both),
    *(errors_that_a_block_drops, sometimes_assigned, assigned_for_a_function, not_always_assigned),
    *(ends_before, ends_within, ends_with_a_value),
]
WHOLE = [
    *(read_before_it_is_assigned, own_variables, nothing_behind, generator),
    *(changes_a_variable, stores_for_a_function),
]


def outcome(function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    value = Value()
    try:
        result = function(value, *given, **named)
    except NameError as error:
        result = str(error)
    return result, value.log, value.count


@pytest.mark.parametrize("function", SPLIT)
def test_the_parts_are_the_function(function: Callable[..., Any]) -> None:
    split = split_behind_gradients(function)
    assert split is not None
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((), {})]
    if function is not read:
        calls += [((0,), {}), ((1,), {}), ((3,), {})]
    if function is signature:
        calls += [((1, 2, 3), {"named": 5}), ((), {"factor": 4, "more": 7})]
    for given, named in calls:
        expected = outcome(function, given, named)
        assert outcome(split.joined(split.first, split.rest), given, named) == expected
    assert inspect.signature(split.first) == inspect.signature(function)


@pytest.mark.parametrize("function", SPLIT)
def test_the_first_part_reads_nothing(function: Callable[..., Any]) -> None:
    split = split_behind_gradients(function)
    assert split is not None
    value = Value()
    split.first(value)
    assert "item" not in value.log
    assert value.count == 0
    assert not {"item", "print"} & set(split.first.__code__.co_names)


@pytest.mark.parametrize("function", WHOLE)
def test_functions_that_stay_whole(function: Callable[..., Any]) -> None:
    assert split_behind_gradients(function) is None


def test_methods_and_closures() -> None:
    counter, twin = Counter(), Counter()
    split = split_behind_gradients(counter.learn)
    assert split is not None
    assert split.joined(split.first, split.rest)(3) == twin.learn(3)
    assert (counter.log, counter.count) == (twin.log, twin.count)
    function = closure(Value())
    split = split_behind_gradients(function)
    assert split is not None
    assert split.joined(split.first, split.rest)(Value(), 4) == function(Value(), 4)


def test_what_the_rest_calls() -> None:
    def calls_another(value: Value, factor: int = 2) -> Any:
        value.step()
        return value.item() + KEPT.learn(factor)

    for function, is_short in ((read, True), (signature, True), (calls_another, False)):
        split = split_behind_gradients(function)
        assert split is not None
        assert split.is_short == is_short


def without_gradients(value: Value, factor: int = 2) -> Any:
    for _ in range(factor):
        print(value.item(), end="")


def test_other_callables_stay_whole() -> None:
    assert split_behind_gradients(without_gradients) is None
    assert split_behind_gradients(len) is None
    assert split_behind_gradients(Value) is None


def test_errors_tell_the_line() -> None:
    split = split_behind_gradients(many_lines)
    assert split is not None
    found = []
    for function in (split.joined(split.first, split.rest), many_lines):
        try:
            function(Value(), None)
        except TypeError:
            frames = traceback.extract_tb(sys.exc_info()[2])
            found.append([(f.name, f.lineno) for f in frames if f.name == "many_lines"])
    assert found[0] == found[1]
