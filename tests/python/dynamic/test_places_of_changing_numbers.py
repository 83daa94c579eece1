# SPDX-License-Identifier: Apache-2.0
"""Where numbers that a call changes may be: globals, closures, dicts, objects and properties."""

from __future__ import annotations

from typing import Any

import torch
from number_holders import Counter, Holder, same

import hostjit

count = 3
settings = {"t": 0.5, "other": 7}


def increment(holder: Holder, x: torch.Tensor) -> torch.Tensor:
    holder.step += 1
    return x * holder.step


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
