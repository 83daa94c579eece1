# SPDX-License-Identifier: Apache-2.0
"""New containers that results have in two places or more: one object, as in eager mode."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


@dataclasses.dataclass
class Node:
    children: list[Any]
    value: Any = None


class Pair(collections.namedtuple("Pair", "first second")):
    __slots__ = ()


def decided(x: Tensor) -> Tensor:
    """Recordings follow that; other captures don't."""
    return x + 1 if x.sum() > 0 else x - 1


def two_lists(x: Tensor) -> Any:
    x = decided(x)
    found = other = [x, 3]
    return x, found, other


def deep(x: Tensor) -> Any:
    x = decided(x)
    inner = {"x": x}
    outer = [inner, (1, 2), (1, 2)]
    return {"a": inner, "b": outer, "c": (outer, x), "d": ()}, outer


def objects(x: Tensor) -> Any:
    x = decided(x)
    leaf = Node([x * 2], x)
    pair = Pair(leaf, [leaf])
    return Node([leaf, pair], leaf), pair, collections.OrderedDict(leaf=leaf, pair=pair)


def numbers(x: Tensor) -> Any:
    x = decided(x)
    known = [x.sum().item()]
    return known, [known, *known], known


def views(x: Tensor) -> Any:
    x = decided(x)
    rows = [x[0], x]
    return rows, rows, x[0]


PROGRAMS = [two_lists, deep, objects, numbers, views]


def parts(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what is in a result, and where."""
    if isinstance(value, int | float | str):
        return
    yield path, value
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, Node):
        items = vars(value).items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for key, item in items:
        yield from parts(item, f"{path}.{key}")


def is_constant(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, int) for item in value)


def same(result: Any) -> list[tuple[str, type, str]]:
    """Return what is where: its type, and where the same object was first."""
    first: dict[int, str] = {}
    kept = [*parts(result)]
    return [
        (path, type(value), path if is_constant(value) else first.setdefault(id(value), path))
        for path, value in kept
    ]


@pytest.mark.parametrize("compiled", [hostjit.capture, hostjit.compile])
@pytest.mark.parametrize("program", PROGRAMS)
def test_containers_in_two_places_are_one(program: Callable[..., Any], compiled: Any) -> None:
    fast = compiled(program)
    torch.manual_seed(0)
    for number in range(8):
        x = torch.randn(2, 3) + 4 * (-1) ** number
        found, expected = fast(x), program(x)
        assert same(found) == same(expected)
        for (_, value), (_, other) in zip(parts(found), parts(expected), strict=True):
            if isinstance(value, Tensor):
                torch.testing.assert_close(value, other)


class Filter:
    def __init__(self) -> None:
        self.known: list[Any] = []

    def step(self, x: Tensor) -> Any:
        x = decided(x)
        self.known = [x]
        return x, self.known


@pytest.mark.parametrize("compiled", [hostjit.capture, hostjit.compile])
def test_results_and_attributes_may_have_one_container(compiled: Any) -> None:
    owner = Filter()
    fast = compiled(owner.step)
    for number in range(6):
        _, known = fast(torch.ones(3) + number)
        assert known is owner.known
