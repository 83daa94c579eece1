# SPDX-License-Identifier: Apache-2.0
"""Results that share memory with inputs, beside others that share memory with one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

Results = tuple[Tensor, ...]


def same_and_row(x: Tensor) -> Results:
    y = x.to(dtype=torch.float32)  # which is x
    u = x + 1
    return y, u, u[0]


def rows(x: Tensor) -> Results:
    u = x + 1
    return x[0], u, u[0]


def many(x: Tensor) -> Results:
    u = x + 1
    return x, x.view(-1), u, u[0], x[0], u.t(), x[:, 1:].t()


def expanded(x: Tensor) -> Results:
    u = x * 2
    return x[:1].expand(4, 3), u.view(-1), u


BACKENDS: list[Callable[..., Any]] = [
    hostjit.compile,
    lambda function: torch.compile(function, backend="hostjit", fullgraph=True),
]


@pytest.mark.parametrize("compile", BACKENDS, ids=["compile", "torch.compile"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [same_and_row, rows, many, expanded])
def test_they_are_the_views_that_eager_makes(
    function: Callable[[Tensor], Results], dynamic: bool, compile: Callable[..., Any]
) -> None:
    """Where gradients are recorded, and none is needed: one may be given some in place."""
    torch._dynamo.reset()
    fast = compile(function)
    count = len(function(torch.ones(3, 3)))
    for place in range(count):
        sizes = (3 + place % 2 if dynamic else 3, 3)
        found = []
        for call in (function, fast):
            torch.manual_seed(place)
            x = torch.randn(*sizes)
            weight = torch.ones((), requires_grad=True)
            results = call(x)
            bases = [result._base is x for result in results]
            values = [result.clone() for result in results]
            kinds = [(result is x, result.stride(), result._base is None) for result in results]
            try:
                results[place].mul_(weight)
                error = ""
            except RuntimeError as raised:
                error = str(raised)[:60]
            needs = [each.requires_grad for each in (x, *results)]
            found.append((kinds, bases, needs, error))
            found.append(values)
        assert found[0] == found[2]
        torch.testing.assert_close(found[1], found[3])
