# SPDX-License-Identifier: Apache-2.0
"""Kernels with rows: tiles, chunks, caches, and what the vectoriser makes of them."""

from __future__ import annotations

import re

import pytest
import torch
from mcjit import TORCH_DTYPES, CompiledKernel, host_features, vectors_of

from hostjit.kernels import DType, KernelBuilder, split_row
from hostjit.kernels.cascade import cascade
from hostjit.kernels.reduction import reduced_dtype
from hostjit.kernels.reduction_plan import make_plan
from hostjit.kernels.row_tiles import row_tiles

F32 = DType.F32


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def softmax(shape: tuple[int, int], strides: tuple[int, int]) -> KernelBuilder:
    """The builder of a softmax over the second dimension, with the largest element beside it."""
    builder = KernelBuilder("kernel", shape, 1)
    x = builder.load(builder.input(F32), strides)
    largest = builder.reduce("max", x)
    power = builder.apply("exp", builder.apply("sub", x, largest))
    quotient = builder.apply("div", power, builder.reduce("sum", power))
    builder.store(builder.output(F32), quotient, strides)
    builder.store(builder.output(F32), largest, (1, 0))
    return builder


@pytest.mark.parametrize("rows", [1, 5, 64, 256, 257, 600])
@pytest.mark.parametrize("columns", [1, 7, 64, 3000])
def test_softmax_along_and_across_memory(rows: int, columns: int) -> None:
    along, across = torch.randn(rows, columns), torch.randn(columns, rows)
    for x, strides in ((along, (columns, 1)), (across.t(), (1, rows))):
        out, largest = torch.empty_like(x), torch.empty(rows)
        kernel = CompiledKernel(softmax((rows, columns), strides).build(), optimise=rows == 257)
        kernel(x, out, largest)
        torch.testing.assert_close(out, x.softmax(1))
        torch.testing.assert_close(largest, x.amax(1), rtol=0, atol=0)


def test_passes_of_softmax() -> None:
    kernel = softmax((4, 100), (100, 1)).build()
    plan = make_plan(kernel, 1)
    power = next(n for n, value in enumerate(kernel.values) if "exp" in repr(value))
    assert [len(pass_.reductions) for pass_ in plan.passes] == [1, 1, 0]
    assert [pass_.caches for pass_ in plan.passes] == [[], [power], []]
    assert plan.caches == {power: None}
    long = softmax((4, 4096), (4096, 1)).build()
    assert make_plan(long, 1).caches == {power: long.stores[0]}


def test_cheap_values_are_computed_again() -> None:
    builder = KernelBuilder("kernel", (4, 100), 1)
    x = builder.load(builder.input(F32), (100, 1))
    double = builder.apply("add", x, x)
    builder.store(builder.output(F32), builder.reduce("sum", double), (1, 0))
    shifted = builder.apply("sub", double, builder.reduce("max", double))
    builder.store(builder.output(F32), shifted, (100, 1))
    plan = make_plan(builder.build(), 1)
    assert len(plan.passes) == 2
    assert plan.caches == {}


def test_a_value_per_row_is_stored_once_or_to_each_element() -> None:
    builder = KernelBuilder("kernel", (3, 5), 1)
    total = builder.reduce("sum", builder.load(builder.input(F32), (5, 1)))
    builder.store(builder.output(F32), builder.apply("sqrt", total), (1, 0))
    builder.store(builder.output(F32), total, (5, 1))
    x, rows, elements = torch.rand(3, 5), torch.empty(3), torch.empty(3, 5)
    CompiledKernel(builder.build(), optimise=False)(x, rows, elements)
    torch.testing.assert_close(rows, x.sum(1).sqrt())
    torch.testing.assert_close(elements, x.sum(1, keepdim=True).expand(3, 5).contiguous())


@pytest.mark.parametrize("shape", [(4, 5, 6), (1, 5, 1), (4, 1, 6)])
def test_several_reduced_dimensions(shape: tuple[int, int, int]) -> None:
    x = torch.randn(shape)
    for order in ((0, 1, 2), (1, 0, 2), (2, 0, 1), (2, 1, 0)):
        view = x.permute(order)
        for num_reduced in (1, 2, 3):
            builder = KernelBuilder("kernel", tuple(view.shape), num_reduced)
            loaded = builder.load(builder.input(F32), view.stride())
            kept = view.shape[: 3 - num_reduced]
            out = torch.empty(kept)
            strides = (*out.stride(), *[0] * num_reduced)
            builder.store(builder.output(F32), builder.reduce("sum", loaded), strides)
            CompiledKernel(builder.build(), optimise=False)(x, out)
            torch.testing.assert_close(out, view.sum(tuple(range(3 - num_reduced, 3))))


def test_chunks() -> None:
    assert cascade((100,), 4096, 64) == [[]]
    assert cascade((4096,), 32, 32) == [[(32, 0), (1024, 1)]]
    assert cascade((1000, 30), 32, 32) == [[(1, 0), (25, 1)], []]
    sizes = (7, 997, 3)
    chunks = cascade(sizes, 32, 32)
    levels = [level for cuts in reversed(chunks) for _, level in cuts]
    assert levels == list(range(len(levels)))


@pytest.mark.parametrize("shape", [(1, 100003), (1, 2, 997), (7, 9000)])
def test_chunked_sums(shape: tuple[int, ...]) -> None:
    """Whole numbers add up exactly, so each element must be there once."""
    x = torch.randint(0, 100, shape).float()
    for dim in range(len(shape)):
        view = x.movedim(dim, -1)
        builder = KernelBuilder("kernel", tuple(view.shape), 1)
        loaded = builder.load(builder.input(F32), view.stride())
        out = torch.empty(view.shape[:-1])
        builder.store(builder.output(F32), builder.reduce("sum", loaded), (*out.stride(), 0))
        CompiledKernel(builder.build(), optimise=False)(x, out)
        assert torch.equal(out, x.sum(dim)), dim


@pytest.mark.skipif("avx512f" not in host_features(), reason="needs AVX-512")
@pytest.mark.parametrize("name", ["sum", "max"])
@pytest.mark.parametrize("strides", [(256, 1), (1, 16)])
def test_vectorised_without_a_rest(name: str, strides: tuple[int, int]) -> None:
    builder = KernelBuilder("kernel", (16, 256), 1)
    x = builder.load(builder.input(F32), strides)
    builder.store(builder.output(F32), builder.reduce(name, x), (1, 0))
    text = CompiledKernel(builder.build()).text
    assert any(vector in text for vector in vectors_of(16, "float"))
    assert not re.search(r"= load float", text)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("short", [8, 16, 48])
def test_short_loops_are_vectorised_where_they_are(across: bool, short: int) -> None:
    """And not the loop around them, whose neighbours lie apart."""
    builder = KernelBuilder("kernel", (short, 1000) if across else (1000, short), 1)
    x = builder.load(builder.input(F32), (1, short) if across else (short, 1))
    builder.store(builder.output(F32), builder.reduce("sum", x), (1, 0))
    text = CompiledKernel(builder.build()).text
    assert "gather" not in text and "scatter" not in text
    assert "fadd <" in text or "fadd reassoc <" in text


def test_sums_of_short_columns_stay_in_registers() -> None:
    builder = KernelBuilder("kernel", (16, 4096), 1)
    x = builder.load(builder.input(F32), (1, 16))
    builder.store(builder.output(F32), builder.reduce("sum", x), (1, 0))
    assert "alloca" not in CompiledKernel(builder.build()).text


def test_errors() -> None:
    message = "max: the operand is bool, expected one of f64, f32, i64, i32, i16, i8, u8"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        reduced_dtype("max", DType.BOOL)
    with pytest.raises(ValueError, match=re.escape("unknown reduction 'median'")):
        reduced_dtype("median", F32)
    builder = KernelBuilder("k", (3, 5), 1)
    builder.store(builder.output(F32), builder.load(builder.input(F32), (5, 1)), (1, 0))
    message = "kernel 'k': store to output 0 is per row, but its value varies within a row"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        builder.build()


@pytest.mark.parametrize("shape", [(64,), (3, 50), (20, 17)])
def test_a_split_row(shape: tuple[int, ...]) -> None:
    builder = KernelBuilder("kernel", shape, len(shape))
    strides = torch.empty(shape).stride()
    x = builder.load(builder.input(F32), strides)
    square = builder.apply("square", x)
    scale = builder.load(builder.input(F32), (0,) * len(shape), 2)
    row = builder.apply("mul", builder.reduce("sum", square), scale)
    builder.store(builder.output(F32), row, (0,) * len(shape))
    builder.store(builder.output(F32), square, strides)
    builder.store(builder.output(F32), builder.reduce("max", x), (0,) * len(shape))
    split = split_row(builder.build())
    assert split is not None
    assert (split.elements, split.results, split.partials) == ((1,), (0, 2), (F32, F32))
    x, scale = torch.randn(shape), torch.randn(3)
    squares, sums, largest = (
        torch.empty(shape),
        torch.empty(split.partial_size),
        torch.empty(split.partial_size),
    )
    total, extreme = torch.empty(()), torch.empty(())
    CompiledKernel(split.first, optimise=False)(x, scale, squares, sums, largest)
    CompiledKernel(split.second, optimise=False)(x, scale, sums, largest, total, extreme)
    torch.testing.assert_close(total, (x * x).sum() * scale[2])
    torch.testing.assert_close(squares, x * x)
    assert extreme == x.max()


@pytest.mark.parametrize("across", [False, True])
def test_several_split_rows(across: bool) -> None:
    """Along dimensions 1 and 2, or 0 and 1, of which one can't be divided by about four."""
    x, scale = torch.randn(6, 13, 20), torch.randn(20 if across else 6)
    order = (2, 0, 1) if across else (0, 1, 2)
    builder = KernelBuilder("kernel", tuple(x.shape[dim] for dim in order), 2)
    value = builder.load(builder.input(F32), tuple(x.stride(dim) for dim in order))
    factor = builder.load(builder.input(F32), (1, 0, 0))
    total = builder.reduce("sum", builder.apply("square", value))
    builder.store(builder.output(F32), builder.apply("mul", total, factor), (1, 0, 0))
    split = split_row(builder.build(), 4)
    assert split is not None and split.results == (0,)
    partial, found = torch.empty(split.partial_size), torch.empty(scale.shape)
    CompiledKernel(split.first, optimise=False)(x, scale, partial)
    CompiledKernel(split.second, optimise=False)(x, scale, partial, found)
    dims = tuple(sorted(order[1:]))
    torch.testing.assert_close(found, (x * x).sum(dims) * scale)


def test_the_farthest_dimension_is_split() -> None:
    x = torch.randn(4, 16, 20, 30).contiguous(memory_format=torch.channels_last)
    builder = KernelBuilder("kernel", tuple(x.shape), 4)
    value = builder.load(builder.input(F32), x.stride())
    builder.store(builder.output(F32), builder.reduce("sum", value), (0, 0, 0, 0))
    split = split_row(builder.build())
    assert split is not None and split.first.shape == (20, 1, 4, 16, 30)
    partial, found = torch.empty(split.partial_size), torch.empty(())
    CompiledKernel(split.first, optimise=False)(x, partial)
    CompiledKernel(split.second, optimise=False)(x, partial, found)
    torch.testing.assert_close(found, x.sum())


def test_what_is_not_split() -> None:
    assert split_row(softmax((1, 1024), (1024, 1)).build()) is None
    assert split_row(softmax((4, 1024), (1024, 1)).build()) is None
    builder = KernelBuilder("kernel", (13, 7), 2)
    total = builder.reduce("sum", builder.load(builder.input(F32), (7, 1)))
    builder.store(builder.output(F32), total, (0, 0))
    assert split_row(builder.build()) is None


# The sizes of kept and reduced dimensions, the order in which they lie in memory (the farthest
# first), and the lanes: rows, neighbours of each, lines.
LANES = [
    ((5, 16), (24,), (0, 2, 1), (16, 1, 4)),
    ((3,), (2, 48), (1, 2, 0), (3, 1, 16)),
    ((2, 4), (25, 4), (0, 2, 1, 3), (4, 4, 1)),
    ((2, 4), (20, 4), (0, 2, 1, 3), (4, 4, 4)),
    ((2, 40), (7, 20), (0, 2, 1, 3), (12, 20, 1)),
    ((6,), (7, 10), (1, 0, 2), (6, 10, 1)),
    ((2, 3), (9, 20), (0, 1, 2, 3), (1, 1, 1)),
    ((4,), (5, 3), (1, 0, 2), (4, 3, 5)),
]


@pytest.mark.parametrize(("kept", "reduced", "order", "lanes"), LANES)
def test_lanes(
    kept: tuple[int, ...],
    reduced: tuple[int, ...],
    order: tuple[int, ...],
    lanes: tuple[int, int, int],
) -> None:
    """A norm over rows whose elements and neighbours lie in memory in turns."""
    shape, rank = kept + reduced, len(kept)
    strides = [0] * len(shape)
    step = 1
    for dim in reversed(order):
        strides[dim], step = step, step * shape[dim]
    x = torch.randn(step).as_strided(shape, strides)
    # Along the neighbours; several lines would not be in line with it.
    per_lane = lanes[1] > 1 and lanes[2] == 1
    weight = torch.rand(kept[-1] * reduced[-1] if per_lane else 1)
    weights = (*[0] * (rank - 1), reduced[-1], *[0] * (len(reduced) - 1), 1)
    weights = weights if per_lane else (0,) * len(shape)
    builder = KernelBuilder("kernel", shape, len(reduced))
    value = builder.load(builder.input(F32), tuple(strides))
    scale = builder.load(builder.input(F32), weights)
    largest = builder.reduce("max", value)
    power = builder.apply("exp", builder.apply("sub", value, largest))
    total = builder.apply("sqrt", builder.reduce("sum", power))
    quotient = builder.apply("mul", builder.apply("div", power, total), scale)
    rows = torch.empty(kept)
    builder.store(builder.output(F32), quotient, tuple(strides))
    builder.store(builder.output(F32), total, (*rows.stride(), *[0] * len(reduced)))
    kernel = builder.build()
    space = row_tiles(kernel)
    assert (space.width, space.within, space.before) == lanes
    expected = x.sub(x.amax(tuple(range(rank, len(shape))), keepdim=True)).exp()
    root = expected.sum(tuple(range(rank, len(shape))), keepdim=True).sqrt()
    for optimise in (False, True):
        out = torch.empty_strided(shape, strides)
        CompiledKernel(kernel, optimise=optimise)(x, weight, out, rows)
        torch.testing.assert_close(out, expected / root * weight.as_strided(shape, weights))
        torch.testing.assert_close(rows, root.view(kept))


def test_what_differs_from_row_to_row_is_read_where_it_is() -> None:
    """An operand per row is not in line with the elements of several lines."""
    x, weight, out = torch.randn(16, 24), torch.rand(16), torch.empty(16)
    builder = KernelBuilder("kernel", (16, 24), 1)
    value = builder.load(builder.input(F32), (1, 16))
    scaled = builder.apply("mul", value, builder.load(builder.input(F32), (1, 0)))
    builder.store(builder.output(F32), builder.reduce("max", scaled), (1, 0))
    kernel = builder.build()
    assert (row_tiles(kernel).width, row_tiles(kernel).before) == (16, 1)
    CompiledKernel(kernel)(x.t().contiguous().t(), weight, out)
    torch.testing.assert_close(out, (x * weight[:, None]).amax(1))


@pytest.mark.parametrize("dtype", [F32, DType.BF16, DType.F64])
@pytest.mark.parametrize(
    ("rows", "columns", "width"),
    [(48, 32, 16), (24, 16, 16), (32, 81, 16), (13, 7, 8), (7, 16, None), (20, 3, None)],
)
def test_rows_that_are_written_across(
    dtype: DType, rows: int, columns: int, width: int | None
) -> None:
    """As the softmax over the channels of a channels_last tensor, whose result is contiguous."""
    torch_dtype = TORCH_DTYPES[dtype]
    x = torch.randn(3, rows, columns).to(torch_dtype)
    y = torch.randn(3, columns, rows).to(torch_dtype).mT
    builder = KernelBuilder("kernel", tuple(x.shape), 1)
    value = builder.cast(builder.load(builder.input(dtype), x.stride()), F32)
    other = builder.cast(builder.load(builder.input(dtype), y.stride()), F32)
    weight = builder.load(builder.input(F32), (0, 1, 0))
    power = builder.apply("exp", builder.apply("sub", value, builder.reduce("max", value)))
    scaled = builder.apply("mul", weight, builder.apply("add", power, other))
    total = builder.reduce("sum", power)
    quotient = builder.cast(builder.apply("div", scaled, total), dtype)
    builder.store(builder.output(dtype), quotient, y.stride())
    builder.store(builder.output(F32), total, (rows, 1, 0))
    kernel = builder.build()
    tiles = row_tiles(kernel)
    assert (tiles.width if tiles.turned else None) == width
    weights, totals = torch.rand(rows), torch.empty(3, rows)
    expected = x.float().sub(x.float().amax(2, keepdim=True)).exp()
    result = weights[:, None] * (expected + y.float()) / expected.sum(2, keepdim=True)
    for optimise in (False, True):
        out = torch.empty_like(y)
        compiled = CompiledKernel(kernel, optimise=optimise)
        compiled(x, y, weights, out, totals)
        torch.testing.assert_close(out, result.to(torch_dtype))
        torch.testing.assert_close(totals, expected.sum(2))
        if optimise and width and "avx512vl" in host_features():
            assert "scatter" not in compiled.text and "gather" not in compiled.text


@pytest.mark.parametrize(("rows", "columns", "width"), [(20, 33, 20), (20, 1024, 8), (300, 9, 256)])
def test_rows_that_are_read_across_several_times(rows: int, columns: int, width: int) -> None:
    """As the norm of an instance of a channels_last tensor, whose result is contiguous."""
    x = torch.randn(2, columns, rows)
    builder = KernelBuilder("kernel", (2, rows, columns), 1)
    value = builder.load(builder.input(F32), (rows * columns, 1, rows))
    shifted = builder.apply("sub", value, builder.reduce("max", value))
    builder.store(builder.output(F32), shifted, (rows * columns, columns, 1))
    kernel = builder.build()
    assert row_tiles(kernel).width == width
    for optimise in (False, True):
        out = torch.empty(2, rows, columns)
        CompiledKernel(kernel, optimise=optimise)(x, out)
        assert torch.equal(out, (x - x.amax(1, keepdim=True)).mT)
