# SPDX-License-Identifier: Apache-2.0
"""Copies between boxes of strided memory, and fills: ops on the CPU, kernels on CUDA devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from hostjit import _C
from hostjit.kernels import DType, KernelBuilder, PointwiseKernel
from hostjit.kernels.point_space import point_space
from hostjit.kernels.sizes import Size
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.devices import on_cuda
from hostjit.lowering.launches import content_digest, launch
from hostjit.lowering.pointwise import DTYPES
from hostjit.lowering.sizes import shape_of, strides_of
from hostjit.lowering.types import tensor_type

__all__ = [
    "OF_SIZE",
    "Box",
    "box_of",
    "can_fill",
    "copy",
    "copy_all",
    "copy_values",
    "fill",
    "named",
]

OF_SIZE = {1: DType.I8, 2: DType.I16, 4: DType.I32, 8: DType.I64}
# Of one kernel: the parameters of a launch have room for many more.
_MOST_COPIES = 32


class Box:
    """A box of a strided value: views of it by narrowing dimensions."""

    def __init__(self, value: _C.Value, sizes: Sequence[Size], strides: Sequence[Size]) -> None:
        self.value = value
        self.sizes = list(sizes)
        self.strides = list(strides)
        self.offset: Size = 0

    def narrow(self, dim: int, start: Size, size: Size, step: int = 1) -> None:
        """Keep `size` places of a dimension, from `start`."""
        self.offset = self.offset + start * self.strides[dim]
        self.sizes[dim] = size
        self.strides[dim] = self.strides[dim] * step

    def view(self, context: LoweringContext) -> _C.Value:
        """Return the box as a view."""
        type_ = tensor_type(self.value)
        narrowed = context.indices.type(type_.dtype, self.sizes, self.strides, type_.device)
        if self.offset == 0 and narrowed == type_:
            return self.value
        fields = {"source": self.value, "offset": context.indices.number(self.offset)}
        view: _C.Value = context.create("view", fields, [narrowed])
        return view


def box_of(value: _C.Value, tensor: torch.Tensor) -> Box:
    """All of a value that is the tensor."""
    return Box(value, shape_of(tensor), strides_of(tensor))


def copy(context: LoweringContext, source: Box, target: Box) -> None:
    """Copy a box to another of its sizes."""
    copy_all(context, [(source, target)])


def copy_all(context: LoweringContext, pairs: Sequence[tuple[Box, Box]]) -> None:
    """Copy boxes to others, which share no memory with each other or the sources.

    On a CUDA device those of the same sizes are one kernel.
    """
    by_sizes: dict[tuple[Size, ...], list[tuple[Box, Box]]] = {}
    for source, target in pairs:
        if 0 in target.sizes:
            continue
        if on_cuda(target.value):
            by_sizes.setdefault(tuple(target.sizes), []).append((source, target))
        else:
            _copy_on_cpu(context, source, target)
    for same in by_sizes.values():
        for first in range(0, len(same), _MOST_COPIES):
            _launch_copies(context, same[first : first + _MOST_COPIES])


def copy_values(context: LoweringContext, source: _C.Value, target: _C.Value) -> None:
    """Copy a value to another of its sizes, maybe on another device."""
    types = tensor_type(source), tensor_type(target)
    if all(type_.device == "cpu" for type_ in types):
        context.create("copy", {"source": source, "out": target})
    else:
        call = {"target": "aten::copy_", "inputs": [source], "mutated": [target]}
        arguments = [_C.Operand(1), _C.Operand(0), False]
        # It returns its target, which has a name already.
        rest = {"arguments": arguments, "absent": [0], "pure": False}
        context.create("aten_call", call | rest)


def can_fill(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether `fill` can write numbers of a dtype on a device."""
    return device.type == "cpu" or dtype in DTYPES


def fill(context: LoweringContext, number: bool | int | float, target: Box) -> None:
    """Write a number everywhere in a box."""
    value = target.view(context)
    if not on_cuda(value):
        context.create("fill", {"value": number, "out": value})
        return
    dtype = DTYPES[_C.torch_dtypes()[tensor_type(value).dtype]]
    builder = KernelBuilder("", tuple(target.sizes))
    constant = builder.constant(dtype.register, number)
    builder.store(builder.output(dtype), constant, tuple(target.strides))
    launch(context, named("fill", builder.build()), [], [value])


def _copy_on_cpu(context: LoweringContext, source: Box, target: Box) -> None:
    values = source.view(context), target.view(context)
    if kernel := _turning_kernel(source, target):
        launch(context, kernel, [values[0]], [values[1]])
    else:
        context.create("copy", {"source": values[0], "out": values[1]})


def _turning_kernel(source: Box, target: Box) -> PointwiseKernel | None:
    """The copy as a kernel, which has tiles and threads, where the source lies across."""
    if tensor_type(source.value).dtype != tensor_type(target.value).dtype:
        return None
    if _itemsize(source) not in OF_SIZE:
        return None
    kernel = _copy_kernel([(source, target)])
    return kernel if point_space(kernel).is_turned(1) else None


def _launch_copies(context: LoweringContext, pairs: Sequence[tuple[Box, Box]]) -> None:
    inputs = [source.view(context) for source, _ in pairs]
    outputs = [target.view(context) for _, target in pairs]
    launch(context, _copy_kernel(pairs), inputs, outputs)


def _copy_kernel(pairs: Sequence[tuple[Box, Box]]) -> PointwiseKernel:
    """Copies of the same sizes. Of any type: the bits are copied, of large items in parts."""
    sizes = tuple(pairs[0][1].sizes)
    parts = max(1, _itemsize(pairs[0][0]) // 8)
    builder = KernelBuilder("", sizes if parts == 1 else (*sizes, parts))

    def of_parts(strides: Sequence[Size]) -> tuple[Size, ...]:
        return tuple(strides) if parts == 1 else (*[step * parts for step in strides], 1)

    for source, target in pairs:
        dtype = OF_SIZE[_itemsize(source) // parts]
        steps = zip(source.sizes, source.strides, strict=True)
        still = [0 if size == 1 else step for size, step in steps]
        value = builder.load(builder.input(dtype), of_parts(still))
        builder.store(builder.output(dtype), value, of_parts(target.strides))
    return named("copy", builder.build())


def named(operation: str, kernel: PointwiseKernel) -> PointwiseKernel:
    """Return a kernel with a name for what it does."""
    return replace(kernel, name=f"{operation}_{content_digest(kernel)}")


def _itemsize(box: Box) -> int:
    return _C.torch_dtypes()[tensor_type(box.value).dtype].itemsize
