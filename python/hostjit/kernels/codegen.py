# SPDX-License-Identifier: Apache-2.0
"""From a PointwiseKernel to the text of an LLVM module with one function."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit.kernels.body import Body
from hostjit.kernels.bounds_search import define_search
from hostjit.kernels.checks import Checks
from hostjit.kernels.expression import Bounded, Load, PointwiseKernel
from hostjit.kernels.iteration import extent
from hostjit.kernels.operation import Emitter
from hostjit.kernels.point_space import point_space
from hostjit.kernels.point_writer import write_points
from hostjit.kernels.row_tiles import row_tiles
from hostjit.kernels.row_writer import write_rows
from hostjit.kernels.size_values import SizeValues
from hostjit.kernels.sizes import Size

__all__ = ["llvm_ir", "num_items"]

_INDEX = ir.IntType(64)
_POINTER = ir.PointerType()


def num_items(kernel: PointwiseKernel) -> Size:
    """The number of independent items that a kernel's work can be split into.

    Example: num_items(kernel) == 512 for a kernel over (512, 64) that broadcasts along the rows
    """
    if kernel.has_rows:
        rows = row_tiles(kernel)
        return 1 if rows.split is None else rows.outer[rows.split]
    points = point_space(kernel)
    return 1 if points.split is None else points.sizes[points.split]


def llvm_ir(kernel: PointwiseKernel, *, over_range: bool = False) -> str:
    """Write a kernel as LLVM IR.

    Arguments: the kernel; whether its function does a range of its items, which it gets as two
    more parameters `i64 begin, i64 end`, begin < end, instead of all of them.
    Returns: the text of `define void @name(ptr inputs..., ptr outputs..., scalars...)` and of what
    it needs, with neither target triple nor data layout. The `symbols()` of a kernel are its last
    scalars. One with `errors()` has one more parameter after them, as launch_kernel says.
    Example: llvm_ir(builder.build())
    """
    module = ir.Module(kernel.name)
    symbols = kernel.symbols()
    scalars = [scalar.dtype.register_type() for scalar in kernel.scalars()]
    scalars += [_INDEX] * len(symbols)
    pointers = [_POINTER] * (len(kernel.inputs) + len(kernel.outputs))
    failure = [_POINTER] if kernel.errors() else []
    bounds = [_INDEX, _INDEX] if over_range else []
    signature = ir.FunctionType(ir.VoidType(), pointers + scalars + failure + bounds)
    function = ir.Function(module, signature, kernel.name)
    function.attributes.add("nounwind")
    _describe_arguments(kernel, function)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    if kernel.stores and 0 not in kernel.shape:
        items = (function.args[-2], function.args[-1]) if over_range else None
        search = define_search(kernel, function) if failure else None
        behind = len(pointers) + len(scalars)
        sizes = SizeValues(builder, symbols, function.args[behind - len(symbols) : behind])
        checks = Checks(function, Emitter(module, builder), sizes, search)
        write = write_rows if kernel.has_rows else write_points
        write(Body(kernel, function, checks, items))
    else:
        builder.ret_void()
    lines = str(module).splitlines()
    return "\n".join(line for line in lines if not line.startswith(("; Module", "target "))) + "\n"


def _describe_arguments(kernel: PointwiseKernel, function: Any) -> None:
    """Name the arguments and say what may be assumed of the pointers."""
    num_inputs = len(kernel.inputs)
    num_pointers = num_inputs + len(kernel.outputs)
    extents: list[Size] = [0] * num_pointers
    for value in kernel.values:
        if isinstance(value, Load):
            reached = _load_extent(kernel, value)
            extents[value.operand] = _farther(extents[value.operand], reached)
    for target in kernel.stores:
        position = num_inputs + target.operand
        reached = extent(kernel.shape, target.strides, target.offset)
        extents[position] = _farther(extents[position], reached)
    for position, operand in enumerate(kernel.inputs + kernel.outputs):
        argument = function.args[position]
        is_input = position < num_inputs
        argument.name = f"in{position}" if is_input else f"out{position - num_inputs}"
        if not is_input and not operand.may_alias:
            argument.add_attribute("noalias")
        reached = extents[position]
        if reached != 0:
            argument.attributes.align = operand.dtype.itemsize
        if isinstance(reached, int) and reached:
            argument.add_attribute("nonnull")
            argument.attributes.dereferenceable = reached * operand.dtype.itemsize
    names = [scalar.name for scalar in kernel.scalars()]
    names += [symbol.name for symbol in kernel.symbols()]
    names += ["failure"] if kernel.errors() else []
    for name, argument in zip(names, function.args[num_pointers:], strict=False):
        argument.name = name


def _farther(known: Size, reached: Size) -> Size:
    """The larger of two, or one that is symbolic, of which nothing is said to LLVM."""
    if isinstance(known, int) and isinstance(reached, int):
        return max(known, reached)
    return known if isinstance(reached, int) else reached


def _load_extent(kernel: PointwiseKernel, load: Load) -> Size:
    farthest: Size = 0
    for index, stride in load.terms:
        bounded = kernel.values[index]
        assert isinstance(bounded, Bounded)
        farthest += (bounded.size - 1) * stride
    return extent(kernel.shape, load.strides, load.offset + farthest)
