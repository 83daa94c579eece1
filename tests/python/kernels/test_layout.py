# SPDX-License-Identifier: Apache-2.0
"""Iteration spaces: strides, broadcasting, offsets, empty and zero-dimensional kernels."""

from __future__ import annotations

import pytest
import torch
from mcjit import TORCH_DTYPES, CompiledKernel, host_features, optimised, vectors_of

from hostjit.kernels import DType, KernelBuilder, llvm_ir
from hostjit.kernels.iteration import simplify
from hostjit.kernels.point_space import PointSpace, Tile, point_space

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
    scale = builder.scalar_argument("scale", DType.F64)
    shift = builder.scalar_argument("shift", DType.I64)
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


def transpose(tall: int, wide: int, dtype: DType = F32, *, may_alias: bool = False) -> PointSpace:
    """The loops of a copy of a matrix by columns, [tall, wide]."""
    builder = KernelBuilder("kernel", (tall, wide))
    value = builder.load(builder.input(dtype), (1, tall))
    builder.store(builder.output(dtype, may_alias=may_alias), value, (wide, 1))
    return point_space(builder.build())


def test_what_lies_across_is_visited_in_tiles() -> None:
    space = transpose(512, 32)
    assert space.tile == Tile(16, 8, 512, 32)
    assert space.sizes == (32, 4, 16, 8)
    assert space.strides == ((32, 1, 32, 1), (1, 512, 1, 512))
    assert [space.is_turned(place) for place in (0, 1)] == [False, True]
    assert not space.tile.overlaps
    # Neighbours that are near need none.
    assert transpose(8, 512).tile is None
    assert transpose(8, 512).sizes == (8, 512)
    # A line of the cache is as wide as it is high where rows are a page apart.
    assert transpose(512, 1024).tile == Tile(16, 16, 512, 1024)
    assert transpose(512, 4096, DType.U8).tile == Tile(64, 64, 512, 4096)
    assert transpose(512, 512, DType.BF16).tile == Tile(32, 16, 512, 512)


def test_tiles_overlap_where_sides_divide_nothing() -> None:
    space = transpose(1023, 70)
    assert space.tile == Tile(16, 8, 1023, 70)
    assert space.sizes == (64, 9, 16, 8)
    assert space.tile.overlaps
    # Not so much that it costs more than it gains.
    assert transpose(34, 20).tile == Tile(4, 4, 34, 20)
    assert transpose(17, 9).tile == Tile(4, 4, 17, 9)
    assert transpose(300, 3).tile is None
    # Where a point may be written over what it is made of, it is visited once.
    assert transpose(1023, 64, may_alias=True).tile is None
    assert transpose(1020, 60, may_alias=True).tile == Tile(4, 4, 1020, 60)


def test_other_dimensions_stay_outside_of_tiles() -> None:
    builder = KernelBuilder("kernel", (6, 5, 300))
    value = builder.load(builder.input(F32), (1, 6, 1800))
    builder.store(builder.output(F32), value, (1500, 300, 1))
    space = point_space(builder.build())
    assert space.sizes == (5, 2, 38, 4, 8)
    assert space.strides == ((300, 1500, 1, 1500, 1), (6, 1, 1800, 1, 1800))
    assert space.split == 2


@pytest.mark.parametrize(
    "shape",
    [(256, 512), (300, 262), (8, 1000), (260, 31), (20, 36), (16, 8), (67, 130), (5, 17), (33, 4)],
)
def test_transposes(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    add(x.t(), torch.randn(shape[::-1]), torch.empty(shape[::-1]))
    add(x.t(), torch.randn(shape[0]), torch.empty(shape[::-1]))
    wide = torch.randn(3, *shape)
    add(wide.permute(2, 0, 1), wide.permute(2, 0, 1) + 1, torch.empty(shape[1], 3, shape[0]))


@pytest.mark.parametrize("shape", [(16, 24), (12, 20), (64, 65), (131, 77), (17, 19)])
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
    ("dtype", "operation", "vectors"),
    [
        (F32, "relu", vectors_of(16, "float")),
        (F32, "sin", ["@Sleef_sinf16_u10"]),
        (F32, "gelu", vectors_of(16, "float")),
        (DType.F64, "exp", vectors_of(8, "double")),
        (DType.F64, "expm1", ["@Sleef_expm1d8_u10"]),
        (DType.BF16, "silu", vectors_of(16, "float")),
        (DType.F16, "asin", ["@Sleef_asinf16_u10"]),
        (DType.I32, "abs", vectors_of(16, "i32")),
        (DType.I64, "neg", vectors_of(8, "i64")),
    ],
)
def test_contiguous_kernels_are_vectorised(
    dtype: DType, operation: str, vectors: list[str]
) -> None:
    machine_has = host_features()
    if "avx512f" not in machine_has or "avx512vl" not in machine_has:
        pytest.skip("needs AVX-512")
    builder = KernelBuilder("kernel", (2, 4096))
    value = builder.load(builder.input(dtype), (4096, 1))
    builder.store(builder.output(dtype), builder.apply(operation, value), (4096, 1))
    text = llvm_ir(builder.build())
    assert text.count("phi") == 1, "two contiguous dimensions are one loop"
    calls = [line for line in str(optimised(text)).splitlines() if "declare" not in line]
    assert any(vector in "\n".join(calls) for vector in vectors)


def test_broadcast_inner_loop_is_vectorised() -> None:
    builder = KernelBuilder("bias", (64, 256))
    x, y = builder.input(F32), builder.input(F32)
    total = builder.apply("add", builder.load(x, (256, 1)), builder.load(y, (0, 1)))
    builder.store(builder.output(F32), total, (256, 1))
    text = str(optimised(llvm_ir(builder.build())))
    assert "fadd <" in text


def test_short_inner_loops_are_vectorised() -> None:
    builder = KernelBuilder("every_second", (100, 16))
    value = builder.load(builder.input(F32), (32, 1))
    builder.store(builder.output(F32), builder.apply("add", value, value), (16, 1))
    text = str(optimised(llvm_ir(builder.build())))
    assert "fadd <" in text
    assert "gather" not in text and "scatter" not in text
