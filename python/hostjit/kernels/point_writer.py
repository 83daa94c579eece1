# SPDX-License-Identifier: Apache-2.0
"""The body of a kernel without reductions: its loops, and what each point computes."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit.kernels.body import Body
from hostjit.kernels.checks import makes_index, moved_by
from hostjit.kernels.conversion import load, store
from hostjit.kernels.dtypes import DType
from hostjit.kernels.expression import Index, Load, Store, operands_of
from hostjit.kernels.loop_hints import is_unrolled_too_early, keep_rolled
from hostjit.kernels.operation import Value, apply
from hostjit.kernels.point_space import point_space
from hostjit.kernels.sizes import Size, at_most
from hostjit.kernels.transposed_tile import TransposedTile

__all__ = ["write_points"]

_INDEX = ir.IntType(64)


def write_points(body: Body) -> None:
    """Write the body of a kernel without reductions."""
    _PointWriter(body).write()


class _PointWriter:
    """Writes the loops and what a point computes.

    `cursors` holds for each access the pointer (or number) of the loops entered so far. What is an
    index, or makes one, is computed in the outermost loop where it is known, and so is a condition,
    which the loops inside are entered under.
    """

    def __init__(self, body: Body) -> None:
        self.body = body
        self.kernel = kernel = body.kernel
        self.builder = body.emitter.builder
        self.sizes = body.sizes
        self.space = space = point_space(kernel)
        self.accesses, self.shape, self.strides = space.accesses, space.sizes, list(space.strides)
        self.bounds = [(ir.Constant(_INDEX, 0), self.sizes.value(n)) for n in self.shape]
        if body.items and space.split is not None:
            self.bounds[space.split] = body.items
        reads = (n for n, v in enumerate(kernel.values) if isinstance(v, Load | Index))
        self.place = {read: len(kernel.stores) + n for n, read in enumerate(reads)}
        self.makes_index = makes_index(kernel)
        self.depths = self._depths()
        self.known: dict[int, Value] = {}
        self.tiles = self._tiles()

    def write(self) -> None:
        num_inputs = len(self.kernel.inputs)
        cursors: list[Any] = []
        for access in self.accesses:
            if isinstance(access, Index):
                cursors.append(self.sizes.value(access.offset))
            else:
                first = num_inputs if isinstance(access, Store) else 0
                base = self.body.function.args[first + access.operand]
                cursors.append(self._start(base, access.offset, access.dtype))
        self._loop(0, cursors)
        self.body.checks.finish()

    def _start(self, pointer: Any, offset: Size, dtype: DType) -> Any:
        return pointer if offset == 0 else self._advance(pointer, self.sizes.value(offset), dtype)

    def _advance(self, pointer: Any, elements: Any, dtype: DType) -> Any:
        type_ = dtype.memory_type()
        return self.builder.gep(pointer, [elements], inbounds=True, source_etype=type_)

    def _loop(self, depth: int, cursors: list[Any]) -> None:
        """Write the loop of dimension `depth`, tested at the bottom, and before if maybe empty."""
        cursors = self._with_indices(depth, cursors)
        condition = self.kernel.stores[0].condition if self.kernel.stores else None
        if condition is not None and self.depths[condition] == depth:
            with self.builder.if_then(self.known[condition].register):
                self._inside(depth, cursors)
        else:
            self._inside(depth, cursors)

    def _inside(self, depth: int, cursors: list[Any]) -> None:
        """Write the loop, or the point where all loops are entered."""
        if self.tiles and depth == len(self.shape) - 2:
            cursors = self._with_tiles(cursors)
        if depth == len(self.shape):
            self._point(cursors)
            return
        builder = self.builder
        before = builder.block
        loop = self.body.function.append_basic_block(f"loop{depth}")
        done = self.body.function.append_basic_block(f"done{depth}")
        first, end = self.bounds[depth]
        if at_most(1, self.shape[depth]):
            builder.branch(loop)
        else:
            builder.cbranch(builder.icmp_unsigned("<", first, end), loop, done)
        builder.position_at_end(loop)
        counter = builder.phi(_INDEX, name=f"i{depth}")
        counter.add_incoming(first, before)
        self._loop(depth + 1, self._step(depth, counter, cursors))
        following = builder.add(counter, ir.Constant(_INDEX, 1), flags=("nuw", "nsw"))
        counter.add_incoming(following, builder.block)
        branch = builder.cbranch(builder.icmp_unsigned("==", following, end), done, loop)
        innermost = depth == len(self.shape) - 1
        if innermost and (self.tiles or (depth and is_unrolled_too_early(self.shape[depth]))):
            keep_rolled(self.body.function.module, branch)
        builder.position_at_end(done)

    def _step(self, depth: int, counter: Any, cursors: list[Any]) -> list[Any]:
        """The cursors at `counter` along dimension `depth`."""
        counter = self._position(depth, counter)
        moved: list[Any] = []
        scaled: dict[Size, Any] = {1: counter}
        for access, strides, cursor in zip(self.accesses, self.strides, cursors, strict=True):
            stride = strides[depth]
            if stride == 0:
                moved.append(cursor)
                continue
            if stride not in scaled:
                factor = self.sizes.value(stride)
                scaled[stride] = self.builder.mul(counter, factor, flags=("nsw",))
            if isinstance(access, Index):
                moved.append(self.builder.add(cursor, scaled[stride], flags=("nsw",)))
            else:
                moved.append(self._advance(cursor, scaled[stride], access.dtype))
        return moved

    def _position(self, depth: int, counter: Any) -> Any:
        """Where the point, or the tile, that a loop has counted to is along its dimension."""
        tile = self.space.tile
        place = depth - (len(self.shape) - 4)
        if tile is None or place not in (0, 1):
            return counter
        side, size = ((tile.height, tile.tall), (tile.width, tile.wide))[place]
        position = self.builder.mul(counter, ir.Constant(_INDEX, side), flags=("nuw", "nsw"))
        if size % side == 0:
            return position
        last = ir.Constant(_INDEX, size - side)
        return self.builder.select(self.builder.icmp_unsigned("<", position, last), position, last)

    def _tiles(self) -> dict[int, TransposedTile]:
        """Tiles of the accesses that are turned before the last two loops visit them."""
        tile = self.space.tile
        if tile is None or any(operand.may_alias for operand in self.kernel.outputs):
            return {}
        return {
            place: TransposedTile(self.builder, access.dtype, tile.height, tile.width)
            for place, access in enumerate(self.accesses)
            if isinstance(access, Load) and self.space.is_turned(place)
        }

    def _with_tiles(self, cursors: list[Any]) -> list[Any]:
        """Fill the tiles; from here on the last two loops walk them."""
        cursors = list(cursors)
        for place, tile_ in self.tiles.items():
            strides = self.strides[place]
            step = strides[-1]
            assert isinstance(step, int)  # or it is not turned
            tile_.load(cursors[place], step)
            cursors[place] = tile_.memory
            self.strides[place] = (*strides[:-2], tile_.width, 1)
        return cursors

    def _depths(self) -> list[int]:
        """For each value, how many loops must be entered before it is known."""
        depths: list[int] = []
        for number, value in enumerate(self.kernel.values):
            own = 0
            if number in self.place:
                strides = self.strides[self.place[number]]
                own = max((depth + 1 for depth, step in enumerate(strides) if step != 0), default=0)
            depths.append(max((own, *(depths[n] for n in operands_of(value)))))
        return depths

    def _with_indices(self, depth: int, cursors: list[Any]) -> list[Any]:
        """Compute the indices that are known after `depth` loops; the cursors moved by them."""
        cursors = list(cursors)
        for number, value in enumerate(self.kernel.values):
            if isinstance(value, Load) and value.terms:
                if max(self.depths[index] for index, _ in value.terms) == depth:
                    place = self.place[number]
                    terms = [(self.known[index], stride) for index, stride in value.terms]
                    cursors[place] = moved_by(cursors[place], value.dtype, terms, self.sizes)
            if number in self.makes_index and self.depths[number] == depth:
                self.known[number] = self._value(number, cursors)
        for place, target in enumerate(self.kernel.stores):
            if target.terms and max(self.depths[index] for index, _ in target.terms) == depth:
                terms = [(self.known[index], stride) for index, stride in target.terms]
                cursors[place] = moved_by(cursors[place], target.dtype, terms, self.sizes)
        return cursors

    def _point(self, cursors: list[Any]) -> None:
        computed = dict(self.known)
        for number in range(len(self.kernel.values)):
            if number not in computed:
                self.known[number] = self._value(number, cursors)
        for target, pointer in zip(self.kernel.stores, cursors, strict=False):
            value = self.known[target.value]
            if target.combine:
                there = load(self.body.emitter, pointer, target.dtype)
                value = apply(target.combine, there, value)
            store(value, pointer, target.dtype)
        self.known = computed

    def _value(self, number: int, cursors: list[Any]) -> Value:
        value = self.kernel.values[number]
        match value:
            case Load():
                return load(self.body.emitter, cursors[self.place[number]], value.dtype)
            case Index():
                return Value(self.body.emitter, DType.I64, cursors[self.place[number]])
        return self.body.compute(value, self.known.__getitem__)
