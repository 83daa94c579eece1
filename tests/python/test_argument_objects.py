# SPDX-License-Identifier: Apache-2.0
"""Lists and dicts of the arguments: which of them are one, and which are found elsewhere, too."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

ITEMS: list[int] = [1]


class Holder:
    def __init__(self) -> None:
        self.options = {"a": 1}


HOLDER = Holder()


def asks_for_lists(a: list[int], b: list[int], x: Tensor) -> Tensor:
    return x + 1 if a is b else x - 1


def appends(a: list[int], b: list[int], x: Tensor) -> Tensor:
    a.append(1)
    count = len(b)
    a.pop()
    return x * count


def sets(a: dict[str, int], b: dict[str, int], x: Tensor) -> Tensor:
    a["more"] = 1
    count = len(b)
    del a["more"]
    return x * count


def asks_for_a_global(a: list[int], x: Tensor) -> Tensor:
    return x + 1 if a is ITEMS else x - 1


def changes_a_global(a: list[int], x: Tensor) -> Tensor:
    ITEMS.append(2)
    count = len(a)
    ITEMS.pop()
    return x * count


def asks_for_an_attribute(a: dict[str, int], x: Tensor) -> Tensor:
    return x + 1 if a is HOLDER.options else x - 1


def pair_of_lists(same: bool) -> tuple[Any, ...]:
    a = [1]
    return a, a if same else [1]


def pair_of_dicts(same: bool) -> tuple[Any, ...]:
    a = {"a": 1}
    return a, a if same else {"a": 1}


def list_or_global(same: bool) -> tuple[Any, ...]:
    return (ITEMS if same else [1],)


def dict_or_attribute(same: bool) -> tuple[Any, ...]:
    return (HOLDER.options if same else {"a": 1},)


CASES: dict[str, tuple[Callable[..., Tensor], Callable[[bool], tuple[Any, ...]]]] = {
    "two lists": (asks_for_lists, pair_of_lists),
    "two lists, one changed": (appends, pair_of_lists),
    "two dicts, one changed": (sets, pair_of_dicts),
    "a list and a global": (asks_for_a_global, list_or_global),
    "a list and a global that changes": (changes_a_global, list_or_global),
    "a dict and an attribute": (asks_for_an_attribute, dict_or_attribute),
}


@pytest.mark.parametrize("wrap", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_which_objects_are_one_is_compared(case: str, first: bool, wrap: Any) -> None:
    function, make = CASES[case]
    fast, x = wrap(function), torch.randn(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of recordings that run eagerly
        for same in (first, first, first, not first, not first, first, not first):
            assert torch.equal(fast(*make(same), x), function(*make(same), x))


@pytest.mark.parametrize("wrap", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("count", [3, 40])
def test_new_lists_at_each_call_need_one_program(count: int, wrap: Any) -> None:
    def function(parts: list[list[Tensor]]) -> Tensor:
        return torch.stack([part[0] for part in parts]).sum(0)

    fast = wrap(function)
    for _ in range(5):
        parts = [[torch.randn(3)] for _ in range(count)]
        torch.testing.assert_close(fast(parts), function(parts))
    assert len(fast.specializations) == 1
    parts[1] = parts[count - 1]
    torch.testing.assert_close(fast(parts), function(parts))


def test_the_error_says_that_lists_are_one() -> None:
    fast, x = hostjit.capture(asks_for_lists, on_mismatch="raise"), torch.randn(3)
    for _ in range(3):
        fast(*pair_of_lists(False), x)
    with pytest.raises(hostjit.MismatchError, match="which of its lists and dicts are one"):
        fast(*pair_of_lists(True), x)
