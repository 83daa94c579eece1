# SPDX-License-Identifier: Apache-2.0
"""The body of a kernel with reductions: for each tile of rows, the passes of its plan."""

from __future__ import annotations

import math
from typing import Any

from hostjit.kernels.body import Body
from hostjit.kernels.cascade import cascade
from hostjit.kernels.checks import makes_index, moved_by
from hostjit.kernels.conversion import load, store
from hostjit.kernels.dtypes import DType
from hostjit.kernels.expression import Constant, Index, Load, Reduce
from hostjit.kernels.lanes import Width
from hostjit.kernels.operation import Value
from hostjit.kernels.reduction import REDUCTIONS, Reduction
from hostjit.kernels.reduction_plan import Pass, make_plan
from hostjit.kernels.row_loops import RowLoops
from hostjit.kernels.walks import Cursors

__all__ = ["write_rows"]

# How many elements, and then how many sums of such, are added to one total. The vectoriser gives
# a row some 64 accumulators, which share its elements; a lane of a tile has one.
_ROW_CASCADE = (4096, 64)
_LANE_CASCADE = (32, 32)


def write_rows(body: Body) -> None:
    """Write the body of a kernel with reductions."""
    _RowWriter(body).write()


class _RowWriter:
    """Writes tile after tile.

    `slots` are where values per row are kept, one place per lane of a tile; of one lane LLVM makes
    a register. `levels` are those that elements are combined in, each of which cascades into the
    next; the last is the slot.
    """

    def __init__(self, body: Body) -> None:
        self.body = body
        self.kernel = kernel = body.kernel
        self.emitter = emitter = body.emitter
        self.builder = emitter.builder
        self.dtypes = kernel.value_dtypes()
        self.loops = RowLoops(kernel, body.function, self.builder, body.sizes, body.items)
        space = self.loops.space
        self.plan = make_plan(kernel, space.width)
        first, step = _LANE_CASCADE if space.lanes > 1 else _ROW_CASCADE
        self.chunks = cascade(space.reduced, first, step)
        self.cache_cursors = {
            value: self.loops.add_scratch(self.dtypes[value].memory_type())
            if output is None
            else self.loops.find(output)
            for value, output in self.plan.caches.items()
        }
        # LLVM turns an extreme over what a mask leaves, with an infinity elsewhere, into a
        # condition that its vectoriser refuses: it must not see the infinity.
        self.infinities = {
            number: emitter.constant(value.dtype, value.number).intrinsic("arithmetic.fence")
            for number, value in enumerate(kernel.values)
            if isinstance(value, Constant) and value.dtype.is_float and math.isinf(value.number)
        }
        self.indices: dict[int, Value] = {}  # what is known of them for the row under way
        self.slots: dict[int, Any] = {}
        self.levels: dict[int, list[Any]] = {}
        for pass_ in self.plan.passes:
            for value in pass_.row_values:
                self.slots[value] = self._allocate(value)
            for value in pass_.reductions:
                cascades = self._reduction(value).cascades and self.dtypes[value].is_float
                count = 1 + (sum(map(len, self.chunks)) if cascades else 0)
                self.levels[value] = [self._allocate(value) for _ in range(count)]
                self.slots[value] = self.levels[value][-1]

    def write(self) -> None:
        self.loops.each_tile(self._tile)
        self.body.checks.finish()

    def _tile(self, cursors: Cursors, width: Width) -> None:
        self.indices = {}
        if not self.loops.space.tiled:
            # Once per row, so that the loops over its elements have nothing to check.
            row = _Point(self, cursors, None, frozenset())
            for number in sorted(makes_index(self.kernel)):
                if not self.plan.varies[number] and self.plan.stage[number] == 0:
                    self.indices[number] = row.value(number)
        cached: set[int] = set()
        for pass_ in self.plan.passes:
            _PassWriter(self, pass_, cursors, width, frozenset(cached)).write()
            cached.update(pass_.caches)

    def _allocate(self, value: int) -> Any:
        return self.loops.allocate(self.dtypes[value].register_type(), self.loops.space.lanes)

    def _reduction(self, value: int) -> Reduction:
        reduce = self.kernel.values[value]
        assert isinstance(reduce, Reduce)
        return REDUCTIONS[reduce.name]

    def combine(self, value: int, slot: Any, lane: Any, other: Value) -> None:
        """Combine the reduction `value`, as far as it is known in `slot`, with `other`."""
        found = self.get(slot, lane, value)
        # Lanes fill the vectors; the order within each is that of the loops.
        any_order = self.loops.space.lanes == 1
        self.set(slot, lane, self._reduction(value).combine(found, other, any_order))

    def reset(self, value: int, slot: Any, lane: Any) -> None:
        """Start the reduction `value` anew."""
        dtype = self.dtypes[value]
        identity = self._reduction(value).identity(dtype)
        self.set(slot, lane, self.emitter.constant(dtype, identity))

    def get(self, slot: Any, lane: Any, value: int) -> Value:
        """What a slot of the type of `value` holds for a lane of the tile."""
        dtype = self.dtypes[value]
        type_ = dtype.register_type()
        place = self._place(slot, lane, type_)
        register = self.builder.load(place, typ=type_, align=dtype.itemsize)
        return Value(self.emitter, dtype, register)

    def set(self, slot: Any, lane: Any, found: Value) -> None:
        """Keep a value for a lane of the tile."""
        place = self._place(slot, lane, found.dtype.register_type())
        self.builder.store(found.register, place, align=found.dtype.itemsize)

    def _place(self, slot: Any, lane: Any, type_: Any) -> Any:
        if self.loops.space.lanes == 1:
            return slot
        return self.builder.gep(slot, [lane], inbounds=True, source_etype=type_)


class _PassWriter:
    """Writes one pass over the elements of a tile; `cached` is what earlier passes kept."""

    def __init__(
        self,
        writer: _RowWriter,
        pass_: Pass,
        cursors: Cursors,
        width: Width,
        cached: frozenset[int],
    ) -> None:
        self.writer = writer
        self.work = pass_
        self.cursors = cursors
        self.width = width
        self.cached = cached
        self.cascading = [value for value in pass_.reductions if len(writer.levels[value]) > 1]

    def write(self) -> None:
        loops = self.writer.loops
        if self.work.reductions:
            loops.each_lane(self.cursors, self.width, self._start)
        if self.work.reductions or self.work.stores:
            chunks = self.writer.chunks if self.cascading else [[] for _ in loops.space.reduced]
            loops.each_element(
                self.cursors,
                lambda here: loops.each_lane(here, self.width, self._element),
                chunks,
                self._cascade,
            )
        if self.work.reductions:
            loops.lanes.gather(self.width, self._combine_lanes)
        if self.work.row_values or self.work.row_stores:
            loops.each_row(self.cursors, self.width, self._finish)
        if self.work is not self.writer.plan.passes[-1]:
            loops.lanes.spread(self.width, self._copy_to_lane)

    def _start(self, _: Cursors, lane: Any) -> None:
        writer = self.writer
        for value in self.work.reductions:
            for slot in writer.levels[value]:
                writer.reset(value, slot, lane)

    def _combine_lanes(self, lane: Any, other: Any) -> None:
        writer = self.writer
        for value in self.work.reductions:
            slot = writer.slots[value]
            writer.combine(value, slot, lane, writer.get(slot, other, value))

    def _copy_to_lane(self, lane: Any, other: Any) -> None:
        writer = self.writer
        for value in (*self.work.reductions, *self.work.row_values):
            slot = writer.slots[value]
            writer.set(slot, other, writer.get(slot, lane, value))

    def _element(self, here: Cursors, lane: Any) -> None:
        writer = self.writer
        point = _Point(writer, here, lane, self.cached)
        for value in self.work.reductions:
            reduce = writer.kernel.values[value]
            assert isinstance(reduce, Reduce)
            writer.combine(value, writer.levels[value][0], lane, point.value(reduce.operand))
        kept = [(value, point.value(value)) for value in self.work.caches]
        stored = [(target, point.value(target.value)) for target in self.work.stores]
        for value, found in kept:
            store(found, here[writer.cache_cursors[value]], writer.dtypes[value])
        for target, found in stored:
            store(found, here[writer.loops.find(target)], target.dtype)

    def _cascade(self, level: int) -> None:
        """Add what one level has summed to the next."""
        writer = self.writer

        def add(_: Cursors, lane: Any) -> None:
            for value in self.cascading:
                levels = writer.levels[value]
                found = writer.get(levels[level], lane, value)
                writer.combine(value, levels[level + 1], lane, found)
                writer.reset(value, levels[level], lane)

        writer.loops.each_lane(self.cursors, self.width, add)

    def _finish(self, here: Cursors, lane: Any) -> None:
        writer = self.writer
        point = _Point(writer, here, lane, self.cached)
        for value in self.work.row_values:
            writer.set(writer.slots[value], lane, point.computed(value))
        stored = [(target, point.value(target.value)) for target in self.work.row_stores]
        for target, found in stored:
            store(found, here[writer.loops.find(target)], target.dtype)


class _Point:
    """The values at one point: of an element, or of a row between passes."""

    def __init__(
        self, writer: _RowWriter, cursors: Cursors, lane: Any, cached: frozenset[int]
    ) -> None:
        self.writer = writer
        self.cursors = cursors
        self.lane = lane
        self.cached = cached
        self.known: dict[int, Value] = {}

    def value(self, number: int) -> Value:
        if number not in self.known:
            self.known[number] = self._find(number)
        return self.known[number]

    def _find(self, number: int) -> Value:
        writer = self.writer
        dtype = writer.dtypes[number]
        if number in writer.indices:
            return writer.indices[number]
        if number in self.cached:
            return load(writer.emitter, self.cursors[writer.cache_cursors[number]], dtype)
        if number in writer.slots:
            return writer.get(writer.slots[number], self.lane, number)
        return self.computed(number)

    def computed(self, number: int) -> Value:
        """The value from its operands, without regard to where it is kept."""
        writer, emitter = self.writer, self.writer.emitter
        if number in writer.infinities:
            return writer.infinities[number]
        value = writer.kernel.values[number]
        match value:
            case Load():
                cursor = self.cursors[writer.loops.find(value)]
                terms = [(self.value(index), stride) for index, stride in value.terms]
                place = moved_by(cursor, value.dtype, terms, writer.body.sizes)
                return load(emitter, place, value.dtype)
            case Index():
                return Value(emitter, DType.I64, self.cursors[writer.loops.find(value)])
        return writer.body.compute(value, self.value)
