# SPDX-License-Identifier: Apache-2.0
"""Tuples of ints that differ from call to call, looked up where they may be absent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit

COMPILERS: dict[str, Callable[[Any], Any]] = {
    "compile": hostjit.compile,
    "backend": lambda function: torch.compile(function, backend="hostjit"),
}
Pairs = list[tuple[int, int]]
# Each is there from its second call in a row on.
CALLS: list[Pairs] = [
    *[[(3, -1)]] * 4,
    *[[(2, -1), (3, -1)]] * 3,
    *[[(1, -1), (2, -1), (3, -1)]] * 3,
    *[[(0, -1), (1, -1), (2, -1), (3, -1)]] * 4,
    *[[(0, -1), (1, -1)]] * 3,
    *[[(0, -1), (3, -1)]] * 3,
]


class Contacts:
    """Impulses by pairs of bodies, which the next call begins with."""

    def __init__(self) -> None:
        self.impulses: dict[tuple[int, int], Tensor] = {}

    def step(self, pairs: Pairs, x: Tensor) -> list[Tensor]:
        found = [self.impulses.get((i, j), torch.zeros(2)) + x for i, j in pairs]
        self.impulses = {(i, j): impulse for (i, j), impulse in zip(pairs, found, strict=True)}
        return found


class Visits:
    """Pairs that the call before has seen."""

    def __init__(self) -> None:
        self.seen: set[tuple[int, int]] = set()

    def step(self, pairs: Pairs, x: Tensor) -> list[Tensor]:
        found = [x * 2 if (i, j) in self.seen else x for i, j in pairs]
        self.seen = {(i, j) for i, j in pairs}
        return found


@pytest.mark.parametrize("way", list(COMPILERS))
@pytest.mark.parametrize("kind", [Contacts, Visits])
def test_each_call_finds_what_is_there(kind: type[Any], way: str) -> None:
    expected, found = kind(), kind()
    fast = COMPILERS[way](found.step)
    for pairs in CALLS:
        x = torch.rand(2)
        assert_close(fast(pairs, x), expected.step(pairs, x))


KEYS = ["idle->hold", "Y-A", "a, b", "two words", "x:1", "[a", "a.b", "\u00e9\u2192", "it's"]


@pytest.mark.parametrize("key", KEYS)
def test_a_number_at_a_key_of_any_text_is_open(key: str) -> None:
    """Once it has differed, one program serves all its values."""
    counts = {key: 0, "idle": 5}

    def count(x: Tensor) -> Tensor:
        counts[key] += 1
        return x * counts[key]

    fast = hostjit.compile(count, fallback=False)
    x = torch.rand(2)
    for n in range(1, 12):
        assert_close(fast(x), x * n)
    assert counts == {key: 11, "idle": 5}
    assert len(fast.specializations) <= 2
