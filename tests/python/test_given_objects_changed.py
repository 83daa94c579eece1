# SPDX-License-Identifier: Apache-2.0
"""Objects that calls bring and change: one program for all, which changes the one it is given."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from same_values import assert_same
from torch import Tensor, nn

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*(runs (in parts|eagerly)|keeps meeting)")


@dataclasses.dataclass
class State:
    hidden: Tensor
    count: int = 0
    rate: float = 1.0


@dataclasses.dataclass(slots=True)
class Slotted:
    hidden: Tensor
    count: int = 0
    rate: float = 1.0


class Body:
    def __init__(self, hidden: Tensor) -> None:
        self.hidden, self.count, self.rate = hidden, 0, 1.0

    @property
    def scaled(self) -> Tensor:
        return self.hidden * self.rate

    @scaled.setter
    def scaled(self, value: Tensor) -> None:
        self.hidden = value / self.rate


@dataclasses.dataclass
class World:
    body: State
    history: list[Tensor] = dataclasses.field(default_factory=list)
    settings: dict[str, float] = dataclasses.field(default_factory=lambda: {"gain": 0.5})
    hidden: Tensor = dataclasses.field(default_factory=lambda: torch.zeros(3))
    count: int = 0
    rate: float = 1.0


def make_world(hidden: Tensor) -> World:
    return World(State(hidden))


LAYER = nn.Linear(3, 3)


def advance(state: Any, x: Tensor) -> Tensor:
    state.hidden = torch.tanh(state.hidden + x)
    state.count += 1
    state.rate *= 0.9
    return state.hidden * state.rate + state.count


def advance_by_layer(state: Any, x: Tensor) -> Tensor:
    state.hidden = LAYER(state.hidden) + x
    return state.hidden.sum()


def write_in_place(state: Any, x: Tensor) -> Tensor:
    state.hidden.mul_(state.rate).add_(x)
    state.rate = state.rate * 0.5
    return state.hidden + 1


def count_alone(state: Any, x: Tensor) -> Tensor:
    state.count = state.count + 2
    return x * state.count


def change_and_return(state: Any, x: Tensor) -> Any:
    state.count += 1
    state.hidden = x + state.count
    return state, state.hidden, state.count


def change_on_a_condition(state: Any, x: Tensor) -> Tensor:
    if state.count > 3:
        state.count = 0
        state.hidden = torch.zeros_like(state.hidden)
    else:
        state.count += 1
    return state.hidden + x


def swap(state: Any, x: Tensor) -> Tensor:
    before = state.hidden
    state.hidden = x * 2
    state.rate = float(state.count)
    return before


def put_a_result_at_two_places(state: Any, x: Tensor) -> Any:
    y = x * 3
    state.hidden = y
    return y, state


def add_an_attribute(state: Any, x: Tensor) -> Tensor:
    state.rate = state.rate + 1
    if not isinstance(state, Slotted):
        state.last = x * state.rate
    return x * 2


def set_twice(state: Any, x: Tensor) -> Tensor:
    state.rate = 3.0
    y = x * state.rate
    state.rate = 0.25
    return y


def fail_late(state: Any, x: Tensor) -> Tensor:
    state.count += 1
    if state.count == 4:
        raise ValueError("the fourth")
    return x + state.count


def by_a_property(state: Any, x: Tensor) -> Tensor:
    state.scaled = state.scaled + x
    return state.hidden


def deep(world: Any, x: Tensor) -> Tensor:
    world.body.hidden = world.body.hidden + x
    world.body.count += 1
    world.settings["gain"] = world.settings["gain"] * 0.5
    return world.body.hidden * world.settings["gain"] * world.body.count


def append(world: Any, x: Tensor) -> Tensor:
    world.history.append(x + world.count)
    world.count += 1
    return torch.stack(world.history[-2:]).sum()


def replace_an_inner_one(world: Any, x: Tensor) -> Tensor:
    world.body = State(world.body.hidden + x, world.body.count + 1, world.body.rate)
    return world.body.hidden * world.body.count


def state_of(value: Any) -> Any:
    if isinstance(value, (Tensor, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [state_of(item) for item in value]
    if isinstance(value, dict):
        return {name: state_of(item) for name, item in value.items()}
    slots = getattr(type(value), "__slots__", ())
    fields = dict(getattr(value, "__dict__", {})) | {name: getattr(value, name) for name in slots}
    return {name: state_of(item) for name, item in fields.items()}


def outcome(function: Callable[..., Any], *given: Any) -> Any:
    try:
        return state_of(function(*given))
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("gradients", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    ("make", "function"),
    [
        *(
            (make, function)
            for make in (State, Slotted, Body, make_world)
            for function in (advance, advance_by_layer, write_in_place, count_alone, swap)
        ),
        *(
            (make, function)
            for make in (State, Slotted)
            for function in (change_and_return, change_on_a_condition, put_a_result_at_two_places)
        ),
        *((State, function) for function in (add_an_attribute, set_twice, fail_late)),
        (Body, by_a_property),
        *((make_world, function) for function in (deep, append, replace_an_inner_one)),
    ],
    ids=lambda value: value.__name__,
)
def test_each_call_changes_the_object_it_brings(
    make: Callable[[Tensor], Any], function: Callable[..., Any], gradients: bool
) -> None:
    torch.manual_seed(0)
    objects = [make(torch.randn(3)) for _ in range(12)]
    twins = copy.deepcopy(objects)
    fast = hostjit.compile(function, fallback=True)
    with torch.set_grad_enabled(gradients):
        for turn in range(3):
            for one, twin in zip(objects, twins, strict=True):
                x = torch.randn(3, requires_grad=gradients and function is not write_in_place)
                found, expected = outcome(fast, one, x), outcome(function, twin, x)
                assert_same(found, expected)
                assert_same(state_of(one), state_of(twin))
                if turn == 1:  # others change them, too
                    for value in (one, twin):
                        value.count, value.rate = 7, -0.5
                        value.hidden = value.hidden.detach().clone()


@pytest.mark.parametrize("make", [State, Slotted, Body])
def test_one_program_for_all(make: Callable[[Tensor], Any]) -> None:
    fast = hostjit.compile(advance, fallback=False)
    x = torch.randn(3)
    for _ in range(3):
        for value in [make(torch.randn(3)) for _ in range(10)]:
            twin = copy.copy(value)
            torch.testing.assert_close(fast(value, x), advance(twin, x))
            assert_same(state_of(value), state_of(twin))
    assert len(fast.specializations) <= 3


def test_two_that_are_one() -> None:
    def exchange(a: State, b: State, x: Tensor) -> Tensor:
        a.count += 1
        b.count *= 2
        a.hidden, b.hidden = b.hidden + x, a.hidden - x
        return a.hidden * a.count + b.hidden * b.count

    fast = hostjit.compile(exchange, fallback=True)
    x = torch.randn(3)
    states = [State(torch.randn(3), count) for count in range(5)]
    twins = copy.deepcopy(states)
    for _ in range(2):
        for a in range(5):
            for b in range(5):
                expected = exchange(twins[a], twins[b], x)
                torch.testing.assert_close(fast(states[a], states[b], x), expected)
                assert_same([state_of(s) for s in states], [state_of(s) for s in twins])


def test_one_that_is_also_found_outside() -> None:
    states = [State(torch.randn(3), count) for count in range(5)]
    twins = copy.deepcopy(states)

    def make_function(known: list[State]) -> Callable[..., Tensor]:
        def advance_all(state: State, x: Tensor) -> Tensor:
            state.count += 1
            state.hidden = state.hidden + x
            return state.hidden + known[0].hidden * known[0].count

        return advance_all

    fast = hostjit.compile(make_function(states), fallback=True)
    plain = make_function(twins)
    x = torch.randn(3)
    for _ in range(3):
        for state, twin in zip(states, twins, strict=True):
            torch.testing.assert_close(fast(state, x), plain(twin, x))
            assert_same(state_of(state), state_of(twin))


def test_a_tensor_that_two_of_them_share() -> None:
    fast = hostjit.compile(write_in_place, fallback=True)
    shared = [torch.randn(3), torch.randn(3)]
    twins = copy.deepcopy(shared)
    x = torch.randn(3)
    for number in range(10):
        state, twin = State(shared[number % 2]), State(twins[number % 2])
        torch.testing.assert_close(fast(state, x), write_in_place(twin, x))
        torch.testing.assert_close(shared, twins)


def test_a_tensor_that_a_result_gave() -> None:
    """What a call leaves in one object is given by the next in another."""
    fast = hostjit.compile(advance, fallback=True)
    state, twin = State(torch.zeros(3)), State(torch.zeros(3))
    x = torch.randn(3)
    for number in range(10):
        torch.testing.assert_close(fast(state, x), advance(twin, x))
        if number % 3 == 0:
            state, twin = dataclasses.replace(state), dataclasses.replace(twin)
        assert_same(state_of(state), state_of(twin))
