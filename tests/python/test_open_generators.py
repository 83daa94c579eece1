# SPDX-License-Identifier: Apache-2.0
"""Generators that are dropped before their end: Python runs what is behind their `finally`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

COMPILERS: dict[str, Callable[[Any], Any]] = {
    "compile": hostjit.compile,
    "backend": lambda function: torch.compile(function, backend="hostjit"),
}
in_each_way = pytest.mark.parametrize("way", list(COMPILERS))
in_parts = pytest.mark.filterwarnings("ignore:hostjit. .* runs in parts")

log: list[str] = []


def rows(x: Tensor) -> Iterator[Tensor]:
    try:
        for row in x:
            log.append("row")
            yield row * 2
    finally:
        log.append("closed")


@contextlib.contextmanager
def noted() -> Iterator[None]:
    log.append("entered")
    yield
    log.append("left")


def rows_within(x: Tensor) -> Iterator[Tensor]:
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, "closed")
        for row in x:
            yield row + 1


def caught(x: Tensor) -> Generator[Tensor, None, None]:
    try:
        yield x + 1
        yield x + 2
    except GeneratorExit:
        log.append("exit")
        raise


def until_the_end(x: Tensor) -> Iterator[Tensor]:
    """As sequences do it: closing this runs nothing."""
    number = 0
    try:
        while True:
            try:
                yield x[number] * 2
                number += 1
            except (KeyError, ValueError):
                log.append("none")
    except IndexError:
        return


def until_the_end_within(x: Tensor) -> Iterator[Tensor]:
    number = 0
    try:
        while True:
            try:
                yield x[number] * 2
                number += 1
            except KeyError:
                log.append("none")
    finally:
        log.append("closed")


def caught_with_others(x: Tensor) -> Iterator[Tensor]:
    try:
        yield x + 1
        yield x + 2
    except (ValueError, BaseException):
        log.append("exit")
        raise


def returns_in_loop(x: Tensor) -> Tensor:
    for row in rows(x):
        return row
    return x


def takes_one(x: Tensor) -> Tensor:
    found = next(rows(x))
    log.append("after")
    return found


def breaks_at_a_size(x: Tensor) -> Tensor:
    total = torch.zeros(())
    for row in rows(x):
        total = total + row.sum()
        if row.shape[0] == 3:
            break
    log.append("after")
    return total


def within_another(x: Tensor) -> Tensor:
    return next(rows_within(x)) * 2


def with_its_own_handler(x: Tensor) -> Tensor:
    made = caught(x)
    return next(made)


def within_two(x: Tensor) -> Tensor:
    return next(until_the_end_within(x)) - 1


def with_one_handler_for_all(x: Tensor) -> Tensor:
    return next(caught_with_others(x)) * 3


def run_to_its_end(x: Tensor) -> Tensor:
    with noted():
        return torch.stack(list(rows(x)))


def closed_by_the_code(x: Tensor) -> Tensor:
    made = rows(x)
    first = next(made)
    made.close()
    log.append("after")
    return first


FUNCTIONS = [
    returns_in_loop,
    takes_one,
    breaks_at_a_size,
    within_another,
    with_its_own_handler,
    within_two,
    with_one_handler_for_all,
    run_to_its_end,
    closed_by_the_code,
]


@in_parts
@in_each_way
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_what_is_run_when_a_generator_is_dropped(
    function: Callable[[Tensor], Tensor], way: str
) -> None:
    torch._dynamo.reset()
    compiled = COMPILERS[way](function)
    for columns in (2, 3, 2, 3, 4, 3):
        x = torch.arange(2.0 * columns).reshape(2, columns)
        log.clear()
        expected, noted_by_eager = function(x), list(log)
        log.clear()
        assert torch.equal(compiled(x), expected)
        assert log == noted_by_eager


def counted(x: Tensor) -> Tensor:
    log.append("counted")
    print(end="")
    return x.sin().sum()


def sum_of_what_breaks(x: Tensor) -> Tensor:
    total: Any = sum(counted(x * k) for k in range(3))
    return x + total


def longest(x: Tensor) -> Tensor:
    return x * max((len(name) for name in ("a", "bc")), default=1)


@in_parts
@in_each_way
@pytest.mark.parametrize("function", [sum_of_what_breaks, longest])
def test_breaks_in_generators(function: Callable[[Tensor], Tensor], way: str) -> None:
    torch._dynamo.reset()
    compiled = COMPILERS[way](function)
    for columns in (2, 3, 2, 3, 4, 3):
        x = torch.arange(2.0 * columns).reshape(2, columns)
        log.clear()
        expected, noted_by_eager = function(x), list(log)
        log.clear()
        torch.testing.assert_close(compiled(x), expected)
        assert log == noted_by_eager


def nothing_to_close(x: Tensor) -> Tensor:
    pairs = zip([1.0, 2.0], until_the_end(x), strict=False)
    return torch.stack([row * number for number, row in pairs]) + next(until_the_end(x))


@in_each_way
@pytest.mark.parametrize("function", [run_to_its_end, nothing_to_close])
def test_a_generator_without_a_rest_is_in_the_graph(
    function: Callable[[Tensor], Tensor], way: str
) -> None:
    options: Any = {"fallback": False} if way == "compile" else {"fullgraph": True}
    if way == "compile":
        compiled: Any = hostjit.compile(function, **options)
    else:
        compiled = torch.compile(function, backend="hostjit", **options)
    x = torch.ones(4, 3)
    assert torch.equal(compiled(x), function(x))
