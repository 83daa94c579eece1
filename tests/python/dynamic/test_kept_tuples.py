# SPDX-License-Identifier: Apache-2.0
"""State in tuples and slots of tensors and numbers: one program for any of them."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*(runs (in parts|eagerly)|keeps meeting)")


class State(NamedTuple):
    hidden: Tensor
    step: int
    rate: float


class Named:
    def __init__(self) -> None:
        self.state = State(torch.zeros(3), 0, 1.0)

    def step(self, x: Tensor) -> Any:
        hidden, step, rate = self.state
        self.state = State(torch.tanh(hidden + x) * rate, step + 1, rate * 0.99)
        return self.state.hidden, step, self.state.rate


class ByName(Named):
    def step(self, x: Tensor) -> Any:
        hidden = torch.tanh(self.state.hidden + x) * self.state.rate
        self.state = self.state._replace(hidden=hidden, step=self.state.step + 1)
        return hidden * 1, self.state.step


class Plain:
    def __init__(self) -> None:
        self.state: Any = (torch.zeros(3), 0, 1.0)

    def step(self, x: Tensor) -> Any:
        hidden, step, rate = self.state
        self.state = (torch.tanh(hidden + x) * rate, step + 1, rate * 0.99)
        return self.state[0], step


class InModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state: Any = (torch.zeros(3), 0, 1.0)

    def step(self, x: Tensor) -> Any:
        hidden, step, rate = self.state
        self.state = (torch.tanh(hidden + x) * rate, step + 1, rate * 0.99)
        return self.state[0], step


class Nested:
    def __init__(self) -> None:
        self.state: Any = ((torch.zeros(3), 0), {"rate": (1.0, "fixed")})

    def step(self, x: Tensor) -> Any:
        (hidden, step), rates = self.state
        rate, name = rates["rate"]
        hidden = torch.tanh(hidden + x) * rate
        self.state = ((hidden, step + 1), {"rate": (rate * 0.99, name)})
        return hidden, step


class InAList:
    def __init__(self) -> None:
        self.states: list[Any] = [(torch.zeros(3), 0), (torch.ones(3), 5)]

    def step(self, x: Tensor) -> Any:
        self.states = [(hidden * 0.5 + x, step + 1) for hidden, step in self.states]
        return self.states[0][0] + self.states[1][0], self.states[1][1]


class InADict:
    def __init__(self) -> None:
        self.states: dict[str, Any] = {"a": (torch.zeros(3), 0), "b": (torch.ones(3), 5)}

    def step(self, x: Tensor) -> Any:
        hidden, step = self.states["b"]
        self.states["b"] = (hidden * 0.5 + x, step + 1)
        return hidden + x, step


class OfSomeItems:
    def __init__(self) -> None:
        self.state: Any = (torch.zeros(3), 0, torch.ones(3), 2.0)

    def step(self, x: Tensor) -> Any:
        result = x * self.state[1] + self.state[2]
        self.state = (x, self.state[1] + 1, self.state[2] * 0.5, 2.0)
        return result


@dataclasses.dataclass(slots=True)
class Slots:
    hidden: Tensor
    step: int
    rate: float


class SlotsReplaced:
    def __init__(self) -> None:
        self.state = Slots(torch.zeros(3), 0, 1.0)

    def step(self, x: Tensor) -> Any:
        state = self.state
        hidden = torch.tanh(state.hidden + x) * state.rate
        self.state = Slots(hidden, state.step + 1, state.rate * 0.99)
        return hidden * 1, state.step


class SlotsChanged(SlotsReplaced):
    def step(self, x: Tensor) -> Any:
        state = self.state
        state.hidden = torch.tanh(state.hidden + x) * state.rate
        state.step += 1
        state.rate *= 0.99
        return state.hidden * 1, state.step


KINDS = [
    *(Named, ByName, Plain, InModule, Nested, InAList, InADict, OfSomeItems),
    *(SlotsReplaced, SlotsChanged),
]


def compare(
    kind: Callable[[], Any], runtime: str | None = None, calls: int = 14, **options: Any
) -> hostjit.CompiledFunction:
    """Compare calls with eager's; those after the first four take no new program."""
    fast, slow = kind(), kind()
    compiled = hostjit.compile(fast.step, runtime=runtime, **options)
    for call in range(calls):
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x), slow.step(x), rtol=1e-5, atol=1e-6)
        if call == 3:
            programs = len(compiled.specializations)
    assert len(compiled.specializations) == programs
    return compiled


@pytest.mark.parametrize("kind", KINDS)
def test_any_numbers(kind: Callable[[], Any], runtime: str) -> None:
    compare(kind, runtime, fallback=False)


def test_numbers_that_others_put_there(runtime: str) -> None:
    fast, slow = Plain(), Plain()
    compiled = hostjit.compile(fast.step, runtime=runtime)
    x = torch.randn(3)
    values: list[tuple[Any, Any]] = [(0, 1.0), (1, 2.0), (2, 3.0), (3, 4), (4.0, 5.0), (5, 6.0)]
    values += [(True, 1.0), (1 << 70, 1.0), (6, float("nan")), (7, float("inf")), (8, -0.0)]
    values += [(1 << 61, 2.5), (-3, 1e308), (9, 1e-310)]
    for step, rate in 2 * values:
        hidden = torch.randn(3)
        fast.state, slow.state = (hidden, step, rate), (hidden, step, rate)
        found, expected = compiled(x), slow.step(x)
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert type(found[1]) is type(expected[1])
        torch.testing.assert_close(fast.state, slow.state, equal_nan=True)
        assert list(map(type, fast.state)) == list(map(type, slow.state))


def test_slots_that_others_set(runtime: str) -> None:
    fast, slow = SlotsChanged(), SlotsChanged()
    compiled = hostjit.compile(fast.step, runtime=runtime)
    x = torch.randn(3)
    steps = [0, 1, 2, 3, 4.0, 5, True, 1 << 70, 6, float("nan"), 7, -0.0, 1 << 61, -3]
    for step in 2 * steps:
        for state in (fast.state, slow.state):
            state.step = step  # type: ignore[assignment]
        found, expected = compiled(x), slow.step(x)
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert type(found[1]) is type(expected[1])
    for state in (fast.state, slow.state):
        del state.step
    for step_of in (compiled, slow.step):
        with pytest.raises(AttributeError):
            step_of(x)


def test_other_lengths_types_and_tensors() -> None:
    class Sum:
        state: Any = (torch.zeros(3), 0)

        def step(self, x: Tensor) -> Any:
            result = x
            for item in self.state:
                result = result + item
            return result, len(self.state), len(type(self.state).__name__)

    sums = Sum()
    compiled = hostjit.compile(sums.step)
    ones, x = torch.ones(3), torch.randn(3)
    states: list[Any] = [(ones, step) for step in range(4)]
    states += [(ones, 1, 2), (ones, ones), (1, ones), (ones, 2.5), State(ones, 1, 2.0), (ones, 7)]
    states += [(ones.double(), 7), (torch.ones(1), 8), (x, 9), ((), 3)[1:], [ones, 10], (ones, 11)]
    for state in 2 * states:
        sums.state = state
        torch.testing.assert_close(compiled(x), sums.step(x))


def test_one_tuple_at_two_places() -> None:
    class Two:
        def __init__(self) -> None:
            self.a: Any = (torch.zeros(3), 0)
            self.b = self.a

        def step(self, x: Tensor) -> Any:
            return x * self.a[1] + self.b[1] + self.a[0] - self.b[0], self.a is self.b

    two = Two()
    compiled = hostjit.compile(two.step)
    x = torch.randn(3)
    for number in range(6):
        two.a = (torch.randn(3), number)
        for other in (two.a, (torch.randn(3), number), (two.a[0], number + 1), two.a):
            two.b = other
            torch.testing.assert_close(compiled(x), two.step(x))


def test_a_tuple_that_is_returned() -> None:
    class Returns(Plain):
        def step(self, x: Tensor) -> Any:
            before = self.state
            self.state = (before[0] + x, before[1] + 1, before[2])
            return before

    fast, slow = Returns(), Returns()
    compiled = hostjit.compile(fast.step)
    for _ in range(8):
        x, given, expected = torch.randn(3), fast.state, slow.state
        assert compiled(x) is given
        assert slow.step(x) is expected
        torch.testing.assert_close(fast.state, slow.state)


def test_numbers_that_decide(runtime: str) -> None:
    class Decides(Plain):
        def step(self, x: Tensor) -> Any:
            hidden, step, rate = self.state
            if step % 4 == 0:
                hidden = torch.zeros(3)
            self.state = (hidden + x, step + 1, rate)
            return self.state[0] * rate

    fast, slow = Decides(), Decides()
    compiled = hostjit.compile(fast.step, runtime=runtime, fallback=False)
    for _ in range(20):
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x), slow.step(x))
    assert len(compiled.specializations) <= 5


def test_items_that_are_replaced_beside_numbers(runtime: str) -> None:
    held = types.SimpleNamespace(state=(torch.ones(3), 1, "a", None))

    def function(x: Tensor) -> Tensor:
        tensor, number, text, nothing = held.state
        return (x + tensor) * number * len(text) + (nothing or 0)

    compiled = hostjit.compile(function, runtime=runtime)
    x = torch.randn(3)
    for number in range(6):
        for text, other in (("a", None), ("".join(["a"]), None), ("bb", 3), ("a", 2.0)):
            held.state = (torch.randn(3), number, text, other)  # type: ignore[assignment]
            torch.testing.assert_close(compiled(x), function(x))


@torch.enable_grad()
def test_gradients_of_state(runtime: str) -> None:
    class Learns:
        def __init__(self) -> None:
            self.weight = torch.ones(3, requires_grad=True)
            self.state: Any = (torch.zeros(3), 1.0)

        def step(self, x: Tensor) -> Tensor:
            hidden, rate = self.state
            found = torch.tanh(hidden + x * self.weight) * rate
            self.state = (found.detach(), rate * 0.9)
            return found.sum()

    fast, slow = Learns(), Learns()
    compiled = hostjit.compile(fast.step, runtime=runtime)
    for _ in range(6):
        x = torch.randn(3)
        for step, weight in ((compiled, fast.weight), (slow.step, slow.weight)):
            step(x).backward()
            assert weight.grad is not None
        torch.testing.assert_close(fast.weight.grad, slow.weight.grad)
        torch.testing.assert_close(fast.state, slow.state)


class Twice:
    def __init__(self) -> None:
        self.a: Any = None
        self.b: Any = None
        self.count = 0

    def of_constants(self, x: Tensor) -> Tensor:
        self.a = self.b = (None, 1)
        return x + 1

    def of_a_number(self, x: Tensor) -> Tensor:
        self.count += 1
        self.a = (None, self.count)
        self.b = self.a
        return x + 1

    def in_lists(self, x: Tensor) -> Tensor:
        both = (1, 2.5)
        self.a, self.b = [both], [both]
        return x + 1


@pytest.mark.parametrize("function", [Twice.of_constants, Twice.of_a_number, Twice.in_lists])
@pytest.mark.parametrize(
    "compile", [hostjit.compile, functools.partial(torch.compile, backend="hostjit")]
)
def test_one_tuple_that_is_left_at_two_places(function: Any, compile: Any) -> None:
    twice = Twice()
    compiled = compile(function)
    for _ in range(4):
        compiled(twice, torch.ones(2))
        if function is Twice.in_lists:
            twice.a, twice.b = twice.a[0], twice.b[0]
        assert twice.a is twice.b
