# SPDX-License-Identifier: Apache-2.0
"""What a part hands on, and does not look at, is not compared: containers, numbers, texts."""

from __future__ import annotations

import collections
import io
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from in_parts import counted_captures
from same_values import assert_same
from torch import Tensor
from torch.testing import assert_close

import hostjit
from hostjit import _C

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

MANY = 40
NOWHERE = io.StringIO()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
    random.seed(0)


def agree(
    function: Callable[..., Any],
    call: Callable[[int], tuple[Any, ...]],
    settled: int = 4,
    calls: int = 14,
    **options: Any,
) -> Any:
    """Compare calls of which each brings something else; soon nothing may be captured any more."""
    fast = hostjit.compile(function, **options)
    for number in range(calls):
        args = call(number)
        random.seed(number)
        expected = function(*args)
        random.seed(number)
        with counted_captures() as count:
            found = fast(*args)
        assert_same(found, expected)
        if number >= settled:
            assert count[0] == 0, number
    return fast


class Agent:
    def __init__(self) -> None:
        self.memory: collections.deque[Tensor] = collections.deque(maxlen=1000)
        self.weight = torch.randn(3, requires_grad=True)

    def learn(self, x: Tensor) -> Tensor:
        found = random.sample(self.memory, 2)
        return (torch.stack(found) * self.weight + x).sum()

    def log(self, x: Tensor) -> Tensor:
        y = x * 2
        memory = self.memory
        print(end="")
        return y + len(memory)

    def follow(self, x: Tensor) -> Tensor:
        memory = self.memory
        self.memory.append(x)
        print(end="")
        return x + len(memory)


def test_a_memory_that_grows_is_handed_on() -> None:
    agent = Agent()

    def call(number: int) -> tuple[Any, ...]:
        agent.memory.extend(torch.randn(number + 2, 3))
        return (torch.randn(3),)

    agree(agent.learn, call)


def test_a_variable_of_a_memory_that_grows() -> None:
    agent = Agent()

    def call(number: int) -> tuple[Any, ...]:
        agent.memory.append(torch.randn(3))
        return (torch.randn(3),)

    fast = hostjit.compile(agent.log)
    for number in range(14):
        args = call(number)
        assert_close(fast(*args), agent.log(*args))


def test_a_memory_that_the_code_adds_to_and_hands_on() -> None:
    agent, other = Agent(), Agent()
    fast = hostjit.compile(agent.follow)
    for _ in range(12):
        x = torch.randn(3)
        assert_close(fast(x), other.follow(x))
        assert_close(list(agent.memory), list(other.memory))


@pytest.mark.parametrize("make", [torch.tensor, torch.as_tensor, torch.asarray])
@pytest.mark.parametrize("kind", [int, float, bool])
def test_tensors_of_many_numbers(make: Callable[..., Tensor], kind: type) -> None:
    def function(x: Tensor, values: list[Any]) -> Tensor:
        return x * make(values, dtype=torch.float32) + 1

    def call(number: int) -> tuple[Any, ...]:
        return torch.randn(MANY), [kind(random.randrange(10)) for _ in range(MANY)]

    assert len(agree(function, call).specializations) == 1


def test_tensors_of_numbers_beside_tensors() -> None:
    def function(batch: list[tuple[Tensor, int, float, bool]]) -> tuple[Tensor, Tensor]:
        states, actions, rewards, ends = zip(*batch, strict=True)
        stacked = torch.stack(states)
        chosen = stacked.gather(1, torch.tensor(actions)[:, None])
        return chosen * torch.tensor(rewards)[:, None], torch.tensor(ends)

    def call(number: int) -> tuple[Any, ...]:
        item = random.randrange
        return ([(torch.randn(4), item(4), item(9) / 9, item(2) < 1) for _ in range(17)],)

    agree(function, call)


def test_few_numbers_are_no_break() -> None:
    def function(x: Tensor, values: list[float]) -> Tensor:
        return x * torch.tensor(values)

    values = [float(number) for number in range(16)]
    assert_close(
        hostjit.compile(function, fallback=False)(torch.ones(16), values), torch.tensor(values)
    )


def test_many_numbers_are_no_break_where_that_is_an_error() -> None:
    def function(x: Tensor, values: list[float]) -> Tensor:
        return x * torch.tensor(values)

    values = [float(number) for number in range(MANY)]
    by_hostjit = hostjit.compile(function, fallback=False)
    by_backend = torch.compile(function, backend="hostjit", fullgraph=True)
    for fast in (by_hostjit, by_backend):
        assert_close(fast(torch.ones(MANY), values), torch.tensor(values))


def test_many_numbers_of_an_object_are_compared() -> None:
    class Table:
        def __init__(self) -> None:
            self.values = [float(number) for number in range(MANY)]

        def look(self, x: Tensor) -> Tensor:
            return x * torch.tensor(self.values)

    table = Table()
    fast = hostjit.compile(table.look, fallback=False)
    for number in range(3):
        table.values[number] += 1
        assert_close(fast(torch.ones(MANY)), table.look(torch.ones(MANY)))


def test_texts_and_structures_that_are_handed_on() -> None:
    def function(x: Tensor, log: list[Any], info: dict[str, Any]) -> Any:
        y = x * 2
        print(info["text"], log, file=NOWHERE)
        return y, len(info)

    def call(number: int) -> tuple[Any, ...]:
        inside = [number, ("a" * number, None)] * number
        return torch.randn(3), inside, {"text": f"step {number}", "more": inside}

    agree(function, call)


def test_what_is_looked_at_is_compared() -> None:
    def function(x: Tensor, items: list[Any], info: dict[str, Any]) -> Any:
        y = x * 2 if items[1] else x * 3
        if info["kind"] == "sum":
            y = y + len(items[2])
        if isinstance(items[3], str):
            y = y - 1
        print(end="")
        return y, items[0]

    fast = hostjit.compile(function)
    for number in range(40):
        pick = random.Random(number)
        items = [
            pick.random(),
            pick.choice([True, False]),
            [0] * pick.randrange(3),
            pick.choice(["a", 1, None]),
        ]
        args = torch.randn(3), items, {"kind": pick.choice(["sum", "mean"])}
        assert_close(fast(*args)[0], function(*args)[0])
        assert fast(*args)[1] == items[0]


def test_keywords() -> None:
    def function(x: Tensor, *, scale: float, name: str) -> Any:
        y = x * scale
        print(end="")
        return y, name

    fast = hostjit.compile(function)
    for number in range(6):
        x = torch.randn(3)
        found = fast(x, scale=2.0, name=f"n{number}")
        assert_close(found[0], x * 2)
        assert found[1] == f"n{number}"
    assert len(fast.specializations) == 1


@pytest.mark.parametrize(
    ("unread", "words"),
    [
        ([(0,)], "a tensor is said to be unread"),
        ([(2,)], "no such argument"),
        ([()], "no such argument"),
        ([(1, 3)], "number 3 is said to be unread"),
    ],
)
def test_what_cannot_be_unread(unread: list[tuple[int, ...]], words: str) -> None:
    with pytest.raises(hostjit.Error, match=words):
        _C.Specialization(
            args=(torch.ones(1), [1, "a"]),
            kwargs={},
            program=None,
            bindings=(),
            output=("object", None),
            unread=unread,
        )


def test_numbers_are_counted_with_those_that_are_unread() -> None:
    made = _C.Specialization(
        args=([1, 2.0, True, 3], 4),
        kwargs={},
        program=None,
        bindings=(),
        output=("object", "answered"),
        route=lambda *_: "answered",
        numbers=[(int, None, None, 2)],
        unread=[(0, 0), (0, 1), (0, 2)],
    )
    function = _C.CompiledFunction(lambda *_: "eager", _Owner(made))
    for items, last, answer in (
        ([1, 2.0, True, 3], 4, "answered"),
        ([8, 0.5, False, 9], 4, "answered"),
        (["x", 2.0, True, 3], 4, "eager"),
        ([1, 2.0, True, 3.0], 4, "eager"),
        ([1, 2.0, True, 3], 5, "eager"),
        ([1, 2.0, True], 4, "eager"),
    ):
        assert function(items, last) == answer


class _Owner:
    has_original = False

    def __init__(self, made: _C.Specialization) -> None:
        self._made: _C.Specialization | None = made

    def specialize(self, *_: Any) -> Any:
        made, self._made = self._made, None
        return made
