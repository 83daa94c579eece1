# SPDX-License-Identifier: Apache-2.0
"""Functions that Dynamo follows by code of its own: the answer is Python's, or the error."""

from __future__ import annotations

import collections
import inspect
import itertools
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*runs (in parts|eagerly)")

WAYS = {"compile": hostjit.compile, "torch": lambda f: torch.compile(f, backend="hostjit")}


@pytest.fixture(params=WAYS)
def compiled(request: pytest.FixtureRequest) -> Callable[..., Any]:
    torch._dynamo.reset()
    way: Callable[..., Any] = WAYS[request.param]
    return way


def test_the_limit_of_recursion(compiled: Callable[..., Any]) -> None:
    fast = compiled(lambda x: x * sys.getrecursionlimit())
    before = sys.getrecursionlimit()
    try:
        for limit in (before, before + 10):
            sys.setrecursionlimit(limit)
            assert fast(torch.ones(())) == limit
    finally:
        sys.setrecursionlimit(before)


def test_code_of_the_library_that_asks_for_the_limit() -> None:
    fast = hostjit.compile(lambda x: x * len(inspect.signature(take_by_float).parameters))
    assert "inspect" in inspect.unwrap.__code__.co_filename
    torch.testing.assert_close(fast(torch.ones(2)), torch.ones(2))
    asks = hostjit.compile(lambda x: x * (inspect.unwrap(pop_at) is pop_at), fallback=False)
    torch.testing.assert_close(asks(torch.ones(2)), torch.ones(2))


def take_by_float(x: Tensor) -> Tensor:
    return x + sum(itertools.islice([1, 2], 1.0))  # type: ignore[call-overload]


def pop_at(x: Tensor) -> Tensor:
    return x + collections.deque([1, 2]).pop(0)  # type: ignore[call-arg]


@pytest.mark.parametrize(("function", "error"), [(take_by_float, ValueError), (pop_at, TypeError)])
def test_what_python_refuses(
    compiled: Callable[..., Any], function: Callable[[Tensor], Tensor], error: type[Exception]
) -> None:
    fast = compiled(function)
    for _ in range(2):
        with pytest.raises(error):
            fast(torch.ones(2))


def test_a_tuple_in_another(compiled: Callable[..., Any]) -> None:
    def makes(x: Tensor) -> tuple[Any, ...]:
        pair = (None, 1)
        return x + 1, pair, (pair, 2, (pair,))

    fast = compiled(makes)
    for _ in range(2):
        _, pair, around = fast(torch.ones(2))
        assert around == ((None, 1), 2, ((None, 1),))
        assert around[0] is pair
        assert around[2][0] is pair
