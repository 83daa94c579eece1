# SPDX-License-Identifier: Apache-2.0
"""Copies that PyTorch makes once one of two is written: no write changes the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*runs (in parts|eagerly)")

WAYS = {"compile": hostjit.compile, "torch": lambda f: torch.compile(f, backend="hostjit")}


def write_copy(x: Tensor) -> Any:
    copy = torch._lazy_clone(x)
    return copy.add_(1)


def write_copy_by_keyword(x: Tensor) -> Any:
    copy = torch._lazy_clone(input=x)
    copy[0] = 7
    return copy, x.sum()


def write_original(x: Tensor) -> Any:
    y = x * 2
    copy = torch._lazy_clone(y)
    y.mul_(3)
    return copy, y


def write_by_operator(x: Tensor) -> Any:
    copy = torch.ops.aten._lazy_clone(x)
    return copy.mul_(2), x + 1


def write_by_method(x: Tensor) -> Any:
    copy = x.t()._lazy_clone()
    return copy.mul_(2), x + 1


def write_copy_behind_a_break(x: Tensor) -> Any:
    copy = torch._lazy_clone(x)
    print("", end="")
    copy.add_(1)
    return copy, x * 2


def write_part_of_copy(x: Tensor) -> Any:
    copy = torch._lazy_clone(x[1:].expand(3, 3))
    return copy.sum(), torch._lazy_clone(x.t()[1:]).add_(1)


@pytest.mark.parametrize("needs_gradients", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "function",
    [
        write_copy,
        write_copy_by_keyword,
        write_original,
        write_by_operator,
        write_by_method,
        write_copy_behind_a_break,
        write_part_of_copy,
    ],
)
def test_writes_change_one(
    way: str, function: Callable[[Tensor], Any], needs_gradients: bool
) -> None:
    torch._dynamo.reset()
    fast = WAYS[way](function)
    for _ in range(2):
        given = [torch.arange(6.0).reshape(2, 3).requires_grad_(needs_gradients) for _ in range(2)]
        results = [way(x) for way, x in zip((fast, function), given, strict=True)]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*given)
        if needs_gradients:
            for result in results:
                found = result if isinstance(result, tuple) else (result,)
                sum(each.square().sum() for each in found).backward()
            torch.testing.assert_close(given[0].grad, given[1].grad)


def test_it_is_compiled() -> None:
    fast = hostjit.compile(write_copy, fallback=False)
    x = torch.ones(2, 3)
    torch.testing.assert_close(fast(x), x + 1)
    torch.testing.assert_close(x, torch.ones(2, 3))
