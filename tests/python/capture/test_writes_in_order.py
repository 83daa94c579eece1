# SPDX-License-Identifier: Apache-2.0
"""Operators that write a permuted view of a view, which functionalisation can't view back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit

FIRST = torch.tensor([0])
WRITES: dict[str, Callable[[Tensor], Any]] = {
    "masked_fill_": lambda v: v.masked_fill_(v > 0.2, 9.0),
    "masked_fill_ by a tensor": lambda v: v.masked_fill_(v > 0.2, torch.tensor(9.0)),
    "masked_scatter_": lambda v: v.masked_scatter_(v > 0, torch.zeros(v.numel())),
    "index_add_": lambda v: v.index_add_(0, FIRST, v[:1] * 2, alpha=2),
    "index_copy_": lambda v: v.index_copy_(0, FIRST, v[:1] * 2),
    "index_fill_": lambda v: v.index_fill_(1, FIRST, 3.0),
    "scatter_": lambda v: v.scatter_(0, torch.zeros_like(v[:1], dtype=torch.long), 3.0),
    "scatter_add_": lambda v: v.scatter_add_(
        0, torch.zeros_like(v[:1], dtype=torch.long), v[:1] * 3
    ),
    "cumsum_": lambda v: v.cumsum_(0),
    "cumprod_": lambda v: v.cumprod_(1),
    "tril_": lambda v: v.tril_(),
    "triu_": lambda v: v.triu_(1),
    "add_": lambda v: v.add_(1),
    "index_put_": lambda v: v.__setitem__(FIRST, 1.0),
}
BACKENDS: list[Callable[..., Any]] = [
    lambda function: hostjit.compile(function, fallback=False),
    lambda function: torch.compile(
        function, backend="hostjit", fullgraph=True, options={"fallback": False}
    ),
]


@pytest.mark.parametrize("compile", BACKENDS, ids=["compile", "torch.compile"])
@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_against_eager(write: str, needs_grad: bool, compile: Callable[..., Any]) -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 2
        WRITES[write](y.view(x.shape[0], 6, 2, 4).permute(0, 2, 1, 3))
        return y + 1

    torch._dynamo.reset()  # of the code there are as many programs as it has cases
    fast = compile(function)
    for batch in (2, 1, 3):
        torch.manual_seed(batch)
        x = torch.randn(batch, 6, 8, requires_grad=needs_grad)
        twin = x.detach().clone().requires_grad_(needs_grad)
        found, expected = fast(x), function(twin)
        assert found.stride() == expected.stride()
        assert_close(found, expected)
        if needs_grad:
            found.square().sum().backward()
            expected.square().sum().backward()
            assert_close(x.grad, twin.grad)
