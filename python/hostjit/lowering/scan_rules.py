# SPDX-License-Identifier: Apache-2.0
"""Cumulative sums and products: kernels of their own, where tensors are small."""

from __future__ import annotations

import hashlib
import math

import torch
from torch.fx import Node

from hostjit.kernels.conversion import cast
from hostjit.kernels.dtypes import DType
from hostjit.kernels.matrices.layout import Layout
from hostjit.kernels.matrices.writer import Matrix, Writer, write_function
from hostjit.kernels.operation import Value, apply
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.devices import CPU
from hostjit.lowering.pointwise import DTYPES, named_arguments
from hostjit.lowering.registry import lowers
from hostjit.lowering.sizes import shape_of, strides_of
from hostjit.lowering.types import is_plain

__all__: list[str] = []

# With more of them, a call of ATen costs nothing beside the work.
_MOST_ELEMENTS = 1 << 14


@lowers("aten.cumsum.default")
def lower_cumsum(context: LoweringContext, node: Node) -> bool:
    """cumsum(self, dim, dtype=) -> result."""
    return _lower(context, node, "add", 0)


@lowers("aten.cumprod.default")
def lower_cumprod(context: LoweringContext, node: Node) -> bool:
    """cumprod(self, dim, dtype=) -> result."""
    return _lower(context, node, "mul", 1)


def _lower(context: LoweringContext, node: Node, operation: str, identity: int) -> bool:
    """Accumulate along a dim, in the type and the order of eager (`at::acc_type`)."""
    arguments = named_arguments(node)
    source, value = arguments["self"], node.meta["val"]
    if not is_plain(source) or not _is_small(source.meta["val"], value):
        return False
    given, made = (DTYPES[tensor.dtype] for tensor in (source.meta["val"], value))
    dim = arguments["dim"] % value.dim()
    batch = [size for place, size in enumerate(value.shape) if place != dim]
    pairs = ((given, source.meta["val"]), (made, value))
    layouts = [_layout(dtype, tensor, dim) for dtype, tensor in pairs]
    accumulated = _accumulated(made)

    def body(writer: Writer, read: Matrix, written: Matrix) -> None:
        total = writer.variable(accumulated)
        total.set(writer.emitter.constant(accumulated, identity))

        def step(i: Value) -> None:
            found = cast(cast(read.get(i), made), accumulated)
            total.set(apply(operation, total.get(), found))
            written.set(cast(total.get(), made.register), i)

        writer.each(0, value.shape[dim], step)

    content = repr((batch, value.shape[dim], layouts)).encode()
    name = f"cumulative_{operation}_{hashlib.sha256(content).hexdigest()[:8]}"
    if name not in context.kernels:
        context.add_kernel(name, write_function(name, batch, layouts[:1], layouts[1:], body))
    fields = {"kernel": name, "inputs": [context.value(source)]}
    context.create("launch_kernel", {**fields, "outputs": [context.allocate(node)]})
    return True


def _is_small(source: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether tensors are on the CPU, of few elements, which are known, and of types of kernels."""
    tensors = (source, value)
    numbers = [x for tensor in tensors for x in (*shape_of(tensor), *strides_of(tensor))]
    if not all(isinstance(number, int) for number in numbers) or value.dim() == 0:
        return False
    if any(tensor.device != CPU or tensor.dtype not in DTYPES for tensor in tensors):
        return False
    return value.dtype is not torch.bool and 0 < math.prod(value.shape) <= _MOST_ELEMENTS


def _layout(dtype: DType, tensor: torch.Tensor, dim: int) -> Layout:
    strides = [*tensor.stride()]
    along = strides.pop(dim)
    return Layout(dtype, tuple(strides), along)


def _accumulated(dtype: DType) -> DType:
    if dtype.is_float:
        return DType.F32 if dtype is not dtype.register else DType.F64
    return DType.I64
