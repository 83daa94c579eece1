# SPDX-License-Identifier: Apache-2.0
"""The loops of a kernel with reductions: for each row, the passes of its plan.

Where the elements of a row lie apart but rows lie side by side (a reduction over leading
dimensions), a tile of rows is computed together, with the loop over its columns innermost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
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
    Reduce,
    ScalarArgument,
    Store,
)
from hostjit.kernels.iteration import simplify
from hostjit.kernels.operation import Emitter, Value, apply
from hostjit.kernels.reduction import REDUCTIONS
from hostjit.kernels.reduction_plan import Pass, make_plan

__all__ = ["write_rows"]

_INDEX = ir.IntType(64)

# Columns computed together: four vector registers per accumulator of `f32`.
_TILE = 64
# Rows are summed in blocks from this length on; several accumulators share one row's elements.
_LONG_ROW = 4096
_LONG_COLUMN = 256

Cursors = list[Any]


@dataclass
class _Walk:
    """How something is reached: its cursor's start, and its steps along the loops."""

    base: Any
    kept: tuple[int, ...]
    reduced: tuple[int, ...]
    column: int
    element: Any


def write_rows(kernel: PointwiseKernel, function: Any, emitter: Emitter) -> None:
    """Write the body of a kernel with reductions into `function`, at the emitter's place."""
    _RowWriter(kernel, function, emitter).write()


class _RowWriter:
    def __init__(self, kernel: PointwiseKernel, function: Any, emitter: Emitter) -> None:
        self.kernel = kernel
        self.function = function
        self.emitter = emitter
        self.builder = emitter.builder
        self.dtypes = kernel.value_dtypes()
        self.accesses = self._accesses()
        rank = len(kernel.shape) - kernel.num_reduced
        strides = [access.strides for access in self.accesses]
        self.kept, kept = simplify(kernel.shape[:rank], [s[:rank] for s in strides])
        self.reduced, reduced = simplify(kernel.shape[rank:], [s[rank:] for s in strides])
        self.width = self._tile_width(kept, reduced)
        self.tiled = self.width > 1
        self.plan = make_plan(kernel, self.width)
        self.walks = self._walks(kept, reduced)
        self.slots = self._allocate_slots()

    def _accesses(self) -> list[Load | Index | Store]:
        """What moves with the loops; the loads of elements decide their order."""
        reads = [value for value in self.kernel.values if isinstance(value, Load | Index)]
        reads.sort(key=lambda read: not self.kernel.moves_in_row(read.strides))
        return [*reads, *self.kernel.stores]

    def _tile_width(self, kept: list[tuple[int, ...]], reduced: list[tuple[int, ...]]) -> int:
        """How many rows are computed together: several if they, not their elements, adjoin."""
        if not self.kept or not self.reduced:
            return 1
        loads = [number for number, a in enumerate(self.accesses) if isinstance(a, Load)]
        columns = sum(kept[number][-1] == 1 for number in loads)
        elements = sum(reduced[number][-1] == 1 for number in loads)
        return min(self.kept[-1], _TILE) if columns > elements else 1

    def _walks(self, kept: list[tuple[int, ...]], reduced: list[tuple[int, ...]]) -> list[_Walk]:
        walks: list[_Walk] = []
        num_inputs = len(self.kernel.inputs)
        for access, outer, inner in zip(self.accesses, kept, reduced, strict=True):
            if isinstance(access, Index):
                base, element = ir.Constant(_INDEX, access.offset), None
            else:
                first = num_inputs if isinstance(access, Store) else 0
                element = access.dtype.memory_type()
                base = self.function.args[first + access.operand]
                base = self._moved(base, element, [(ir.Constant(_INDEX, access.offset), 1)])
            column = outer[-1] if self.tiled else 0
            walks.append(_Walk(base, outer, inner, column, element))
        self.cache_walks: dict[int, int] = {}
        for value, output in self.plan.caches.items():
            if output is not None:
                self.cache_walks[value] = self.accesses.index(output)
                continue
            element = self.dtypes[value].memory_type()
            points = math.prod(self.reduced) * self.width
            inner = tuple(
                math.prod(self.reduced[depth + 1 :]) * self.width
                for depth in range(len(self.reduced))
            )
            base = self._memory(element, points)
            self.cache_walks[value] = len(walks)
            walks.append(_Walk(base, (0,) * len(self.kept), inner, int(self.tiled), element))
        return walks

    def _allocate_slots(self) -> dict[int, Any]:
        """Memory for what is known per row; without tiles LLVM makes registers of it."""
        slots: dict[int, Any] = {}
        for pass_ in self.plan.passes:
            for value in (*pass_.reductions, *pass_.row_values):
                slots[value] = self._slot(value)
        self.totals = {
            value: self._slot(value)
            for pass_ in self.plan.passes
            for value in pass_.reductions
            if self._reduction(value).cascades and self.dtypes[value].is_float
        }
        return slots

    def _slot(self, value: int) -> Any:
        type_ = self.dtypes[value].register_type()
        return self._memory(type_, self.width if self.tiled else 1)

    def _memory(self, type_: Any, count: int) -> Any:
        place = self.builder.alloca(type_, ir.Constant(_INDEX, count) if count > 1 else None)
        if count > 1:
            place.align = 64
        return place

    def _reduction(self, value: int) -> Any:
        reduce = self.kernel.values[value]
        assert isinstance(reduce, Reduce)
        return REDUCTIONS[reduce.name]

    def write(self) -> None:
        self._kept(0, [walk.base for walk in self.walks])
        self.builder.ret_void()

    # Loops and addresses.

    def _loop(self, name: str, size: int, body: Callable[[Any], None]) -> None:
        """Write a loop, tested at its bottom as every size is positive."""
        zero = ir.Constant(_INDEX, 0)
        if size == 1:
            body(zero)
            return
        builder = self.builder
        before = builder.block
        loop = self.function.append_basic_block(name)
        done = self.function.append_basic_block(f"{name}_done")
        builder.branch(loop)
        builder.position_at_end(loop)
        counter = builder.phi(_INDEX, name=f"{name}_counter")
        counter.add_incoming(zero, before)
        body(counter)
        following = builder.add(counter, ir.Constant(_INDEX, 1), flags=("nuw", "nsw"))
        counter.add_incoming(following, builder.block)
        end = ir.Constant(_INDEX, size)
        builder.cbranch(builder.icmp_unsigned("==", following, end), done, loop)
        builder.position_at_end(done)

    def _moved(self, cursor: Any, element: Any, steps: list[tuple[Any, int]]) -> Any:
        """A cursor moved by `count * stride` for each step; `element` is None for a number."""
        for count, stride in steps:
            distance = self._scaled(count, stride)
            if isinstance(distance, ir.Constant) and distance.constant == 0:
                continue
            if element is None:
                cursor = self.builder.add(cursor, distance, flags=("nsw",))
            else:
                cursor = self.builder.gep(cursor, [distance], inbounds=True, source_etype=element)
        return cursor

    def _scaled(self, count: Any, stride: int) -> Any:
        if stride == 1:
            return count
        if isinstance(count, ir.Constant) or stride == 0:
            return ir.Constant(_INDEX, count.constant * stride if stride else 0)
        return self.builder.mul(count, ir.Constant(_INDEX, stride), flags=("nsw",))

    def _step(self, cursors: Cursors, count: Any, strides: list[int]) -> Cursors:
        return [
            self._moved(cursor, walk.element, [(count, stride)])
            for walk, cursor, stride in zip(self.walks, cursors, strides, strict=True)
        ]

    def _kept(self, depth: int, cursors: Cursors) -> None:
        if depth == len(self.kept) - (1 if self.tiled else 0):
            self._tiles(cursors)
            return
        strides = [walk.kept[depth] for walk in self.walks]
        self._loop(
            f"row{depth}",
            self.kept[depth],
            lambda counter: self._kept(depth + 1, self._step(cursors, counter, strides)),
        )

    def _tiles(self, cursors: Cursors) -> None:
        if not self.tiled:
            self._rows(cursors, 1)
            return
        full, rest = divmod(self.kept[-1], self.width)
        strides = [walk.kept[-1] * self.width for walk in self.walks]
        self._loop(
            "tile", full, lambda tile: self._rows(self._step(cursors, tile, strides), self.width)
        )
        if rest:
            self._rows(self._step(cursors, ir.Constant(_INDEX, full), strides), rest)

    def _columns(self, cursors: Cursors, width: int, body: Callable[[Cursors, Any], None]) -> None:
        strides = [walk.column for walk in self.walks]
        self._loop(
            "column", width, lambda column: body(self._step(cursors, column, strides), column)
        )

    # One tile of rows.

    def _rows(self, cursors: Cursors, width: int) -> None:
        done: set[int] = set()
        for pass_ in self.plan.passes:
            self._pass(pass_, cursors, width, done)
            done.update(pass_.caches)

    def _pass(self, pass_: Pass, cursors: Cursors, width: int, cached: set[int]) -> None:
        totalled = [value for value in pass_.reductions if value in self.totals]
        split = self._block(width) if totalled else None

        def start(_: Cursors, column: Any) -> None:
            for value in pass_.reductions:
                self._assign(self.slots[value], column, self._identity(value))
                if split and value in self.totals:
                    self._assign(self.totals[value], column, self._identity(value))

        def element(here: Cursors, column: Any) -> None:
            point = _Point(self, here, column, cached)
            for value in pass_.reductions:
                reduce = self.kernel.values[value]
                assert isinstance(reduce, Reduce)
                total = self._slot_value(self.slots[value], column, value)
                combined = self._reduction(value).combine(total, point.value(reduce.operand))
                self._assign(self.slots[value], column, combined)
            kept = [(value, point.value(value)) for value in pass_.caches]
            stored = [(target, point.value(target.value)) for target in pass_.stores]
            for value, found in kept:
                store(found, here[self.cache_walks[value]], self.dtypes[value])
            for target, found in stored:
                store(found, here[self.accesses.index(target)], target.dtype)

        def flush(_: Cursors, column: Any) -> None:
            for value in totalled:
                block = self._slot_value(self.slots[value], column, value)
                total = self._slot_value(self.totals[value], column, value)
                self._assign(
                    self.totals[value], column, self._reduction(value).combine(total, block)
                )
                self._assign(self.slots[value], column, self._identity(value))

        def finish(here: Cursors, column: Any) -> None:
            if split:
                for value in totalled:
                    total = self._slot_value(self.totals[value], column, value)
                    self._assign(self.slots[value], column, total)
            point = _Point(self, here, column, cached)
            for value in pass_.row_values:
                self._assign(self.slots[value], column, point.computed(value))
            stored = [(target, point.value(target.value)) for target in pass_.row_stores]
            for target, found in stored:
                store(found, here[self.accesses.index(target)], target.dtype)

        def reduced(depth: int, here: Cursors) -> None:
            if depth == len(self.reduced):
                self._columns(here, width, element)
                return
            strides = [walk.reduced[depth] for walk in self.walks]
            size = self.reduced[depth]

            def along(count: int, begin: Cursors) -> None:
                self._loop(
                    f"reduced{depth}",
                    count,
                    lambda counter: reduced(depth + 1, self._step(begin, counter, strides)),
                )

            if split is None or split[0] != depth:
                along(size, here)
                return
            block = split[1]
            full, rest = divmod(size, block)
            distances = [stride * block for stride in strides]

            def one(counter: Any) -> None:
                along(block, self._step(here, counter, distances))
                self._columns(here, width, flush)

            self._loop("block", full, one)
            if rest:
                along(rest, self._step(here, ir.Constant(_INDEX, full), distances))
                self._columns(here, width, flush)

        if pass_.reductions:
            self._columns(cursors, width, start)
        if pass_.reductions or pass_.stores:
            reduced(0, cursors)
        self._columns(cursors, width, finish)

    def _block(self, width: int) -> tuple[int, int] | None:
        """The reduced dimension, and how much of it, whose elements are summed before others.

        Rounding errors grow with the longest chain of additions; blocks of about the square root
        of what one accumulator gets make the chains within and between blocks equally long.
        """
        count = math.prod(self.reduced)
        if count <= (_LONG_COLUMN if width > 1 else _LONG_ROW):
            return None
        target = 1 << round(math.log2(math.sqrt(count) * (1 if width > 1 else 8)))
        inside = 1
        for depth in reversed(range(len(self.reduced))):
            size = self.reduced[depth]
            if inside * size > target:
                return depth, max(1, target // inside)
            inside *= size
        return None

    def _identity(self, value: int) -> Value:
        dtype = self.dtypes[value]
        return self.emitter.constant(dtype, self._reduction(value).identity(dtype))

    def _place(self, slot: Any, column: Any, type_: Any) -> Any:
        return self.builder.gep(slot, [column], inbounds=True, source_etype=type_)

    def _slot_value(self, slot: Any, column: Any, value: int) -> Value:
        dtype = self.dtypes[value]
        type_ = dtype.register_type()
        place = self._place(slot, column, type_) if self.tiled else slot
        register = self.builder.load(place, typ=type_, align=dtype.itemsize)
        return Value(self.emitter, dtype, register)

    def _assign(self, slot: Any, column: Any, found: Value) -> None:
        type_ = found.dtype.register_type()
        place = self._place(slot, column, type_) if self.tiled else slot
        self.builder.store(found.register, place, align=found.dtype.itemsize)


class _Point:
    """The values at one point: of an element, or of a row between passes."""

    def __init__(self, writer: _RowWriter, cursors: Cursors, column: Any, cached: set[int]) -> None:
        self.writer = writer
        self.cursors = cursors
        self.column = column
        self.cached = cached
        self.known: dict[int, Value] = {}

    def value(self, number: int) -> Value:
        if number not in self.known:
            self.known[number] = self._find(number)
        return self.known[number]

    def _find(self, number: int) -> Value:
        writer = self.writer
        dtype = writer.dtypes[number]
        if number in self.cached:
            return load(writer.emitter, self.cursors[writer.cache_walks[number]], dtype)
        if number in writer.slots:
            return writer._slot_value(writer.slots[number], self.column, number)
        return self.computed(number)

    def computed(self, number: int) -> Value:
        """The value from its operands, without regard to where it is kept."""
        writer, emitter = self.writer, self.writer.emitter
        value = writer.kernel.values[number]
        match value:
            case Load() | Index():
                position = next(i for i, access in enumerate(writer.accesses) if access is value)
                cursor = self.cursors[position]
                if isinstance(value, Index):
                    return Value(emitter, DType.I64, cursor)
                return load(emitter, cursor, value.dtype)
            case Constant():
                return emitter.constant(value.dtype, value.number)
            case ScalarArgument():
                kernel = writer.kernel
                first = len(kernel.inputs) + len(kernel.outputs)
                argument = writer.function.args[first + value.position]
                return Value(emitter, value.dtype, argument)
            case Cast():
                return cast(self.value(value.operand), value.dtype)
            case Apply():
                return apply(value.name, *(self.value(operand) for operand in value.operands))
        raise AssertionError("a reduction is read from its slot")
