# SPDX-License-Identifier: Apache-2.0
"""Cumulative sums and products: kernels with the bits of eager, in both runtimes."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from against_eager import RUNTIMES, check_compiled
from torch import Tensor

import hostjit

DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool),
)
CASES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sum": torch.cumsum,
    "product": torch.cumprod,
    "sum of a transposed": lambda x, dim: x.movedim(0, -1).cumsum(dim),
    "sum as float64": lambda x, dim: x.cumsum(dim, dtype=torch.float64),
    "sum as float32": lambda x, dim: x.cumsum(dim, dtype=torch.float32),
    "sum as bfloat16": lambda x, dim: x.cumsum(dim, dtype=torch.bfloat16),
    "product as int32": lambda x, dim: x.cumprod(dim, dtype=torch.int32),
    "sum from the end": lambda x, dim: x.flip(dim).cumsum(dim).flip(dim),
}


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_kernels(name: str, dtype: torch.dtype, runtime: str) -> None:
    torch.manual_seed(0)
    for shape, dim in (((1,), 0), ((40,), 0), ((3, 9), -1), ((3, 4, 5), 1)):
        given = (torch.randn(shape) * 3).to(dtype)
        function = functools.partial(CASES[name], dim=dim)
        check_compiled(function, given, runtime=runtime, rtol=0, atol=0)


@pytest.mark.parametrize(
    "given",
    [
        torch.randn(200, 100),
        torch.zeros(0),
        torch.tensor(2.0),
        torch.ones(3, dtype=torch.complex64),
    ],
    ids=["large", "empty", "without dims", "complex"],
)
def test_others_are_left_to_aten(given: Tensor) -> None:
    compiled = hostjit.compile(lambda x: x.cumsum(0), fallback=False)
    torch.testing.assert_close(compiled(given), given.cumsum(0))
    assert "aten_call" in compiled.host_ir()
