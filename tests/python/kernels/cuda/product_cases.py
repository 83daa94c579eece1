# SPDX-License-Identifier: Apache-2.0
"""Small matrix products, with what they fuse with: of all forms, layouts and dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from hostjit.lowering.iteration_space import row_major

__all__ = ["CASES", "Case"]

linear, bmm = torch.nn.functional.linear, torch.bmm


@dataclass(frozen=True)
class Case:
    """A function, and the sizes and strides of its arguments."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype = torch.float32
    turned: tuple[int, ...] = ()  # arguments whose last two dims are exchanged in memory
    offset: int = 0  # of each argument in its memory

    def values(self) -> list[torch.Tensor]:
        """Arguments with random values, which start where `offset` says."""
        torch.manual_seed(0)
        return [argument.normal_() for argument in self.arguments(self.offset)]

    def expected(self, values: list[torch.Tensor]) -> list[torch.Tensor]:
        """The results, rounded once."""
        wide = torch.float64 if self.dtype.itemsize > 2 else torch.float32
        found = self.function(*(value.to(wide) for value in values))
        return [one.to(self.dtype) for one in (found if isinstance(found, list) else [found])]

    def check(self, found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
        """Sums may be in another order."""
        tolerance = {"atol": 1e-4, "rtol": 1e-5} if self.dtype.itemsize > 2 else {}
        torch.testing.assert_close(found, expected, **tolerance)

    def arguments(self, offset: int = 0) -> list[torch.Tensor]:
        """Arguments without values."""
        return [self._argument(n, shape, offset) for n, shape in enumerate(self.shapes)]

    def _argument(self, number: int, shape: tuple[int, ...], offset: int) -> torch.Tensor:
        strides = list(row_major(shape))
        if number in self.turned:
            strides[-2:] = [1, shape[-2]]
        if offset == 0:  # of the fake tensors of a device that is not there
            return torch.empty_strided(shape, strides, dtype=self.dtype)
        memory = torch.empty(math.prod(shape) + offset, dtype=self.dtype)
        return memory.as_strided(shape, strides, offset)


def layer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return linear(x, w, b).tanh()


def residual(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return x + linear(x, w, b).relu()


def projections(x: torch.Tensor, *w: torch.Tensor) -> list[torch.Tensor]:
    return [linear(x, one) for one in w]


def sums(c: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.addmm(c, x, y, beta=0.5, alpha=2)


def batches(c: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.baddbmm(c, x, y, alpha=0.25)


def without_addend(c: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.addmm(c, x, y, beta=0)


CASES = {
    "layer": Case(layer, ((1, 32), (64, 32), (64,))),
    "layer_of_several_rows": Case(layer, ((5, 64), (48, 64), (48,))),
    "layer_of_3_dims": Case(layer, ((2, 3, 16), (8, 16), (8,))),
    "layer_of_1_dim": Case(layer, ((16,), (8, 16), (8,))),
    "odd_layer": Case(layer, ((3, 37), (13, 37), (13,))),
    "unaligned_layer": Case(layer, ((2, 64), (16, 64), (16,)), offset=1),
    "long_layer": Case(layer, ((1, 5000), (3, 5000), (3,))),
    "turned_layer": Case(layer, ((4, 24), (40, 24), (40,)), turned=(0, 1)),
    "residual": Case(residual, ((2, 64), (64, 64), (64,))),
    "projections": Case(projections, ((3, 64), (32, 64), (32, 64), (32, 64))),
    "matrices": Case(torch.mm, ((6, 20), (20, 50))),
    "turned_matrices": Case(torch.mm, ((6, 20), (20, 50)), turned=(0,)),
    "outer": Case(torch.mm, ((7, 1), (1, 9))),
    "sums": Case(sums, ((30,), (4, 16), (16, 30))),
    "without_addend": Case(without_addend, ((4, 30), (4, 16), (16, 30))),
    "batch": Case(bmm, ((4, 3, 16), (4, 16, 10))),
    "turned_batch": Case(bmm, ((4, 1, 16), (4, 16, 10)), turned=(1,)),
    "batches": Case(batches, ((3, 5), (2, 3, 8), (2, 8, 5))),
    "vector": Case(torch.mv, ((20, 64), (64,))),
    "dot": Case(torch.dot, ((100,), (100,))),
}
CASES |= {
    f"{name}_{str(dtype).removeprefix('torch.')}": replace(CASES[name], dtype=dtype)
    for name in ("layer", "odd_layer", "projections", "matrices", "turned_batch", "sums")
    for dtype in (torch.float16, torch.bfloat16, torch.float64)
}
