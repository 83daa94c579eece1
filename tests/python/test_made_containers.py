# SPDX-License-Identifier: Apache-2.0
"""Containers of classes of all kinds that a call makes and returns, while it counts its steps."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


class Pair(NamedTuple):
    first: Any
    second: Any


class OwnDict(dict[str, Any]):
    pass


class OwnList(list[Any]):
    pass


class OwnSet(set[Any]):
    pass


class OwnTuple(tuple[Any, ...]):
    pass


class OwnOrdered(collections.OrderedDict[str, Any]):
    def __init__(self, **items: Any) -> None:
        super().__init__(items)


class OwnDeque(collections.deque[Any]):
    pass


@dataclasses.dataclass
class Record:
    value: Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any


class Error(ValueError):
    pass


def in_steps(x: Tensor) -> collections.OrderedDict[str, Any]:
    made: collections.OrderedDict[str, Any] = collections.OrderedDict()
    made["a"] = x
    made["b"] = 2
    made.move_to_end("a")
    return made


def a_closure(x: Tensor) -> Tensor:
    count = 2

    def call() -> Tensor:
        nonlocal count
        count += 1
        return x * count

    return call()


MAKERS: dict[str, Callable[[Tensor], Any]] = {
    "OrderedDict": lambda x: collections.OrderedDict(a=x, b=2),
    "OrderedDict in steps": in_steps,
    "Counter": lambda x: collections.Counter("abca"),
    "defaultdict": lambda x: collections.defaultdict(int, {"a": x}),
    "deque": lambda x: collections.deque([x, 2], maxlen=3),
    "own dict": lambda x: OwnDict(a=x),
    "own list": lambda x: OwnList([x, 2]),
    "own set": lambda x: OwnSet({1, 2}),
    "own tuple": lambda x: OwnTuple((x, 2)),
    "own ordered": lambda x: OwnOrdered(a=x),
    "own deque": lambda x: OwnDeque([x, 2]),
    "namedtuple": lambda x: Pair(x, 2),
    "record": lambda x: Record(x),
    "frozen": lambda x: Frozen(x),
    "nested": lambda x: Record({"a": [collections.OrderedDict(a=OwnList([x]))]}),
    "set": lambda x: {1, 2},
    "closure": a_closure,
    "exception": lambda x: Error("a", 2).args,
}


class Counting:
    def __init__(self) -> None:
        self.steps = 0
        self.scale = 0.5

    def whole(self, make: Callable[[Tensor], Any], x: Tensor) -> Any:
        self.steps += 1
        return make(x * self.steps)

    def with_a_float(self, make: Callable[[Tensor], Any], x: Tensor) -> Any:
        self.scale *= 1.5
        made = make(x)
        self.steps += 1
        return made, self.scale


def same(found: Any, expected: Any) -> bool:
    if type(found) is not type(expected):
        return False
    if isinstance(found, Tensor):
        return torch.equal(found, expected)
    if dataclasses.is_dataclass(found):
        return same(vars(found), vars(expected))
    if isinstance(found, dict):
        return same([*found.items()], [*expected.items()])
    if isinstance(found, (list, tuple, collections.deque)):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == expected)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("method", ["whole", "with_a_float"])
@pytest.mark.parametrize("compile", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("kind", MAKERS)
def test_made_while_counting(kind: str, compile: Any, method: str, gradients: bool) -> None:
    make = MAKERS[kind]
    counting, expected = Counting(), Counting()
    fast = compile(getattr(Counting, method))
    with torch.set_grad_enabled(gradients):
        for _ in range(4):
            x = torch.randn(3)
            assert same(fast(counting, make, x), getattr(expected, method)(make, x))
            assert vars(counting) == vars(expected)
