# SPDX-License-Identifier: Apache-2.0
"""The innermost loop of a tile of rows: over its lanes, or over its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit.kernels.loop import ZERO, write_loop
from hostjit.kernels.row_tiles import RowTiles

__all__ = ["Lanes", "Width"]

_INDEX = ir.IntType(64)

# How many rows a tile has: a number, or a register that holds it where each has one lane.
Width = Any


class Lanes:
    """Writes loops over the lanes of tiles."""

    def __init__(self, builder: Any, space: RowTiles) -> None:
        self._builder = builder
        self._space = space

    def each(self, width: Width, body: Callable[[Any], None]) -> None:
        """Write the loop over the lanes of a tile."""
        per_row = self._space.lanes // self._space.width
        self._side_by_side(width * per_row if isinstance(width, int) else width, body)

    def each_row(self, width: Width, body: Callable[[Any, Any], None]) -> None:
        """Write the loop over the rows of a tile; `body` is given a row and its first lane."""
        within = ir.Constant(_INDEX, self._space.within)

        def row(n: Any) -> None:
            body(n, n if self._space.within == 1 else self._builder.mul(n, within))

        self._side_by_side(width, row)

    def gather(self, width: Width, meet: Callable[[Any, Any], None]) -> None:
        """Call `meet` with the first lane of each row and each other one: combine them."""
        self._meet_lines(width, meet)
        self._meet_neighbours(width, meet)

    def spread(self, width: Width, meet: Callable[[Any, Any], None]) -> None:
        """Call `meet` with the lanes of each row in an order to copy the first to the others."""
        self._meet_neighbours(width, meet)
        self._meet_lines(width, meet)

    def _meet_lines(self, width: Width, meet: Callable[[Any, Any], None]) -> None:
        count = self._space.before
        if count > 1:
            line = width * self._space.within
            self._side_by_side(line, lambda lane: self._others(count, line, lane, meet))

    def _meet_neighbours(self, width: Width, meet: Callable[[Any, Any], None]) -> None:
        count = self._space.within
        if count > 1:
            self.each_row(width, lambda _, lane: self._others(count, 1, lane, meet))

    def _others(self, count: int, step: int, lane: Any, meet: Callable[[Any, Any], None]) -> None:
        """Call `meet` with `lane` and those that follow it by `step`."""
        for number in range(1, count):
            other = ir.Constant(_INDEX, number * step)
            meet(lane, self._builder.add(lane, other, flags=("nuw", "nsw")))

    def _side_by_side(self, count: Any, body: Callable[[Any], None]) -> None:
        end = ir.Constant(_INDEX, count) if isinstance(count, int) else count
        write_loop(self._builder, "lane", ZERO, end, body, innermost=True)
