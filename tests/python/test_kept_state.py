# SPDX-License-Identifier: Apache-2.0
"""State that a program keeps outside of its arguments: in new objects at every call, of any size.

A recurrent policy keeps a tuple, a list or a dict of tensors, and starts again with each episode; a
cache grows. One program for each kind of call answers, and nothing is looked for again in Python.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import hostjit
from hostjit.capturing.guards.full_check import GuardCheck
from hostjit.compiling.compilation import Compilation

WARM_UP = 60
EPISODE = 6
X = torch.ones(3)


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.state: Any = None


class InTensor(Policy):
    def forward(self, x: Tensor, done: bool) -> Tensor:
        if self.state is None or done:
            self.state = torch.zeros(4)
        self.state = self.layer(x) + self.state
        return self.state * 2


class InTuple(Policy):
    def forward(self, x: Tensor, done: bool) -> Tensor:
        if self.state is None or done:
            self.state = (torch.zeros(4), torch.zeros(4))
        self.state = (self.layer(x) + self.state[0], self.state[1] + 1)
        return self.state[0] * 2


class InList(Policy):
    def forward(self, x: Tensor, done: bool) -> Tensor:
        if self.state is None or done:
            self.state = [torch.zeros(4), torch.zeros(4)]
        self.state = [self.layer(x) + self.state[0], self.state[1] + 1]
        return self.state[0] * 2


class InDict(Policy):
    def forward(self, x: Tensor, done: bool) -> Tensor:
        if self.state is None or done:
            self.state = {"h": torch.zeros(4), "steps": 0}
        self.state = {"h": self.layer(x) + self.state["h"], "steps": self.state["steps"] + 1}
        return self.state["h"] / self.state["steps"]


@dataclasses.dataclass
class State:
    h: Tensor
    steps: int = 0


class InRecord(Policy):
    def forward(self, x: Tensor, done: bool) -> Tensor:
        if self.state is None or done:
            self.state = State(torch.zeros(4))
        self.state = State(self.layer(x) + self.state.h, self.state.steps + 1)
        return self.state.h / self.state.steps


class Cell:
    def __init__(self, h: Tensor) -> None:
        self.h = h


class Slots:
    __slots__ = ("h",)

    def __init__(self, h: Tensor) -> None:
        self.h = h


class InObject(Policy):
    kind: Any = Cell

    def forward(self, x: Tensor, done: bool) -> Tensor:
        if self.state is None or done:
            self.state = self.kind(torch.zeros(4))
        self.state.h = self.layer(x) + self.state.h
        return self.state.h * 2


class InSlots(InObject):
    kind = Slots

    def forward(self, x: Tensor, done: bool) -> Tensor:
        result = super().forward(x, done)
        self.state = Slots(self.state.h)
        return result


class Pair(NamedTuple):
    h: Tensor
    c: Tensor


class InNamedTuple(Policy):
    def forward(self, x: Tensor, done: bool) -> Tensor:
        if self.state is None or done:
            self.state = Pair(torch.zeros(4), torch.zeros(4))
        self.state = Pair(self.layer(x) + self.state.h, self.state.c + 1)
        return self.state.h * 2 + self.state.c


class Nested(Policy):
    def forward(self, x: Tensor, done: bool) -> Tensor:
        if self.state is None or done:
            self.state = ((torch.zeros(4),), [torch.zeros(4)])
        self.state = ((self.layer(x) + self.state[0][0],), [self.state[1][0] + 1])
        return self.state[0][0] * 2


class Window(Policy):
    def forward(self, x: Tensor, done: bool) -> Tensor:
        if self.state is None or done:
            self.state = []
        self.state.append(self.layer(x))
        self.state = self.state[-3:]
        return torch.stack(self.state).mean(0)


class Queue(Policy):
    def __init__(self) -> None:
        super().__init__()
        self.state = []

    def forward(self, x: Tensor, done: bool) -> Tensor:
        if done:
            self.state.clear()
        self.state.append(self.layer(x))
        if len(self.state) > 3:
            self.state.pop(0)
        return torch.stack(self.state).mean(0)


class Frames(Policy):
    def __init__(self) -> None:
        super().__init__()
        self.state = collections.deque(maxlen=3)

    def forward(self, x: Tensor, done: bool) -> Tensor:
        if done or not self.state:
            self.state.clear()
            self.state.extend(torch.zeros(4) for _ in range(2))
        self.state.append(self.layer(x))
        return torch.cat(list(self.state))


class Cache(Policy):
    def forward(self, x: Tensor, done: bool) -> Tensor:
        if done:
            self.state = None
        new = self.layer(x)[None]
        self.state = new if self.state is None else torch.cat([self.state, new])
        return self.state.mean(0)


def in_cell() -> Callable[[Tensor, bool], Tensor]:
    state = None

    def step(x: Tensor, done: bool) -> Tensor:
        nonlocal state
        if state is None or done:
            state = (torch.zeros(4),)
        state = (state[0] + x,)
        return state[0] * 2

    return step


POLICIES: list[Callable[[], Any]] = [
    *(InTensor, InTuple, InList, InDict, InRecord, InObject, InSlots, InNamedTuple, Nested),
    *(Window, Queue, Frames, Cache, in_cell),
]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what is looked for in Python."""
    found: list[str] = []
    for kind, name in ((GuardCheck, "check"), (GuardCheck, "refresh"), (Compilation, "_compile")):
        original: Any = getattr(kind, name)

        def noting(*args: Any, name: str = name, original: Any = original) -> Any:
            found.append(name)
            return original(*args)

        monkeypatch.setattr(kind, name, noting)
    return found


@pytest.mark.parametrize("make", POLICIES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@torch.no_grad()
def test_one_program_for_each_kind_of_call(
    make: Callable[[], Any], runtime: str, looks: list[str]
) -> None:
    torch.manual_seed(0)
    eager = make()
    torch.manual_seed(0)
    fast = hostjit.compile(make(), runtime=runtime, fallback=False)
    for call in range(2 * WARM_UP):
        if call == WARM_UP:
            looks.clear()
        x, done = torch.randn(4), call % EPISODE == EPISODE - 1
        torch.testing.assert_close(fast(x, done), eager(x, done))
    assert looks == []


@torch.no_grad()
def test_sizes_of_what_a_call_keeps_are_open(looks: list[str]) -> None:
    torch.manual_seed(0)
    model = Cache()
    eager, fast = Cache(), hostjit.compile(model)
    eager.load_state_dict(model.state_dict())
    for _ in range(40):
        x = torch.randn(4)
        torch.testing.assert_close(fast(x, False), eager(x, False))
    assert model.state.shape == (40, 4)
    assert looks.count("_compile") == 3  # without state, with one row, with any


class Tables:
    """Of which one may be another, or in another."""

    def __init__(self) -> None:
        self.a: Any = [torch.ones(3), torch.zeros(3)]
        self.b: Any = [torch.full((3,), 2.0), torch.full((3,), 3.0)]

    def step(self, x: Tensor) -> Tensor:
        self.a[0] = self.a[0] + x
        return self.a[0] * 10 + self.b[0] + (100 if self.a is self.b else 0)

    def known(self, x: Tensor) -> Any:
        return x + 1, self.a

    def parts(self, x: Tensor) -> Any:
        return [x + 1, tuple(self.a)] if isinstance(self.a, list) else [x + 1, self.a]


def _swap(tables: Tables) -> None:
    tables.a, tables.b = tables.b, tables.a


def _alias(tables: Tables) -> None:
    tables.b = tables.a


def _copy(tables: Tables) -> None:
    tables.b = list(tables.b)


def _share(tables: Tables) -> None:
    tables.b = [tables.a[0], tables.a[1]]


def _turn(tables: Tables) -> None:
    tables.a = [tables.a[1], tables.a[0]]


def _both(tables: Tables) -> None:
    tables.a = tables.b = [torch.ones(3), torch.ones(3)]


def _longer(tables: Tables) -> None:
    tables.a = [*tables.a, torch.ones(3)]


def _as_tuple(tables: Tables) -> None:
    tables.b = tuple(tables.b)


CHANGES = (_swap, _alias, _copy, _share, _turn, _both, _swap, _longer, _as_tuple, _copy, _alias)


# Dynamo of torch 2.11 asks of no lists whether they are one.
@pytest.mark.filterwarnings("ignore:hostjit.*runs in parts")
@pytest.mark.parametrize("method", ["step", "known", "parts"])
def test_objects_are_the_ones_that_they_are(method: str) -> None:
    eager, mine = Tables(), Tables()
    fast = hostjit.compile(getattr(mine, method))
    for change in (None, None, *CHANGES):
        if change is not None:
            change(eager)
            change(mine)
        for _ in range(2):
            x = torch.ones(3)
            found, expected = fast(x), getattr(eager, method)(x)
            torch.testing.assert_close(found, expected)
            if method == "known":
                assert found[1] is mine.a
        assert (mine.a is mine.b) is (eager.a is eager.b)
        assert (mine.a[0] is mine.b[0]) is (eager.a[0] is eager.b[0])


class Held:
    """Objects of which one may be another."""

    def __init__(self) -> None:
        self.a, self.b = Cell(torch.ones(3)), Cell(torch.full((3,), 2.0))

    def step(self, x: Tensor) -> Tensor:
        self.a.h = self.a.h + x
        return self.a.h * 10 + self.b.h + (100 if self.a is self.b else 0)

    def renew(self, x: Tensor) -> Tensor:
        self.a = Cell(self.a.h + x)
        return self.a.h * 10 + self.b.h

    def known(self, x: Tensor) -> Any:
        return x + self.b.h, self.a


def _swap_objects(held: Held) -> None:
    held.a, held.b = held.b, held.a


def _alias_objects(held: Held) -> None:
    held.b = held.a


def _copy_object(held: Held) -> None:
    held.b = copy.copy(held.b)


def _share_tensor(held: Held) -> None:
    held.b = Cell(held.a.h)


def _add_attribute(held: Held) -> None:
    held.b = Cell(held.b.h + 1)
    held.b.other = 3  # type: ignore[attr-defined]


OBJECT_CHANGES = (_swap_objects, _alias_objects, _copy_object, _share_tensor, _add_attribute)


@pytest.mark.parametrize("method", ["step", "renew", "known"])
def test_records_are_the_ones_that_they_are(method: str) -> None:
    eager, mine = Held(), Held()
    fast = hostjit.compile(getattr(mine, method))
    for change in (None, *OBJECT_CHANGES, _swap_objects):
        if change is not None:
            change(eager)
            change(mine)
        for _ in range(2):
            x = torch.ones(3)
            found, expected = fast(x), getattr(eager, method)(x)
            if method == "known":
                assert found[1] is mine.a
                found, expected = found[0], expected[0]
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close((mine.a.h, mine.b.h), (eager.a.h, eager.b.h))
        assert (mine.a is mine.b) is (eager.a is eager.b)


def test_an_argument_may_be_what_a_call_keeps() -> None:
    eager, mine = InList(), InList()
    mine.load_state_dict(eager.state_dict())

    def step(model: InList) -> Callable[[Tensor, Any], Any]:
        def run(x: Tensor, given: list[Tensor]) -> Tensor:
            model.state = [model.state[0] + x, model.state[1]]
            given[0] = given[0] * 2
            return model.state[0] + given[0]

        return run

    for model in (eager, mine):
        model.state = [torch.ones(4), torch.zeros(4)]
    fast, slow = hostjit.compile(step(mine)), step(eager)
    for call in range(12):
        x = torch.ones(4)
        lists = [model.state if call % 3 == 2 else [torch.ones(4)] for model in (eager, mine)]
        torch.testing.assert_close(fast(x, lists[1]), slow(x, lists[0]))
        torch.testing.assert_close(mine.state, eager.state)


def test_a_dict_may_be_of_two_objects() -> None:
    eager, mine = Held(), Held()
    fast = hostjit.compile(mine.step)
    for _ in range(2):
        torch.testing.assert_close(fast(X), eager.step(X))
    for held in (eager, mine):
        other = Cell(torch.zeros(3))
        other.__dict__ = held.b.__dict__
        held.b = other
    torch.testing.assert_close(fast(X), eager.step(X))
    for held in (eager, mine):
        held.b.__dict__ = {"h": torch.full((3,), 7.0)}
    torch.testing.assert_close(fast(X), eager.step(X))
