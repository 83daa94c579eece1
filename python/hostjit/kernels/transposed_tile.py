# SPDX-License-Identifier: Apache-2.0
"""The tile of an operand that lies across, turned in vector registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit.kernels.dtypes import DType
from hostjit.kernels.loop import ZERO, write_loop

__all__ = ["SQUARES", "TransposedTile"]

_INDEX = ir.IntType(64)
# The sides of the squares that are turned in registers, by the size of an element. Twice the side
# is slower for 1 and 2 bytes. For 4 it takes 0.8 of the time with AVX-512, but 1.7 without.
SQUARES = {1: 16, 2: 16, 4: 8, 8: 8}


class TransposedTile:
    """A rectangle of elements on the stack of a kernel, its rows as the last loop walks them.

    One element after the other, LLVM gathers, or inserts into registers. The width is a power of
    two; where squares don't divide the height, the last overlaps the one before.
    Example: tile = TransposedTile(builder, DType.F32, 16, 8), and in the loops around it
    tile.load(pointer, stride), after which element (i, j) is at tile.memory + i * 8 + j
    """

    def __init__(self, builder: Any, dtype: DType, height: int, width: int) -> None:
        self.width = width
        self._height = height
        self._side = min(SQUARES[dtype.itemsize], 1 << (height.bit_length() - 1), width)
        self._builder = builder
        self._dtype = dtype
        with builder.goto_entry_block():
            vectors = height * width // self._side
            self.memory = builder.alloca(self._vector(), size=vectors, name="tile")
            self.memory.align = 64

    def load(self, pointer: Any, stride: int) -> None:
        """Fill the tile: element (i, j) is at `pointer` + i + j * `stride`."""
        builder = self._builder
        counts = (-(-self._height // self._side), self.width // self._side)
        steps = [ir.Constant(_INDEX, count) for count in counts]

        def row_of_squares(column: Any) -> None:
            first = builder.mul(column, ir.Constant(_INDEX, self._side * stride))
            source = self._at(pointer, first)

            def square(row: Any) -> None:
                below = self._start(row)
                place = builder.mul(below, ir.Constant(_INDEX, self.width))
                place = builder.add(place, builder.mul(column, ir.Constant(_INDEX, self._side)))
                self._load_square(self._at(source, below), stride, self._at(self.memory, place))

            write_loop(builder, "squares", ZERO, steps[0], square)

        write_loop(builder, "turned", ZERO, steps[1], row_of_squares)

    def _start(self, row: Any) -> Any:
        """Where the square that a loop has counted to begins."""
        start = self._builder.mul(row, ir.Constant(_INDEX, self._side))
        if self._height % self._side == 0:
            return start
        last = ir.Constant(_INDEX, self._height - self._side)
        return self._builder.select(self._builder.icmp_unsigned("<", start, last), start, last)

    def _load_square(self, source: Any, stride: int, target: Any) -> None:
        builder, side, align = self._builder, self._side, self._dtype.itemsize
        starts = [ir.Constant(_INDEX, place * stride) for place in range(side)]
        rows = [
            builder.load(self._at(source, start), align=align, typ=self._vector())
            for start in starts
        ]
        for place, turned in enumerate(self._transposed(rows)):
            start = self._at(target, ir.Constant(_INDEX, place * self.width))
            builder.store(turned, start, align=align)

    def _vector(self) -> Any:
        return ir.VectorType(self._dtype.memory_type(), self._side)

    def _at(self, pointer: Any, elements: Any) -> Any:
        type_ = self._dtype.memory_type()
        return self._builder.gep(pointer, [elements], inbounds=True, source_etype=type_)

    def _transposed(self, rows: list[Any]) -> list[Any]:
        """Swap, for one bit of the two indices after the other, what differs in it."""
        side = self._side
        distance = 1
        while distance < side:
            lower = [j - distance + side if j & distance else j for j in range(side)]
            upper = [j + side if j & distance else j + distance for j in range(side)]
            for place in range(side):
                if not place & distance:
                    pair = rows[place], rows[place + distance]
                    rows[place] = self._shuffled(*pair, lower)
                    rows[place + distance] = self._shuffled(*pair, upper)
            distance *= 2
        return rows

    def _shuffled(self, first: Any, second: Any, lanes: list[int]) -> Any:
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
        return self._builder.shuffle_vector(first, second, mask)
