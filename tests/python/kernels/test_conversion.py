# SPDX-License-Identifier: Apache-2.0
"""Casts between every pair of types, exactly as eager on x86, also for what does not fit."""

from __future__ import annotations

import pytest
import torch
from mcjit import TORCH_DTYPES, CompiledKernel
from special_values import special

from hostjit.kernels import DType, KernelBuilder

OUT_OF_RANGE = [300.7, 3e9, -3e9, 3000000255.0, 1e19, -1e19, 70000.0, 255.9, -129.0, 2.0**31]
OUT_OF_RANGE += [-(2.0**31), -(2.0**31) - 0.5, 2.0**31 - 0.5, 2.0**63, -(2.0**63), 0.1, 1 / 3]


@pytest.mark.parametrize("source", list(DType))
@pytest.mark.parametrize("target", list(DType))
@pytest.mark.parametrize("size", [5, 64])
def test_cast(source: DType, target: DType, size: int) -> None:
    x = special(TORCH_DTYPES[source])
    if source.is_float:
        x = torch.cat([torch.tensor(OUT_OF_RANGE).to(x.dtype), x])
    for part in x.split(size):
        builder = KernelBuilder("kernel", (part.numel(),))
        value = builder.load(builder.input(source), (1,))
        builder.store(builder.output(target), builder.cast(value, target), (1,))
        out = torch.empty(part.numel(), dtype=TORCH_DTYPES[target])
        CompiledKernel(builder.build())(part, out)
        torch.testing.assert_close(out, part.to(out.dtype), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("half", [DType.F16, DType.BF16])
def test_explicit_cast_to_a_half_rounds_and_arithmetic_does_not(half: DType) -> None:
    x = torch.tensor([1.0])
    builder = KernelBuilder("kernel", (1,))
    value = builder.load(builder.input(DType.F32), (1,))
    small = builder.constant(DType.F32, 2.0**-13)
    total = builder.apply("add", value, small)
    rounded = builder.cast(total, half)
    one = builder.constant(DType.F32, 1.0)
    for result in (total, rounded):
        difference = builder.apply("sub", result, one)
        builder.store(builder.output(DType.F32), difference, (1,))
    exact, zero = torch.empty(1), torch.empty(1)
    CompiledKernel(builder.build())(x, exact, zero)
    assert exact.item() == 2.0**-13
    assert zero.item() == 0.0


def test_any_nonzero_byte_is_true() -> None:
    x = torch.arange(0, 256, dtype=torch.uint8).view(torch.bool)
    builder = KernelBuilder("kernel", (256,))
    value = builder.load(builder.input(DType.BOOL), (1,))
    builder.store(builder.output(DType.I32), builder.cast(value, DType.I32), (1,))
    out = torch.empty(256, dtype=torch.int32)
    CompiledKernel(builder.build())(x, out)
    assert out.tolist() == [0] + [1] * 255
