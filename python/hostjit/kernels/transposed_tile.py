# SPDX-License-Identifier: Apache-2.0
"""The tile of an operand that lies across, turned in vector registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit.kernels.dtypes import DType

__all__ = ["TransposedTile"]

_INDEX = ir.IntType(64)


class TransposedTile:
    """A square of elements on the stack of a kernel, its rows as the last loop walks them.

    One element after the other, LLVM gathers, or inserts into registers.
    Example: tile = TransposedTile(builder, DType.F32, 8), and in the loops around it
    tile.load(pointer, stride), after which element (i, j) is at tile.memory + i * 8 + j
    """

    def __init__(self, builder: Any, dtype: DType, side: int) -> None:
        self.side = side
        self._builder = builder
        self._dtype = dtype
        with builder.goto_entry_block():
            self.memory = builder.alloca(self._row(), size=side, name="tile")
            self.memory.align = 64

    def load(self, pointer: Any, stride: int) -> None:
        """Fill the tile: element (i, j) is at `pointer` + i + j * `stride`."""
        builder, side, align = self._builder, self.side, self._dtype.itemsize
        starts = [self._at(pointer, place * stride) for place in range(side)]
        rows = [builder.load(start, align=align, typ=self._row()) for start in starts]
        for place, turned in enumerate(self._transposed(rows)):
            builder.store(turned, self._at(self.memory, place * side), align=align)

    def _row(self) -> Any:
        return ir.VectorType(self._dtype.memory_type(), self.side)

    def _at(self, pointer: Any, elements: int) -> Any:
        type_ = self._dtype.memory_type()
        offset = ir.Constant(_INDEX, elements)
        return self._builder.gep(pointer, [offset], inbounds=True, source_etype=type_)

    def _transposed(self, rows: list[Any]) -> list[Any]:
        """Swap, for one bit of the two indices after the other, what differs in it."""
        side = self.side
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
