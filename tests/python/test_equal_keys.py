# SPDX-License-Identifier: Apache-2.0
"""Keys and elements of classes that say what is equal, in dicts and sets."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import hostjit


class Key:
    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: int


@dataclasses.dataclass(unsafe_hash=True)
class Hashed:
    value: int


@dataclasses.dataclass(frozen=True, eq=False)
class Itself:
    value: int


@dataclasses.dataclass(frozen=True)
class Rounded:
    value: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rounded) and self.value // 2 == other.value // 2

    def __hash__(self) -> int:
        return self.value // 2


class Pair(NamedTuple):
    first: Any
    second: Any


class Caseless(str):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __hash__(self) -> int:
        return hash(self.lower())


MAKERS: dict[str, Callable[[int], Any]] = {
    "key": Key,
    "frozen": Frozen,
    "hashed": Hashed,
    "itself": Itself,
    "rounded": Rounded,
    "tuple": lambda value: (Key(value), 1),
    "named": lambda value: Pair(Hashed(value), Key(1)),
    "set": lambda value: frozenset({Key(value)}),
    "str": lambda value: Caseless("Aa"[value % 2] + "xyz"[value // 2]),
}


def lookup(d: dict[Any, float], k: Any) -> Any:
    try:
        return d[k]
    except KeyError:
        return "none"


def changed(d: dict[Any, float], k: Any) -> Any:
    d[k] = 5.0
    return len(d), d.setdefault(k, 8.0)


READS: dict[str, Callable[[dict[Any, float], Any], Any]] = {
    "get": lambda d, k: d.get(k, 7.0),
    "lookup": lookup,
    "in": lambda d, k: (k in d, k in {**d}, k in set(d), k in list(d), k in tuple(d)),
    "items": lambda d, k: (k, 2.0) in d.items(),
    "sets": lambda d, k: (len(set(d) | {k}), len(set(d) & {k}), set(d).isdisjoint({k})),
    "count": lambda d, k: (list(d).count(k), collections.Counter([*d, k])[k]),
    "equal": lambda d, k: ([a == k for a in d], [a != k for a in d], d == {k: 2.0}),
    "copies": lambda d, k: collections.defaultdict(float, d)[k],
}
CHANGES: dict[str, Callable[[dict[Any, float], Any], Any]] = {
    "changed": changed,
    "pop": lambda d, k: d.pop(k, 6.0),
    "setdefault": lambda d, k: d.setdefault(k, 8.0),
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", [*READS, *CHANGES])
@pytest.mark.filterwarnings("ignore:hostjit")
def test_keys(name: str, kind: str) -> None:
    make, use = MAKERS[kind], (READS | CHANGES)[name]
    known, expected_known = ({make(1): 2.0, make(2): 3.0} for _ in range(2))

    def step(x: Tensor, key: Any) -> Any:
        return x * 2, use(known, key)

    fast = hostjit.compile(step)
    for value in (1, 2, 3, 1, 3, 0):
        assert fast(torch.ones(2), make(value))[1] == use(expected_known, make(value)), value
    assert len(known) == len(expected_known)


@pytest.mark.parametrize("compile", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.filterwarnings("ignore:hostjit")
def test_keys_that_the_call_makes(kind: str, compile: Callable[..., Any]) -> None:
    make = MAKERS[kind]
    known = {make(1): 2.0, make(2): 3.0}

    def step(x: Tensor, value: int) -> Any:
        return x * 2, [read(known, make(value)) for read in READS.values()]

    fast = compile(step)
    for value in (1, 2, 3, 1, 3, 0):
        assert fast(torch.ones(2), value)[1] == step(torch.ones(2), value)[1], value
