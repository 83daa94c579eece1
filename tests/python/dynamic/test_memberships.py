# SPDX-License-Identifier: Apache-2.0
"""`constant in values` where values are open numbers, or objects with an `__eq__` of their own."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit


class Equal:
    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return self.value == other

    __hash__ = None  # type: ignore[assignment]


class Counter:
    def __init__(self) -> None:
        self.count = -1


EXPRESSIONS: dict[str, Callable[[int], bool]] = {
    "in a tuple": lambda n: 3 in (n, 1),
    "in a list": lambda n: 4 in [1, n + 1],
    "in a deque": lambda n: 3 in deque([n, 1]),
    "in a list of a tuple": lambda n: 3 in [*(n, 1)],
    "not in": lambda n: 3 not in (n, 1),
    "in a shape": lambda n: 3 in torch.ones(n, 2).shape,
    "a shape": lambda n: torch.Size([3]) in [torch.ones(n).shape],
    "a tuple": lambda n: (3, 1) in [(n, 1)],
    "a list": lambda n: [3] in ([n],),
    "a float": lambda n: 1.5 in (n * 0.5, 2.0),
    "operator": lambda n: operator.contains((n, 1), 3),
    "method": lambda n: (n, 1).__contains__(3),
    "an object": lambda n: 3 in (Equal(n), Equal(1)),
    "after others": lambda n: 3 in (None, "3", torch.nn.ReLU, n),
    "values": lambda n: 3 in {"a": n}.values(),
    "not a number": lambda n: float("nan") in (n, float("nan")),
    "the same": lambda n: torch.nan in (n, torch.nan),
}
NUMBERS = (0, 1, 2, 3, 4, 2, 3, 5)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_of_arguments(name: str) -> None:
    tell = EXPRESSIONS[name]
    fast = hostjit.compile(lambda x, n: (x * 2, tell(n)))
    for n in NUMBERS:
        assert fast(torch.ones(2), n)[1] is tell(n), n


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_of_sizes(name: str) -> None:
    tell = EXPRESSIONS[name]
    fast = hostjit.compile(lambda x: (x * 2, tell(x.shape[0])))
    for n in NUMBERS:
        assert fast(torch.ones(n))[1] is tell(n), n


@pytest.mark.parametrize("compile", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.filterwarnings("ignore:hostjit")
def test_of_attributes(name: str, compile: Callable[..., Any]) -> None:
    tell = EXPRESSIONS[name]

    def step(x: Tensor, counter: Counter) -> tuple[Tensor, bool]:
        counter.count += 1
        return x * 2, tell(counter.count)

    fast = compile(step)
    counter = Counter()
    for n in range(6):
        assert fast(torch.ones(2), counter)[1] is tell(n), n
