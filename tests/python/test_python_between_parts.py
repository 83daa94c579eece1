# SPDX-License-Identifier: Apache-2.0
"""Lines that stay Python's, and what is behind them: one program for any call."""

from __future__ import annotations

import collections
import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from in_parts import counted_captures
from same_values import assert_same
from torch import Tensor, nn

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

NOWHERE = io.StringIO()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


class Agent:
    """Keeps what methods add to, and asks how much that is."""

    def __init__(self) -> None:
        self.net = nn.Linear(3, 2)
        self.target = nn.Linear(3, 2)
        self.log: list[Any] = []
        self.memory: collections.deque[Tensor] = collections.deque(maxlen=9)
        self.named: dict[int, Tensor] = {}
        self.callbacks: list[Any] = [Counter(), Rows()]

    def logs_behind_a_print(self, x: Tensor) -> Tensor:
        y = x * 2
        print("half way", file=NOWHERE)
        self.log.append(y)
        return y + 1

    def waits_for_a_length(self, x: Tensor) -> Tensor:
        self.memory.append(x)
        self.named[len(self.log)] = x
        if len(self.memory) < 4:
            return x
        return x * len(self.memory) + self.net(x).sum()

    def counts(self, x: Tensor) -> Tensor:
        count = len(self.log)
        self.log = [*self.log, count]
        return x * count

    def loads(self, x: Tensor) -> Tensor:
        y = self.target(x)
        self.target.load_state_dict(self.net.state_dict())
        return y + self.target(x)

    def mixes(self, x: Tensor) -> Tensor:
        mine, other = self.target.state_dict(), self.net.state_dict()
        for name in other:
            mine[name] = other[name] * 0.5 + mine[name] * 0.5
        self.target.load_state_dict(mine)
        return self.target(x)

    def calls_back(self, x: Tensor) -> Tensor:
        y = (x * 4).round().sum()  # no rounding errors in texts
        total = y * 0
        for callback in self.callbacks:
            callback(y)
            total = total + y
        return total * 2

    def gathers(self, x: Tensor) -> Tensor:
        y = self.net(x)
        numbers = [number % 2 for number in range(20)]
        chosen = y.gather(0, places(numbers)[:, None])
        return chosen.add(places(numbers)[:, None], alpha=2)

    def says(self, x: Tensor) -> Tensor:
        y = (x * 4).round().sum()
        value = y.item()
        text = f"value {value:.3f}"
        self.log.append(text)
        other = str(value)
        self.log.append(other)
        return y * value


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, y: Tensor) -> None:
        self.count += 1


class Rows:
    def __init__(self) -> None:
        self.rows: list[str] = []

    def __call__(self, y: Tensor) -> None:
        text = f"y {y.item():.4f}"
        self.rows.append(text)


@torch._dynamo.disable
def places(numbers: list[int]) -> Tensor:
    return torch.tensor(numbers)


METHODS: list[Callable[[Agent, Tensor], Any]] = [
    Agent.logs_behind_a_print,
    Agent.waits_for_a_length,
    Agent.loads,
    Agent.mixes,
    Agent.calls_back,
    Agent.gathers,
    Agent.says,
]


def state_of(agent: Agent) -> Any:
    kept = (agent.log, list(agent.memory), agent.named, agent.target.state_dict())
    return (*kept, [vars(callback) for callback in agent.callbacks])


@pytest.mark.parametrize("gradients", [False, True], ids=["plain", "gradients"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_agrees_with_eager_and_settles(method: Callable[..., Any], gradients: bool) -> None:
    agent = Agent()
    other = copy.deepcopy(agent)
    fast = hostjit.compile(getattr(agent, method.__name__))
    with torch.set_grad_enabled(gradients):
        for number in range(20):
            x = torch.randn(4, 3) if method is Agent.gathers else torch.randn(3)
            with counted_captures() as count:
                found = fast(x)
            assert_same(found, method(other, x))
            assert number < 12 or count[0] == 0, number
    assert_same(state_of(agent), state_of(other))


@pytest.mark.parametrize("gradients", [False, True], ids=["plain", "gradients"])
def test_a_list_that_is_made_anew_as_it_grows(gradients: bool) -> None:
    agent, other = Agent(), Agent()
    fast = hostjit.compile(agent.counts)
    with torch.set_grad_enabled(gradients):
        for _ in range(14):
            x = torch.randn(3)
            assert_same(fast(x), other.counts(x))
    assert agent.log == other.log


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_through_torch_compile(method: Callable[..., Any]) -> None:
    agent = Agent()
    other = copy.deepcopy(agent)
    fast = torch.compile(getattr(agent, method.__name__), backend="hostjit")
    for _ in range(6):
        x = torch.randn(4, 3) if method is Agent.gathers else torch.randn(3)
        assert_same(fast(x), method(other, x))
    assert_same(state_of(agent), state_of(other))


def two_loops(x: Tensor, seen: list[float]) -> Tensor:
    total = x * 0
    for row in x:
        if row.sum() > 0:
            print("positive", file=NOWHERE)
        total = total + row
    for row in total:
        seen.append(round(row.sum().item(), 3))
    return total


def returns_within(x: Tensor, seen: list[float]) -> Tensor:
    for row in x:
        print("row", file=NOWHERE)
        if len(seen) > 2:
            return row
        seen.append(0.5)
    return x


def begins_with_the_loop(x: Tensor, seen: list[float]) -> Any:
    for row in x:
        print("row", file=NOWHERE)
        seen.append(row.tanh().sum().item())
    return x.sum()


def ends_with_the_loop(x: Tensor, seen: list[float]) -> None:
    y = x.exp() * 2
    for index, row in enumerate(y):
        print("row", file=NOWHERE)
        seen.append(index + row.sum().item())


def nested(x: Tensor, seen: list[float]) -> Tensor:
    total = x[0] * 0
    for row in x:
        for item in row:
            print("item", file=NOWHERE)
            total = total + item
        seen.append(total.sum().item())
    return total.exp()


def in_a_comprehension(x: Tensor, seen: list[float]) -> Tensor:
    scale = x.mean()
    for row in x:
        seen += [(value * scale).item() for value in row]
        print("row", file=NOWHERE)
    return scale * 2


LOOPS = [
    two_loops,
    returns_within,
    begins_with_the_loop,
    ends_with_the_loop,
    nested,
    in_a_comprehension,
]


@pytest.mark.parametrize("gradients", [False, True], ids=["plain", "gradients"])
@pytest.mark.parametrize("function", LOOPS, ids=lambda function: function.__name__)
def test_loops_with_lines_that_cannot_be_followed(
    function: Callable[..., Any], gradients: bool
) -> None:
    fast = hostjit.compile(function)
    for number in range(8):
        x = torch.randn(3 + number % 2, 2, requires_grad=gradients)
        seen: tuple[list[float], list[float]] = [], []
        found, expected = fast(x, seen[0]), function(x, seen[1])
        assert seen[0] == pytest.approx(seen[1], rel=1e-5)
        assert_same(found, expected)
        if gradients and expected is not None:
            pair = [torch.autograd.grad(each.sum(), x)[0] for each in (found, expected)]
            assert_same(*pair)


def test_texts_that_a_whole_function_is_given_are_no_break() -> None:
    weights = {"w_a": torch.ones(3), "w_b": torch.zeros(3)}

    def function(x: Tensor, name: str) -> Tensor:
        return x * weights[f"w_{name}"]

    fast = hostjit.compile(function, fallback=False)
    for name in ("a", "b", "a"):
        x = torch.randn(3)
        assert_same(fast(x, name), function(x, name))
