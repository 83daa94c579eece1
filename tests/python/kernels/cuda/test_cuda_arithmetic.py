# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels of every family, run on the CPU, against eager: also where vectors can't be."""

from __future__ import annotations

import pytest
import torch
from cuda_families import Family, families, placed
from emulation import EmulatedKernel, emulated

from hostjit.kernels import DType, KernelBuilder

FAMILIES = families()


@pytest.fixture(scope="module")
def kernels() -> dict[str, EmulatedKernel]:
    made = emulated(family.kernel for family in FAMILIES)
    return {family.kernel.name: kernel for family, kernel in zip(FAMILIES, made, strict=True)}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.kernel.name)
def test_family(family: Family, kernels: dict[str, EmulatedKernel]) -> None:
    torch.manual_seed(0)
    tensors = family.tensors()
    expected = family.expected(tensors)
    inputs = [placed(tensor, family.shift)[0] for tensor in tensors]
    outputs = [placed(torch.zeros_like(one), family.shift) for one in expected]
    around = [memory.view(torch.uint8).clone() for _, memory in outputs]
    kernels[family.kernel.name](*inputs, *(found for found, _ in outputs), *family.sizes())
    for (found, memory), before, right in zip(outputs, around, expected, strict=True):
        tolerance = {"rtol": 1e-4, "atol": 1e-4} if found.dtype is torch.float32 else {}
        torch.testing.assert_close(found, right, equal_nan=True, **tolerance)
        found.zero_()
        assert torch.equal(memory.view(torch.uint8), before), "it writes beside its output"


def test_an_output_may_be_an_input(kernels: dict[str, EmulatedKernel]) -> None:
    x = torch.randn(1000)
    expected = 2 * x
    kernels["double"](x, x)
    assert torch.equal(x, expected)


def test_an_index_out_of_bounds_fails_an_assertion(kernels: dict[str, EmulatedKernel]) -> None:
    table, places, out = (
        torch.randn(50, 64),
        torch.zeros(10, dtype=torch.int64),
        torch.empty(10, 64),
    )
    for wrong in (50, -51, 1 << 62):
        places[7] = wrong
        with pytest.raises(RuntimeError, match="index out of range"):
            kernels["embedding_64"](table, places, out)


def test_scalar_arguments() -> None:
    builder = KernelBuilder("scaled", (1000,))
    scale, shift = (
        builder.scalar_argument("scale", DType.F64),
        builder.scalar_argument("shift", DType.I64),
    )
    x = builder.load(builder.input(DType.F32), (1,))
    scaled = builder.apply("mul", x, builder.cast(scale, DType.F32))
    result = builder.apply("add", scaled, builder.cast(shift, DType.F32))
    builder.store(builder.output(DType.F32), result, (1,))
    (kernel,) = emulated([builder.build()])
    assert kernel.written.parameters == ("ptr", "ptr", "f64", "i64")
    x, out = torch.randn(1000), torch.empty(1000)
    kernel(x, out, 0.5, 3)
    torch.testing.assert_close(out, x * 0.5 + 3)
