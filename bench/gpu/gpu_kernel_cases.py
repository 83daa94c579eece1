# SPDX-License-Identifier: Apache-2.0
"""Large kernels that move as many bytes as they must, and what eager runs for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from hostjit.kernels import DType, KernelBuilder, PointwiseKernel

F32 = DType.F32
TORCH = {DType.F32: torch.float32, DType.BF16: torch.bfloat16}
Shapes = list[tuple[int, ...]]


@dataclass(frozen=True)
class Case:
    """A kernel, the shapes of its tensors, and eager's call on the inputs."""

    name: str
    kernel: PointwiseKernel
    dtype: DType
    inputs: Shapes
    output: tuple[int, ...]
    eager: Callable[..., torch.Tensor]

    @property
    def bytes(self) -> int:
        """What is read and written once."""
        shapes = [*self.inputs, self.output]
        return sum(torch.Size(shape).numel() for shape in shapes) * self.dtype.itemsize


def pointwise(dtype: DType, count: int) -> Iterator[Case]:
    for name, arity, eager in (
        ("add", 2, torch.add),
        ("gelu", 1, F.gelu),
        ("silu", 1, F.silu),
    ):
        builder = KernelBuilder(name, (count,))
        operands = [builder.load(builder.input(dtype), (1,)) for _ in range(arity)]
        builder.store(builder.output(dtype), builder.apply(name, *operands), (1,))
        shapes: Shapes = [(count,)] * arity
        yield Case(name, builder.build(), dtype, shapes, (count,), eager)


def softmax(dtype: DType, rows: int, columns: int) -> Case:
    builder = KernelBuilder("softmax", (rows, columns), 1)
    x = builder.load(builder.input(dtype), (columns, 1))
    power = builder.apply("exp", builder.apply("sub", x, builder.reduce("max", x)))
    result = builder.apply("div", power, builder.reduce("sum", power))
    builder.store(builder.output(dtype), result, (columns, 1))
    shape = (rows, columns)
    return Case("softmax", builder.build(), dtype, [shape], shape, lambda x: x.softmax(-1))


def layer_norm(dtype: DType, rows: int, columns: int) -> Case:
    builder = KernelBuilder("layer_norm", (rows, columns), 1)
    x = builder.load(builder.input(dtype), (columns, 1))
    count = builder.constant(F32, columns)
    mean = builder.apply("div", builder.reduce("sum", x), count)
    distance = builder.apply("sub", x, mean)
    squares = builder.reduce("sum", builder.apply("square", distance))
    variance = builder.apply("div", squares, count)
    scale = builder.apply("rsqrt", builder.apply("add", variance, builder.constant(F32, 1e-5)))
    weight, bias = (builder.load(builder.input(dtype), (0, 1)) for _ in range(2))
    scaled = builder.apply("mul", builder.apply("mul", distance, scale), weight)
    builder.store(builder.output(dtype), builder.apply("add", scaled, bias), (columns, 1))
    shape = (rows, columns)

    def eager(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (columns,), weight, bias)

    inputs: Shapes = [shape, (columns,), (columns,)]
    return Case("layer_norm", builder.build(), dtype, inputs, shape, eager)


def sum_of_rows(dtype: DType, rows: int, columns: int) -> Case:
    builder = KernelBuilder("sum_of_rows", (rows, columns), 1)
    x = builder.load(builder.input(dtype), (columns, 1))
    builder.store(builder.output(dtype), builder.reduce("sum", x), (1, 0))
    shape = (rows, columns)
    return Case("sum_of_rows", builder.build(), dtype, [shape], (rows,), lambda x: x.sum(1))


def sum_of_columns(dtype: DType, rows: int, columns: int) -> Case:
    builder = KernelBuilder("sum_of_columns", (columns, rows), 1)
    x = builder.load(builder.input(dtype), (1, columns))
    builder.store(builder.output(dtype), builder.reduce("sum", x), (1, 0))
    shape = (rows, columns)
    return Case("sum_of_columns", builder.build(), dtype, [shape], (columns,), lambda x: x.sum(0))


def transposed_add(dtype: DType, rows: int, columns: int) -> Case:
    builder = KernelBuilder("transposed_add", (rows, columns))
    x = builder.load(builder.input(dtype), (columns, 1))
    y = builder.load(builder.input(dtype), (1, rows))
    builder.store(builder.output(dtype), builder.apply("add", x, y), (columns, 1))
    shapes: Shapes = [(rows, columns), (columns, rows)]
    kernel = builder.build()
    return Case("transposed_add", kernel, dtype, shapes, shapes[0], lambda x, y: x + y.t())


def cases() -> Iterator[Case]:
    for dtype in (DType.F32, DType.BF16):
        yield from pointwise(dtype, 1 << 26)
        for columns in (1024, 2048, 4096, 8192):
            yield softmax(dtype, 8192, columns)
            yield layer_norm(dtype, 8192, columns)
        yield softmax(dtype, 1 << 19, 128)
        yield layer_norm(dtype, 4096, 16384)
        yield softmax(dtype, 2048, 65536)
        yield softmax(dtype, 1, 1 << 20)
        yield softmax(dtype, 16, 1 << 20)
        yield sum_of_rows(dtype, 8192, 8192)
        yield sum_of_columns(dtype, 8192, 8192)
        yield sum_of_columns(dtype, 65536, 1024)
        yield sum_of_rows(dtype, 1, 1 << 26)
        yield transposed_add(dtype, 8192, 8192)
