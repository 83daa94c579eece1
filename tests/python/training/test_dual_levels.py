# SPDX-License-Identifier: Apache-2.0
"""Levels of forward-mode differentiation that the compiled code enters: eager's, and none left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*runs (in parts|eagerly)")

WAYS = {"compile": hostjit.compile, "torch": lambda f: torch.compile(f, backend="hostjit")}


def tangent(x: Tensor) -> Any:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones(3))
        return forward_ad.unpack_dual(dual * 2).tangent


def with_a_break(x: Tensor) -> Any:
    y = x * 2
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(y, torch.ones(3))
        print("", end="")
        z = forward_ad.unpack_dual(dual.sin())
    return z.tangent + z.primal


def two_levels(x: Tensor) -> Any:
    found = tangent(x)
    return found + tangent(x * 3)


def by_functions(x: Tensor) -> Any:
    level = forward_ad.enter_dual_level()
    dual = forward_ad.make_dual(x, x.cos(), level=level)
    found = forward_ad.unpack_dual(dual.exp(), level=level).tangent
    forward_ad.exit_dual_level(level=level)
    return found


def of_a_transform(x: Tensor) -> Any:
    return torch.func.jvp(torch.sin, (x,), (torch.ones(3),))[1]


def raising(x: Tensor) -> Any:
    try:
        with forward_ad.dual_level():
            forward_ad.make_dual(x, torch.ones(4))
    except RuntimeError:
        return x + 1
    return x


@pytest.mark.parametrize("needs_gradients", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "function", [tangent, with_a_break, two_levels, by_functions, of_a_transform, raising]
)
def test_levels_are_eagers(
    way: str, function: Callable[[Tensor], Any], needs_gradients: bool
) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    fast = WAYS[way](function)
    try:
        for _ in range(2):
            x = torch.randn(3, requires_grad=needs_gradients)
            torch.testing.assert_close(fast(x), function(x))
            assert not _is_level_open()
    finally:
        _is_level_open()  # others find none


@pytest.mark.parametrize("needs_gradients", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_errors_leave_no_level(way: str, needs_gradients: bool) -> None:
    def pick(x: Tensor, index: Tensor) -> Any:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones(3))
            return forward_ad.unpack_dual(dual[index] * 2).tangent

    torch._dynamo.reset()
    fast = WAYS[way](pick)
    x = torch.ones(3, requires_grad=needs_gradients)
    try:
        for _ in range(2):
            torch.testing.assert_close(fast(x, torch.tensor([1])), torch.tensor([2.0]))
            with pytest.raises(IndexError, match="out of bounds"):
                fast(x, torch.tensor([7]))
            assert not _is_level_open()
    finally:
        _is_level_open()


def _is_level_open() -> bool:
    """Tell whether there is a level, and end it."""
    try:
        torch._C._exit_dual_level(level=0)
    except RuntimeError:
        return False
    forward_ad._current_level = -1
    return True
