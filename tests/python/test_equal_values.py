# SPDX-License-Identifier: Apache-2.0
"""Values that are equal and not the same: code that reads them computes something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit


def products(x: Tensor, found: Any) -> list[Tensor]:
    return [x * element for element in found]


CASES: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "set_of_ints": (products, {1}, {1.0}),
    "set_of_bools": (products, {1}, {True}),
    "frozenset": (products, frozenset([1]), frozenset([1.0])),
    "keys": (products, {1: 0}, {1.0: 0}),
    "keys_in_tuples": (lambda x, found: [x * key[0] for key in found], {(1,): 0}, {(1.0,): 0}),
    "tuple": (products, (1, 2), (1.0, 2)),
    "range": (lambda x, found: x * found.stop, range(0, 3, 2), range(0, 4, 2)),
    "slice": (lambda x, found: x * found.start, slice(1, 2), slice(1.0, 2)),
    "complex": (
        lambda x, found: x * torch.full((2,), found).angle(),
        complex(-1, 0.0),
        complex(-1, -0.0),
    ),
}


def ordered(*elements: int) -> set[int]:
    """A set of elements that collide: the first one stays the first."""
    found: set[int] = set()
    for element in elements:
        found.add(element)
    return found


CASES["order"] = (products, ordered(8, 0), ordered(0, 8))


@pytest.mark.parametrize("place", ["given", "attribute", "item"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("make", [hostjit.compile, hostjit.capture])
@pytest.mark.filterwarnings("ignore:hostjit")
def test_what_is_equal_is_not_the_same(make: Callable[..., Any], name: str, place: str) -> None:
    function, first, second = CASES[name]

    class Holder:
        value = first

    held = {"value": first}
    if place == "given":
        fast = make(function)
    elif place == "attribute":
        fast = make(lambda x, _: function(x, Holder.value))
    else:
        fast = make(lambda x, _: function(x, held["value"]))
    for value in (first, first, first, second, second, first):
        Holder.value = held["value"] = value
        x = torch.tensor([1, 2])
        found, expected = fast(x, value), function(x, value)
        torch.testing.assert_close(found, expected)
