# SPDX-License-Identifier: Apache-2.0
"""Classes derived from numbers, methods of the types of numbers, and what `range` refuses."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import hostjit


class Metres(float):
    def __add__(self, other: float) -> Metres:
        return Metres(float.__add__(self, other))

    def __mul__(self, other: float) -> Metres:
        return Metres(super().__mul__(other))


EXPRESSIONS: dict[str, Callable[[float], Any]] = {
    "sum": lambda n: Metres(1.5) + n,
    "product": lambda n: Metres(1.5) * n,
    "of the number": lambda n: Metres(n) + 1,
    "float": lambda n: float.__add__(n, 1.0),
    "int": lambda n: int.__add__(int(n), 1),
    "no number": lambda n: float.__add__(n, "1"),  # type: ignore[operator]
    "bound": lambda n: n.__add__(1.0),
    "reflected": lambda n: (2).__rsub__(int(n)),
    "range": lambda n: list(range(n)),  # type: ignore[call-overload]
    "range to": lambda n: list(range(0, 10, n + 1)),  # type: ignore[call-overload]
    "length of a range": lambda n: len(range(n)),  # type: ignore[arg-type]
    "range of an int": lambda n: list(range(int(n))),
    "repeat": lambda n: list(itertools.repeat(1, n)),  # type: ignore[call-overload]
}


def result(call: Callable[..., Any], *args: Any) -> Any:
    try:
        return call(*args)
    except (TypeError, ValueError) as error:
        return type(error)


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.filterwarnings("ignore:hostjit")
def test_expressions(name: str) -> None:
    compute = EXPRESSIONS[name]
    fast = hostjit.compile(lambda x, n: (x * 2, compute(n))[1])
    for n in (0.0, 1.5, 2.0, 3.5, 1.5):
        found, expected = result(fast, torch.ones(2), n), result(compute, n)
        assert type(found) is type(expected) and found == expected, n
