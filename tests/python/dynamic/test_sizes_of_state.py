# SPDX-License-Identifier: Apache-2.0
"""Sizes of tensors outside of the arguments that code compares, and tensors that no graph takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit

COMPILERS: dict[str, Callable[[Any], Any]] = {
    "compile": hostjit.compile,
    "backend": lambda function: torch.compile(function, backend="hostjit"),
}
in_each_way = pytest.mark.parametrize("way", list(COMPILERS))
pytestmark = pytest.mark.filterwarnings("ignore:hostjit. .* runs in parts")


class Solver:
    """Begins where the call before ended, if the sizes are the same."""

    def __init__(self) -> None:
        self.x: Tensor | None = None

    def by_shape(self, f: Tensor) -> Tensor:
        begin = self.x is not None and self.x.shape == f.shape
        x = self.x if begin else torch.zeros_like(f)
        assert x is not None
        for _ in range(3):
            x = 0.5 * x + f.mean()
            if x.norm().item() < 1e-2:
                break
        self.x = x
        return x

    def by_number(self, f: Tensor) -> Tensor:
        if self.x is None or self.x.numel() != f.numel():
            self.x = torch.zeros_like(f)
        for _ in range(3):
            self.x = 0.5 * self.x + f.mean()
            if self.x.norm().item() < 1e-2:
                break
        return self.x

    def handed_on(self, f: Tensor) -> tuple[Tensor | None, int]:
        if self.x is not None and self.x.shape[0] == f.shape[0]:
            return self.x, 1
        self.x = f * 2
        return None, 0


@in_each_way
@pytest.mark.parametrize("name", ["by_shape", "by_number", "handed_on"])
@pytest.mark.parametrize("rest", [(), (4,)])
def test_the_sizes_of_both_are_compared(name: str, rest: tuple[int, ...], way: str) -> None:
    torch._dynamo.reset()
    mine, eagers = Solver(), Solver()
    compiled = COMPILERS[way](getattr(mine, name))
    for size in (9, 17, 17, 9, 17, 17, 9, 12, 12, 9, 9):
        f = torch.linspace(0, 1, size).reshape(size, *[1] * len(rest)).expand(size, *rest).clone()
        assert_close(compiled(f), getattr(eagers, name)(f))
        assert_close(mine.x, eagers.x)
