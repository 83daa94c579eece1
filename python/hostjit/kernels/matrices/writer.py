# SPDX-License-Identifier: Apache-2.0
"""The function of a kernel over matrices while it is written: loops, branches and elements."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit.kernels.conversion import load, store
from hostjit.kernels.dtypes import DType
from hostjit.kernels.loop import ZERO, write_loop
from hostjit.kernels.matrices.layout import Layout
from hostjit.kernels.operation import Emitter, Value

__all__ = ["Matrix", "Variable", "Writer", "write_function"]

_INDEX = ir.IntType(64)
# A place in a matrix: known when the kernel is written, or a register.
Place = int | Value


class Writer:
    """Writes instructions at the place of an emitter."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter

    def index(self, place: Place) -> Value:
        """A place as a value of type `i64`."""
        if isinstance(place, int):
            return self.emitter.constant(DType.I64, place)
        return place

    def each(self, begin: Place, end: Place, body: Callable[[Value], None]) -> None:
        """Run a body for each place from `begin` up to `end`, if there are any."""
        if isinstance(begin, int) and isinstance(end, int) and begin >= end:
            return
        first = ZERO if begin == 0 else self.index(begin).register
        write_loop(
            self.emitter.builder,
            "each",
            first,
            self.index(end).register,
            lambda counter: body(Value(self.emitter, DType.I64, counter)),
            maybe_empty=not (isinstance(begin, int) and isinstance(end, int)),
        )

    def each_down(self, end: int, body: Callable[[Value], None]) -> None:
        """Run a body for each place below `end`, from the last to the first."""
        self.each(0, end, lambda step: body(self.index(end - 1) - step))

    @contextlib.contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Write what is done where a condition holds."""
        with self.emitter.builder.if_then(condition.register):
            yield

    @contextlib.contextmanager
    def either(self, condition: Value) -> Iterator[tuple[Any, Any]]:
        """Write what is done where a condition holds, and what is where it does not."""
        with self.emitter.builder.if_else(condition.register) as ways:
            yield ways

    def variable(self, dtype: DType) -> Variable:
        """Make a variable."""
        builder = self.emitter.builder
        with builder.goto_entry_block():
            place = builder.alloca(dtype.register_type())
        return Variable(self.emitter, place, dtype)


class Variable:
    """A value that changes."""

    def __init__(self, emitter: Emitter, place: Any, dtype: DType) -> None:
        self._emitter = emitter
        self._place = place
        self._dtype = dtype

    def get(self) -> Value:
        """Return what it is."""
        register = self._emitter.builder.load(self._place, typ=self._dtype.register_type())
        return Value(self._emitter, self._dtype, register)

    def set(self, value: Value) -> None:
        """Have it be something else."""
        self._emitter.builder.store(value.register, self._place)


class Matrix:
    """One matrix of a batch; a vector is one with a single column, a number one with one row."""

    def __init__(self, writer: Writer, pointer: Any, layout: Layout) -> None:
        self._writer = writer
        self._pointer = pointer
        self.layout = layout

    @property
    def transposed(self) -> Matrix:
        """The same elements, as a matrix whose rows are the columns of this one."""
        return Matrix(self._writer, self._pointer, self.layout.transposed)

    def column(self, place: Place) -> Matrix:
        """Return a column as a vector."""
        return Matrix(self._writer, self._at(0, place), self.layout)

    def get(self, row: Place = 0, column: Place = 0) -> Value:
        """Load an element."""
        return load(self._writer.emitter, self._at(row, column), self.layout.dtype)

    def set(self, value: Value, row: Place = 0, column: Place = 0) -> None:
        """Store an element."""
        store(value, self._at(row, column), self.layout.dtype)

    def _at(self, row: Place, column: Place) -> Any:
        writer, builder = self._writer, self._writer.emitter.builder
        pointer = self._pointer
        for place, stride in ((row, self.layout.row), (column, self.layout.column)):
            if stride == 0 or (isinstance(place, int) and place == 0):
                continue
            distance = writer.index(place) * stride
            element = self.layout.dtype.memory_type()
            pointer = builder.gep(pointer, [distance.register], inbounds=True, source_etype=element)
        return pointer


def write_function(
    name: str,
    batch: Sequence[int],
    inputs: Sequence[Layout],
    outputs: Sequence[Layout],
    body: Callable[..., None],
) -> str:
    """Write a kernel that does the same with each matrix of a batch.

    Args:
        name: of the function.
        batch: the sizes of its dims, all at least one.
        inputs: of matrices that are read.
        outputs: of those that are written, and may be read behind that.
        body: given a `Writer`, the inputs and the outputs of one matrix.

    Returns: the text of `define void @name(ptr inputs..., ptr outputs...)`.
    """
    module = ir.Module(name)
    layouts = [*inputs, *outputs]
    signature = ir.FunctionType(ir.VoidType(), [ir.PointerType()] * len(layouts))
    function = ir.Function(module, signature, name)
    function.attributes.add("nounwind")
    for position, argument in enumerate(function.args):
        is_input = position < len(inputs)
        argument.name = f"in{position}" if is_input else f"out{position - len(inputs)}"
        argument.add_attribute("noalias")
    entry = function.append_basic_block("entry")
    begin = function.append_basic_block("begin")
    builder = ir.IRBuilder(begin)
    writer = Writer(Emitter(module, builder))

    def write(dim: int, pointers: Sequence[Any]) -> None:
        if dim == len(batch):
            pairs = zip(pointers, layouts, strict=True)
            body(writer, *(Matrix(writer, pointer, layout) for pointer, layout in pairs))
            return

        def step(place: Value) -> None:
            moved = []
            for pointer, layout in zip(pointers, layouts, strict=True):
                distance = [(place * layout.batch[dim]).register]
                element = layout.dtype.memory_type()
                moved.append(builder.gep(pointer, distance, inbounds=True, source_etype=element))
            write(dim + 1, moved)

        writer.each(0, batch[dim], step)

    write(0, function.args)
    builder.ret_void()
    ir.IRBuilder(entry).branch(begin)
    lines = str(module).splitlines()
    return "\n".join(line for line in lines if not line.startswith(("; Module", "target "))) + "\n"
