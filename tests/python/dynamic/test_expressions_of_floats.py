# SPDX-License-Identifier: Apache-2.0
"""What code computes from an open float, and decides by it, is Python's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

TABLE = torch.arange(12.0).reshape(3, 4)
VALUES = (0.0, 2.5, 1.5, 2.0, 1.5, 0.5, 4.5, -1.5, 3.0, 1e10, 0.3)

EXPRESSIONS: dict[str, Callable[[float], Any]] = {
    "remainder is": lambda n: n % 3 == 1.5,
    "remainder is more": lambda n: n % 1 > 0.2,
    "no remainder": lambda n: not n % 1,
    "remainder or not": lambda n: 1 if n % 1 else 2,
    "truth": lambda n: bool(n % 1),
    "half": lambda n: not n % 0.5,
    "of ints": lambda n: int(n * 2) % 2,
    "remainder of a remainder": lambda n: n % 3 % 1,
    "negative": lambda n: -n % 3,
    "by itself": lambda n: 7 % (n + 20),
    "in": lambda n: n % 3 in (1.5, 0.5),
    "count": lambda n: [n % 3].count(1.5),
    "parts": lambda n: n // 2 * 2 + n % 2 == n,
    "divmod": lambda n: divmod(n, 2),
    "fmod": lambda n: math.fmod(n, 1) == 0.5,
    "is an integer": lambda n: n.is_integer(),
    "quotient": lambda n: n // 2 > 0.5,
    "truncated": lambda n: n == int(n),
    "sum": lambda n: (n + 0.1) - 0.1 == n,
    "product": lambda n: n * 1e300 * 1e10 == math.inf,
    "list of indices": lambda n: TABLE[[0, n % 3]],
    "tensor": lambda n: torch.ones(2) * (n % 3),
    "filled": lambda n: torch.full((2,), n % 3),
    "sorted": lambda n: sorted([n % 3, 1, 0.7]),
}


class Clock:
    def __init__(self, time: float) -> None:
        self.time = time


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, Tensor):
        return found.dtype == expected.dtype and torch.equal(found, expected)
    return type(found) is type(expected) and bool(found == expected)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_arguments(name: str) -> None:
    compute = EXPRESSIONS[name]
    fast = hostjit.compile(lambda x, n: (x * 2, compute(n)))
    for n in VALUES:
        assert same(fast(torch.ones(2), n)[1], compute(n)), n


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_attributes(name: str) -> None:
    compute = EXPRESSIONS[name]
    fast = hostjit.compile(lambda x, clock: (x * 2, compute(clock.time)))
    for n in VALUES:
        assert same(fast(torch.ones(2), Clock(n))[1], compute(n)), n
