# SPDX-License-Identifier: Apache-2.0
"""Code that this backend has compiled, compiled by another one in the same process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


def halved(x: Tensor) -> Tensor:
    for _ in range(3):
        x = x * 0.5
        if x.max() < 0.1:
            break
    return x


def settled(x: Tensor) -> tuple[Tensor, list[float]]:
    found = []
    while x.norm().item() > 1:
        x = x * 0.7
        found.append(x.sum().item())
    return x, found


class Planner:
    """Has a method without gradients."""

    @torch.no_grad()
    def plan(self, x: Tensor) -> Tensor:
        return halved(x) + halved(-x)


@pytest.mark.parametrize("first", ["hostjit", "eager"])
@pytest.mark.parametrize("function", [halved, settled, Planner().plan])
def test_loops_are_compiled_by_either_backend(function: Callable[..., Any], first: str) -> None:
    torch._dynamo.reset()
    others = {"hostjit", "eager"} - {first}
    for backend in (first, *others, first):
        fast = torch.compile(function, backend=backend)
        for shift in range(4):
            x = torch.ones(3) + shift
            assert_close(fast(x), function(x))
    compiled = hostjit.compile(function)
    assert_close(compiled(torch.ones(3)), function(torch.ones(3)))
