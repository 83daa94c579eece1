# SPDX-License-Identifier: Apache-2.0
"""`torch.cond` under `torch.vmap`: one choice for all items, or one for each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import hostjit

FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {}


def example(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    FUNCTIONS[function.__name__] = function
    return function


def branch(row: Tensor) -> Tensor:
    return row - torch.arange(row.shape[0])


@example
def one_choice(x: Tensor, p: Tensor) -> Tensor:
    def row(r: Tensor) -> Tensor:
        return torch.cond(p, lambda r: (r * 2 + r.shape[0]).softmax(0), branch, (r,))

    return torch.vmap(row)(x)


@example
def choices_of_items(x: Tensor, p: Tensor) -> Tensor:
    return torch.vmap(lambda r: torch.cond(r.sum() > 0, lambda r: r.sin(), branch, (r,)))(x)


@example
def choices_of_elements(x: Tensor, p: Tensor) -> Tensor:
    def item(r: Tensor) -> Tensor:
        return torch.cond(r > 0, lambda r: r.sin(), lambda r: r - 1, (r,))

    return torch.vmap(torch.vmap(item))(x)


@example
def choices_of_items_in_one(x: Tensor, p: Tensor) -> Tensor:
    def yes(r: Tensor) -> Tensor:
        return torch.cond(r.sum() > 0, lambda r: r * 2, lambda r: r * 3, (r,))

    return torch.vmap(lambda r: torch.cond(p, yes, branch, (r,)))(x) + p


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_cond_under_vmap(name: str, runtime: str) -> None:
    torch.manual_seed(0)
    function = FUNCTIONS[name]
    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    with torch.no_grad():
        for size in (5, 6, 3, 9):
            for choice in (True, False):
                call = torch.randn(size, 4), torch.tensor(choice)
                torch.testing.assert_close(compiled(*call), function(*call))
    assert len(compiled.specializations) == 2
