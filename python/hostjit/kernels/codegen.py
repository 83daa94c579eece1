# SPDX-License-Identifier: Apache-2.0
"""From a PointwiseKernel to the text of an LLVM module with one function."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit.kernels.conversion import cast, load, store
from hostjit.kernels.dtypes import DType
from hostjit.kernels.expression import (
    Apply,
    Cast,
    Constant,
    Index,
    Load,
    PointwiseKernel,
    ScalarArgument,
    Store,
)
from hostjit.kernels.iteration import extent, simplify, split_dimension
from hostjit.kernels.operation import Emitter, Value, apply
from hostjit.kernels.row_space import row_space
from hostjit.kernels.row_writer import write_rows

__all__ = ["llvm_ir", "num_items"]

_INDEX = ir.IntType(64)
_POINTER = ir.PointerType()


def num_items(kernel: PointwiseKernel) -> int:
    """The number of independent items that a kernel's work can be split into.

    Example: num_items(kernel) == 512 for a kernel over (512, 64) that broadcasts along the rows
    """
    if kernel.has_rows:
        space = row_space(kernel)
        return 1 if space.split is None else space.outer[space.split]
    shape, _ = simplify(kernel.shape, [access.strides for access in _accesses(kernel)])
    return shape[split_dimension(shape)] if shape else 1


def llvm_ir(kernel: PointwiseKernel, *, over_range: bool = False) -> str:
    """Write a kernel as LLVM IR.

    Arguments: the kernel; whether its function does a range of its items, which it gets as two
    more parameters `i64 begin, i64 end`, begin < end, instead of all of them.
    Returns: the text of `define void @name(ptr inputs..., ptr outputs..., scalars...)` and of the
    declarations that it needs, with neither target triple nor data layout.
    Example: llvm_ir(builder.build())
    """
    module = ir.Module(kernel.name)
    scalars = [dtype.register_type() for dtype in kernel.scalars()]
    pointers = [_POINTER] * (len(kernel.inputs) + len(kernel.outputs))
    bounds = [_INDEX, _INDEX] if over_range else []
    signature = ir.FunctionType(ir.VoidType(), pointers + scalars + bounds)
    function = ir.Function(module, signature, kernel.name)
    function.attributes.add("nounwind")
    _describe_arguments(kernel, function)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    if kernel.stores and 0 not in kernel.shape:
        items = (function.args[-2], function.args[-1]) if over_range else None
        if kernel.has_rows:
            write_rows(kernel, function, Emitter(module, builder), items)
        else:
            _KernelWriter(kernel, function, Emitter(module, builder), items).write()
    else:
        builder.ret_void()
    lines = str(module).splitlines()
    return "\n".join(line for line in lines if not line.startswith(("; Module", "target "))) + "\n"


def _accesses(kernel: PointwiseKernel) -> list[Store | Load | Index]:
    """What moves with the point: the stores, then the loads and index values in order."""
    return [*kernel.stores, *(v for v in kernel.values if isinstance(v, Load | Index))]


def _describe_arguments(kernel: PointwiseKernel, function: Any) -> None:
    """Name the arguments and say what may be assumed of the pointers."""
    num_inputs = len(kernel.inputs)
    extents = [0] * (num_inputs + len(kernel.outputs))
    for value in kernel.values:
        if isinstance(value, Load):
            reached = extent(kernel.shape, value.strides, value.offset)
            extents[value.operand] = max(extents[value.operand], reached)
    for target in kernel.stores:
        position = num_inputs + target.operand
        reached = extent(kernel.shape, target.strides, target.offset)
        extents[position] = max(extents[position], reached)
    for position, operand in enumerate(kernel.inputs + kernel.outputs):
        argument = function.args[position]
        is_input = position < num_inputs
        argument.name = f"in{position}" if is_input else f"out{position - num_inputs}"
        if not is_input and not operand.may_alias:
            argument.add_attribute("noalias")
        if extents[position]:
            argument.add_attribute("nonnull")
            argument.attributes.align = operand.dtype.itemsize
            argument.attributes.dereferenceable = extents[position] * operand.dtype.itemsize
    for number, argument in enumerate(function.args[len(extents) :]):
        argument.name = f"scalar{number}"


class _KernelWriter:
    """Writes the loops and the body.

    `cursors` holds for each access the pointer (or number) of the loops entered so far. `items`
    are the bounds along the split dimension, or None for all of it.
    """

    def __init__(
        self,
        kernel: PointwiseKernel,
        function: Any,
        emitter: Emitter,
        items: tuple[Any, Any] | None,
    ) -> None:
        self.kernel = kernel
        self.function = function
        self.emitter = emitter
        self.builder = emitter.builder
        self.accesses = _accesses(kernel)
        self.shape, self.strides = simplify(kernel.shape, [a.strides for a in self.accesses])
        self.bounds = [(ir.Constant(_INDEX, 0), ir.Constant(_INDEX, n)) for n in self.shape]
        if items and self.shape:
            self.bounds[split_dimension(self.shape)] = items

    def write(self) -> None:
        num_inputs = len(self.kernel.inputs)
        cursors: list[Any] = []
        for access in self.accesses:
            if isinstance(access, Index):
                cursors.append(ir.Constant(_INDEX, access.offset))
            else:
                first = num_inputs if isinstance(access, Store) else 0
                base = self.function.args[first + access.operand]
                cursors.append(self._advance(base, access.offset, access.dtype))
        self._loop(0, cursors)
        self.builder.ret_void()

    def _advance(self, pointer: Any, elements: Any, dtype: DType) -> Any:
        if isinstance(elements, int):
            if elements == 0:
                return pointer
            elements = ir.Constant(_INDEX, elements)
        type_ = dtype.memory_type()
        return self.builder.gep(pointer, [elements], inbounds=True, source_etype=type_)

    def _loop(self, depth: int, cursors: list[Any]) -> None:
        """Write the loop of dimension `depth`, tested at the bottom as no range is empty."""
        if depth == len(self.shape):
            self._body(cursors)
            return
        builder = self.builder
        before = builder.block
        loop = self.function.append_basic_block(f"loop{depth}")
        done = self.function.append_basic_block(f"done{depth}")
        builder.branch(loop)
        builder.position_at_end(loop)
        counter = builder.phi(_INDEX, name=f"i{depth}")
        first, end = self.bounds[depth]
        counter.add_incoming(first, before)
        self._loop(depth + 1, self._step(depth, counter, cursors))
        following = builder.add(counter, ir.Constant(_INDEX, 1), flags=("nuw", "nsw"))
        counter.add_incoming(following, builder.block)
        builder.cbranch(builder.icmp_unsigned("==", following, end), done, loop)
        builder.position_at_end(done)

    def _step(self, depth: int, counter: Any, cursors: list[Any]) -> list[Any]:
        """The cursors at `counter` along dimension `depth`."""
        moved: list[Any] = []
        scaled: dict[int, Any] = {1: counter}
        for access, strides, cursor in zip(self.accesses, self.strides, cursors, strict=True):
            stride = strides[depth]
            if stride == 0:
                moved.append(cursor)
                continue
            if stride not in scaled:
                factor = ir.Constant(_INDEX, stride)
                scaled[stride] = self.builder.mul(counter, factor, flags=("nsw",))
            if isinstance(access, Index):
                moved.append(self.builder.add(cursor, scaled[stride], flags=("nsw",)))
            else:
                moved.append(self._advance(cursor, scaled[stride], access.dtype))
        return moved

    def _body(self, cursors: list[Any]) -> None:
        values: list[Value] = []
        num_stores = len(self.kernel.stores)
        reads = iter(cursors[num_stores:])
        num_pointers = len(self.kernel.inputs) + len(self.kernel.outputs)
        for value in self.kernel.values:
            match value:
                case Load():
                    values.append(load(self.emitter, next(reads), value.dtype))
                case Index():
                    values.append(Value(self.emitter, DType.I64, next(reads)))
                case Constant():
                    values.append(self.emitter.constant(value.dtype, value.number))
                case ScalarArgument():
                    argument = self.function.args[num_pointers + value.position]
                    values.append(Value(self.emitter, value.dtype, argument))
                case Cast():
                    values.append(cast(values[value.operand], value.dtype))
                case Apply():
                    operands = [values[operand] for operand in value.operands]
                    values.append(apply(value.name, *operands))
        for target, pointer in zip(self.kernel.stores, cursors, strict=False):
            store(values[target.value], pointer, target.dtype)
