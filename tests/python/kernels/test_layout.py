# SPDX-License-Identifier: Apache-2.0
"""Iteration spaces: strides, broadcasting, offsets, empty and zero-dimensional kernels."""

from __future__ import annotations

import pytest
import torch
from mcjit import TORCH_DTYPES, CompiledKernel, host_features, optimised

from hostjit.kernels import DType, KernelBuilder, llvm_ir
from hostjit.kernels.iteration import simplify, tile, turned_side

F32 = DType.F32


def add(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> CompiledKernel:
    """Run `out[...] = x + y` with broadcasting, all f32."""
    builder = KernelBuilder("kernel", tuple(out.shape))
    values = [
        builder.load(builder.input(F32), tuple(tensor.expand(out.shape).stride()))
        for tensor in (x, y)
    ]
    total = builder.apply("add", *values)
    builder.store(builder.output(F32), total, tuple(out.stride()))
    kernel = CompiledKernel(builder.build())
    kernel(x, y, out)
    torch.testing.assert_close(out, x + y, rtol=0, atol=0)
    return kernel


@pytest.mark.parametrize(
    ("x", "y", "shape"),
    [
        ((4, 5, 6), (4, 5, 6), (4, 5, 6)),
        ((4, 5, 6), (6,), (4, 5, 6)),
        ((4, 5, 6), (5, 1), (4, 5, 6)),
        ((4, 1, 6), (5, 1), (4, 5, 6)),
        ((1, 1), (1,), (1, 1)),
        ((3, 1, 2, 1), (2, 1), (3, 1, 2, 1)),
        ((), (), ()),
        ((), (7,), (7,)),
        ((0,), (0,), (0,)),
        ((3, 0), (1,), (3, 0)),
        ((1000,), (1,), (1000,)),
    ],
)
def test_broadcast(x: tuple[int, ...], y: tuple[int, ...], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    add(torch.randn(x), torch.randn(y), torch.empty(shape))


def test_strided_transposed_and_offset() -> None:
    torch.manual_seed(0)
    x = torch.randn(9, 14)
    add(x.t(), torch.randn(14, 9), torch.empty(14, 9))
    add(x.t(), torch.randn(9), torch.empty(9, 14).t())
    add(x[::2, 1::3], x[:5, 2:7], torch.empty(5, 5))
    add(x[2], x[:, 3][:1], torch.empty(14))
    out = torch.zeros(4, 6)
    add(x[:2, :3], x[2:4, 1:4], out[::2, ::2])
    assert out[1::2].count_nonzero() == 0


def test_offset_is_in_elements() -> None:
    x, out = torch.arange(12.0), torch.zeros(12)
    builder = KernelBuilder("copy", (2, 3))
    value = builder.load(builder.input(F32), (4, 1), offset=1)
    builder.store(builder.output(F32), value, (3, 1), offset=5)
    CompiledKernel(builder.build())(x, out)
    assert out.tolist() == [0, 0, 0, 0, 0, 1, 2, 3, 5, 6, 7, 0]


def test_in_place_when_the_output_may_alias() -> None:
    x = torch.arange(100.0)
    builder = KernelBuilder("double", (100,))
    value = builder.load(builder.input(F32), (1,))
    out = builder.output(F32, may_alias=True)
    builder.store(out, builder.apply("add", value, value), (1,))
    kernel = builder.build()
    assert "noalias" not in llvm_ir(kernel)
    CompiledKernel(kernel)(x, x)
    assert torch.equal(x, 2 * torch.arange(100.0))


def test_several_outputs_of_several_types() -> None:
    x = torch.randn(33)
    builder = KernelBuilder("outputs", (33,))
    value = builder.load(builder.input(F32), (1,))
    positive = builder.apply("gt", value, builder.constant(F32, 0.0))
    builder.store(builder.output(DType.BOOL), positive, (1,))
    builder.store(builder.output(DType.BF16), builder.cast(value, DType.BF16), (1,))
    mask, half = torch.empty(33, dtype=torch.bool), torch.empty(33, dtype=torch.bfloat16)
    CompiledKernel(builder.build())(x, mask, half)
    assert torch.equal(mask, x > 0)
    assert torch.equal(half, x.bfloat16())


def test_index_constant_and_scalar_arguments() -> None:
    builder = KernelBuilder("iota", (3, 4))
    index = builder.index((4, 1), offset=2)
    scale = builder.scalar_argument(0, DType.F64)
    shift = builder.scalar_argument(1, DType.I64)
    shifted = builder.cast(builder.apply("add", index, shift), DType.F64)
    builder.store(builder.output(DType.F64), builder.apply("mul", shifted, scale), (4, 1))
    builder.store(builder.output(DType.I32), builder.constant(DType.I32, -7), (4, 1))
    out, filled = torch.empty(3, 4, dtype=torch.float64), torch.empty(3, 4, dtype=torch.int32)
    CompiledKernel(builder.build())(out, filled, 0.5, 100)
    assert torch.equal(out, (torch.arange(12.0, dtype=torch.float64).view(3, 4) + 102) * 0.5)
    assert torch.equal(filled, torch.full((3, 4), -7, dtype=torch.int32))


def test_negative_zero_and_zero_are_different_constants() -> None:
    builder = KernelBuilder("zeros", ())
    for number in (0.0, -0.0):
        builder.store(builder.output(F32), builder.constant(F32, number), ())
    positive, negative = torch.empty(()), torch.empty(())
    CompiledKernel(builder.build())(positive, negative)
    assert [positive.signbit().item(), negative.signbit().item()] == [False, True]


def test_simplify() -> None:
    assert simplify((4, 1, 8), [(8, 8, 1), (8, 0, 1)]) == ((32,), [(1,), (1,)])
    assert simplify((4, 8), [(8, 1), (0, 1)]) == ((4, 8), [(8, 1), (0, 1)])
    assert simplify((4, 8), [(1, 4), (1, 4)]) == ((32,), [(1,), (1,)])
    assert simplify((4, 8), [(8, 1), (1, 4)]) == ((4, 8), [(8, 1), (1, 4)])
    assert simplify((2, 3, 4), [(12, 4, 1), (0, 4, 1)]) == ((2, 12), [(12, 1), (0, 1)])
    assert simplify((1, 1), [(1, 1)]) == ((), [()])


def test_tile() -> None:
    near = ((8, 512), [(512, 1), (1, 8)])
    assert tile(*near) == near
    shape, (written, read) = tile((32, 500), [(500, 1), (1, 32)])
    assert shape == (8, 125, 4, 4)
    assert turned_side(shape, read) == 4
    assert turned_side(shape, written) is None
    shape, (written, read) = tile((512, 32), [(32, 1), (1, 512)])
    assert shape == (64, 4, 8, 8)
    assert turned_side(shape, read) == 8
    assert (written, read) == ((256, 8, 32, 1), (8, 4096, 1, 512))
    # Other dimensions stay outside; sides divide the sizes; a whole side is one loop.
    shape, (written, read) = tile((6, 5, 300), [(1500, 300, 1), (1, 6, 1800)])
    assert shape == (5, 50, 6, 6)
    assert (written, read) == ((300, 6, 1500, 1), (6, 10800, 1, 1800))
    no_side = ((512, 31), [(31, 1), (1, 512)])
    assert tile(*no_side) == no_side
    of_six = ((60, 30), [(30, 1), (1, 60)])
    assert tile(*of_six) == of_six
    assert tile((), [()]) == ((), [()])


@pytest.mark.parametrize("shape", [(256, 512), (300, 262), (8, 1000), (260, 31), (20, 36), (16, 8)])
def test_transposes(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    add(x.t(), torch.randn(shape[::-1]), torch.empty(shape[::-1]))
    add(x.t(), torch.randn(shape[0]), torch.empty(shape[::-1]))
    wide = torch.randn(3, *shape)
    add(wide.permute(2, 0, 1), wide.permute(2, 0, 1) + 1, torch.empty(shape[1], 3, shape[0]))


@pytest.mark.parametrize("shape", [(16, 24), (12, 20)])
@pytest.mark.parametrize("dtype", list(DType))
def test_turned_tiles(dtype: DType, shape: tuple[int, int]) -> None:
    rows, columns = shape
    torch.manual_seed(0)
    x = torch.randint(0, 2 if dtype is DType.BOOL else 100, (rows * columns + 3,))
    x = x.to(TORCH_DTYPES[dtype])
    builder = KernelBuilder("kernel", (columns, rows))
    source, out = builder.input(dtype), builder.output(dtype)
    across = builder.load(source, (1, columns), offset=3)
    # Backwards through the columns of the matrix.
    backwards = builder.load(source, (1, -columns), offset=3 + (rows - 1) * columns)
    builder.store(out, across, (rows, 1))
    builder.store(builder.output(dtype), backwards, (rows, 1))
    found = torch.empty(columns, rows, dtype=x.dtype), torch.empty(columns, rows, dtype=x.dtype)
    CompiledKernel(builder.build())(x, *found)
    matrix = x[3:].view(shape).t()
    assert torch.equal(found[0], matrix)
    assert torch.equal(found[1], matrix.flip(1))


def test_turned_tiles_are_computed_on_in_vectors() -> None:
    if "avx512vl" not in host_features():
        pytest.skip("needs AVX-512")
    builder = KernelBuilder("kernel", (64, 256))
    value = builder.apply("relu", builder.load(builder.input(F32), (1, 64)))
    builder.store(builder.output(F32), value, (256, 1))
    text = optimised(llvm_ir(builder.build()))
    assert "store <8 x float>" in str(text)
    assert "scatter" not in str(text) and "gather" not in str(text)


@pytest.mark.parametrize(
    ("dtype", "operation", "vector"),
    [
        (F32, "relu", "<16 x float>"),
        (F32, "sin", "@Sleef_sinf16_u10"),
        (F32, "gelu", "<16 x float>"),
        (DType.F64, "exp", "@Sleef_expd8_u10"),
        (DType.BF16, "silu", "<16 x float>"),
        (DType.F16, "asin", "@Sleef_asinf16_u10"),
        (DType.I32, "abs", "<16 x i32>"),
        (DType.I64, "neg", "<8 x i64>"),
    ],
)
def test_contiguous_kernels_are_vectorised(dtype: DType, operation: str, vector: str) -> None:
    machine_has = host_features()
    if "avx512f" not in machine_has or "avx512vl" not in machine_has:
        pytest.skip("needs AVX-512")
    builder = KernelBuilder("kernel", (2, 4096))
    value = builder.load(builder.input(dtype), (4096, 1))
    builder.store(builder.output(dtype), builder.apply(operation, value), (4096, 1))
    text = llvm_ir(builder.build())
    assert text.count("phi") == 1, "two contiguous dimensions are one loop"
    calls = [line for line in str(optimised(text)).splitlines() if "declare" not in line]
    assert vector in "\n".join(calls)


def test_broadcast_inner_loop_is_vectorised() -> None:
    builder = KernelBuilder("bias", (64, 256))
    x, y = builder.input(F32), builder.input(F32)
    total = builder.apply("add", builder.load(x, (256, 1)), builder.load(y, (0, 1)))
    builder.store(builder.output(F32), total, (256, 1))
    text = str(optimised(llvm_ir(builder.build())))
    assert "fadd <" in text
