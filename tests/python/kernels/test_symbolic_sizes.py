# SPDX-License-Identifier: Apache-2.0
"""Kernels whose sizes come with the call give the results of kernels that know them.

Bit for bit, but for sums over a length that is not known: LLVM unrolls them otherwise.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from mcjit import CompiledKernel

from hostjit.kernels import DType, KernelBuilder, PointwiseKernel, num_items
from hostjit.kernels.point_space import point_space
from hostjit.kernels.sizes import Size, Symbol, as_size

F32 = DType.F32
M, N = Symbol("m"), Symbol("n", 1)
m, n = as_size(M), as_size(N)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def check(
    build: Callable[[Size, Size], PointwiseKernel],
    sizes: list[tuple[int, int]],
    operands: Callable[[int, int], list[torch.Tensor]],
    *,
    tolerance: float = 0,
) -> None:
    """Compare one kernel for all sizes with one for each of them."""
    kernel = build(m, n)
    symbolic = CompiledKernel(kernel)
    for rows, columns in sizes:
        values = {"m": rows, "n": columns}
        arguments = operands(rows, columns)
        expected = [*map(torch.clone, arguments)]
        found = [*map(torch.clone, arguments)]
        CompiledKernel(build(rows, columns), optimise=tolerance == 0)(*expected)
        symbolic(*found, *(values[symbol.name] for symbol in kernel.symbols()))
        for x, y in zip(found, expected, strict=True):
            torch.testing.assert_close(x, y, rtol=tolerance, atol=0, msg=f"{rows}, {columns}")


def pointwise(rows: Size, columns: Size) -> PointwiseKernel:
    builder = KernelBuilder("kernel", (rows, columns))
    x = builder.load(builder.input(F32), (columns, 1))
    y = builder.load(builder.input(F32), (0, 1))
    place = builder.apply("add", builder.index((columns, 1)), builder.size(columns))
    z = builder.apply("mul", builder.apply("tanh", x), y)
    builder.store(builder.output(F32), z, (columns, 1))
    builder.store(builder.output(DType.I64), place, (columns, 1))
    return builder.build()


def test_elements_and_what_is_broadcast_to_them() -> None:
    def operands(rows: int, columns: int) -> list[torch.Tensor]:
        places = torch.zeros(rows, columns, dtype=torch.int64)
        return [
            torch.randn(rows, columns),
            torch.randn(columns),
            torch.zeros(rows, columns),
            places,
        ]

    check(pointwise, [(2, 1), (3, 7), (64, 64), (5, 1000)], operands)


def test_what_lies_side_by_side_is_one_loop() -> None:
    builder = KernelBuilder("kernel", (m, n, 768))
    x = builder.load(builder.input(F32), (n * 768, 768, 1))
    builder.store(builder.output(F32), builder.apply("relu", x), (n * 768, 768, 1))
    kernel = builder.build()
    space = point_space(kernel)
    assert (space.sizes, space.strides) == ((m * n * 768,), ((1,), (1,)))
    assert num_items(kernel) == 768 * m * n
    x = torch.randn(3, 5, 768)
    found = torch.empty_like(x)
    compiled = CompiledKernel(kernel)
    compiled(x, found, *({"m": 3, "n": 5}[symbol.name] for symbol in kernel.symbols()))
    assert torch.equal(found, x.relu())
    assert "<" in compiled.text and " x float> " in compiled.text


def test_a_transpose() -> None:
    def build(rows: Size, columns: Size) -> PointwiseKernel:
        builder = KernelBuilder("kernel", (rows, columns))
        x = builder.load(builder.input(F32), (1, rows))
        builder.store(builder.output(F32), builder.apply("neg", x), (columns, 1))
        return builder.build()

    def operands(rows: int, columns: int) -> list[torch.Tensor]:
        return [torch.randn(columns, rows), torch.zeros(rows, columns)]

    check(build, [(2, 1), (3, 300), (300, 4), (40, 40)], operands)


def test_an_empty_loop() -> None:
    builder = KernelBuilder("kernel", (m - 2, n))
    x = builder.load(builder.input(F32), (n, 1), 2 * n)
    builder.store(builder.output(F32), builder.apply("neg", x), (n, 1))
    kernel = builder.build()
    compiled = CompiledKernel(kernel, optimise=False)
    for rows in (2, 3, 5):
        x, out = torch.randn(rows, 4), torch.full((rows, 4), 7.0)
        compiled(x, out, *({"m": rows, "n": 4}[symbol.name] for symbol in kernel.symbols()))
        assert torch.equal(out, torch.cat([-x[2:], torch.full((2, 4), 7.0)]))


def test_backwards() -> None:
    def build(rows: Size, columns: Size) -> PointwiseKernel:
        builder = KernelBuilder("kernel", (rows, columns))
        last = (rows - 1) * columns
        x = builder.load(builder.input(F32), (-1 * columns, 1), last)
        builder.store(builder.output(F32), x, (columns, 1))
        return builder.build()

    x = torch.randn(5, 3)
    check(build, [(5, 3)], lambda *_: [x, torch.zeros(5, 3)])


def softmax(rows: Size, columns: Size, strides: tuple[Size, Size]) -> PointwiseKernel:
    builder = KernelBuilder("kernel", (rows, columns), 1)
    x = builder.load(builder.input(F32), strides)
    largest = builder.reduce("max", x)
    power = builder.apply("exp", builder.apply("sub", x, largest))
    total = builder.reduce("sum", power)
    mean = builder.apply("div", total, builder.cast(builder.size(columns), F32))
    builder.store(builder.output(F32), builder.apply("div", power, total), strides)
    builder.store(builder.output(F32), mean, (1, 0))
    return builder.build()


def test_rows_of_any_length() -> None:
    def build(rows: Size, columns: Size) -> PointwiseKernel:
        return softmax(rows, columns, (columns, 1))

    def operands(rows: int, columns: int) -> list[torch.Tensor]:
        return [torch.randn(rows, columns), torch.zeros(rows, columns), torch.zeros(rows)]

    sizes = [(2, 1), (3, 7), (5, 64), (2, 4097), (2, 8192), (2, 10000), (2, 300000)]
    check(build, sizes, operands, tolerance=1e-5)


def test_rows_that_lie_side_by_side() -> None:
    def build(rows: Size, columns: Size) -> PointwiseKernel:
        return softmax(rows, columns, (1, rows))

    def operands(rows: int, columns: int) -> list[torch.Tensor]:
        return [torch.randn(columns, rows), torch.zeros(columns, rows), torch.zeros(rows)]

    sizes = [(2, 1), (256, 7), (257, 63), (600, 20), (3, 3000)]
    check(build, sizes, operands, tolerance=1e-5)


def test_known_rows_of_a_number_that_is_not() -> None:
    def build(rows: Size, columns: Size) -> PointwiseKernel:
        return softmax(rows, 768, (768, 1))

    def operands(rows: int, columns: int) -> list[torch.Tensor]:
        return [torch.randn(rows, 768), torch.zeros(rows, 768), torch.zeros(rows)]

    check(build, [(2, 1), (9, 1)], operands)


def test_indices_and_their_failure() -> None:
    builder = KernelBuilder("kernel", (m, 8))
    index = builder.load(builder.input(DType.I64), (1, 0))
    place = builder.bounded(index, n, "IndexError: {} is none", wraps=True)
    x = builder.load(builder.input(F32), (0, 1), 0, ((place, 8),))
    builder.store(builder.output(F32), x, (8, 1))
    kernel = builder.build()
    assert [symbol.name for symbol in kernel.symbols()] == ["m", "n"]
    compiled = CompiledKernel(kernel, optimise=False)
    rows, failure = torch.randn(5, 8), torch.zeros(2, dtype=torch.int64)
    index, out = torch.tensor([4, -1, 0]), torch.zeros(3, 8)
    compiled(index, rows, out, 3, 5, failure.data_ptr())
    assert torch.equal(out, rows[index])
    assert failure.tolist() == [0, 0]
    compiled(torch.tensor([4, 5, 0]), rows, out, 3, 5, failure.data_ptr())
    assert failure.tolist() == [1, 5]
