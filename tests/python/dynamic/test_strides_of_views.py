# SPDX-License-Identifier: Apache-2.0
"""Strides of dims of one element beside dims of any size: those that eager gives them."""

from __future__ import annotations

from collections.abc import Callable

import many_calls
import pytest
import torch
from torch import Tensor

SIZES = [(4, 6), (5, 7), (7, 7), (13, 4), (6, 31), (3, 5)]
FUNCTIONS: dict[str, Callable[[Tensor, int, int], Tensor]] = {
    "expand, a scalar": lambda x, n, m: x[0, 0].expand(1, n, m),
    "expand, a scalar at the end": lambda x, n, m: x[0, 0].expand(n, m, 1),
    "expand, one element": lambda x, n, m: x[0, :1].expand(n, 1, m),
    "expand, a row": lambda x, n, m: x[:1].expand(1, n, m),
    "expand, a new dim before": lambda x, n, m: x.expand(1, 1, n, m),
    "expand, a column": lambda x, n, m: x[:, :1].expand(1, n, m),
    "expand, a column that stays": lambda x, n, m: x[:, :1].expand(m, 1, n, 1),
    "view, between": lambda x, n, m: x.view(n, 1, m),
    "view, around": lambda x, n, m: x.view(1, n, m, 1),
    "view, of a column": lambda x, n, m: x[:, :1].view(1, n, 1, 1),
    "view, of a transposed tensor": lambda x, n, m: x.t().view(m, 1, n, 1),
    "view, flat": lambda x, n, m: x.view(1, n * m),
    "view, of an expanded row": lambda x, n, m: x[:1].expand(n, m).view(n, 1, m),
    "view, of nothing": lambda x, n, m: x[:0].view(1, m, 0, 1),
    "view, of nothing as it is": lambda x, n, m: x[:0, None].view(0, 1, m),
    "reshape, of a part": lambda x, n, m: x[:, 1:3].reshape(n, 1, 2, 1),
    "einsum": lambda x, n, m: torch.einsum("aij,jk->aik", x[None], x.t()),
    "einsum, an outer product": lambda x, n, m: torch.einsum("ai,bj->abij", x[:1], x[:, :1]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_strides_are_those_of_eager(name: str, runtime: str) -> None:
    calls = [(torch.randn(n, m), n, m) for n, m in SIZES]
    many_calls.check(FUNCTIONS[name], calls, programs=1, dynamic=True, runtime=runtime)
