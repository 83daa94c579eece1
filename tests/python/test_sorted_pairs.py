# SPDX-License-Identifier: Apache-2.0
"""Tuples with tensors in them that code sorts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*runs (in parts|eagerly)")


def by_names(x: Tensor, **named: Any) -> Any:
    total = x
    for name, value in sorted(named.items()):
        total = total * len(name) + value
    return total


def backwards(x: Tensor, **named: Any) -> Any:
    return [value for _, value in sorted(named.items(), reverse=True)]


def in_place(x: Tensor, **named: Any) -> Any:
    pairs = [(3, x), (1, x * 2), (2, named["long"])]
    pairs.sort()
    return pairs


WHOLE = [by_names, backwards, in_place]


def by_tensors(x: Tensor, **named: Any) -> Any:
    return sorted([(1, x[0]), (1, named["long"][0]), (0, x[1])])


def of_mixed_kinds(x: Tensor, **named: Any) -> Any:
    try:
        return sorted([(1, x), ("a", x)])  # type: ignore[list-item]
    except TypeError:
        return x


def of_one_name(x: Tensor, **named: Any) -> Any:
    try:
        return sorted([("a", x), ("a", x * 2)])
    except RuntimeError:  # of a tensor with several values as a condition
        return x - 1


@pytest.mark.parametrize("way", ["compile", "backend"])
@pytest.mark.parametrize(
    "function", [*WHOLE, by_tensors, of_mixed_kinds, of_one_name], ids=lambda f: f.__name__
)
def test_as_eager(function: Callable[..., Any], way: str) -> None:
    is_compile = way == "compile"
    fast = hostjit.compile(function) if is_compile else torch.compile(function, backend="hostjit")
    torch.manual_seed(0)
    for _ in range(3):
        x, named = torch.randn(3), {"long": torch.randn(3), "a": torch.randn(3), "bc": 2.0}
        torch.testing.assert_close(fast(x, **named), function(x, **named))


@pytest.mark.parametrize("function", WHOLE, ids=lambda f: f.__name__)
def test_one_program(function: Callable[..., Any]) -> None:
    fast = hostjit.compile(function, fallback=False)
    x = torch.randn(3)
    fast(x, long=x, a=x, bc=2.0)
    assert len(fast.specializations) == 1
