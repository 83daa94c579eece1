# SPDX-License-Identifier: Apache-2.0
"""The loops of a kernel with reductions: over tiles of rows, and over the elements of a row.

Where the elements of a row lie apart but rows lie side by side (a reduction over leading
dimensions), a tile of rows is computed together, with the loop over its lanes innermost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit.kernels.cascade import Chunks
from hostjit.kernels.expression import Index, Load, PointwiseKernel, Store
from hostjit.kernels.lanes import Lanes, Width
from hostjit.kernels.loop import ZERO, write_loop
from hostjit.kernels.row_tiles import row_tiles
from hostjit.kernels.size_values import SizeValues
from hostjit.kernels.sizes import Size, SymbolicSize, at_most
from hostjit.kernels.transposed_tile import TransposedTile
from hostjit.kernels.walks import Cursors, Walk, Walks

__all__ = ["RowLoops"]

_INDEX = ir.IntType(64)


class RowLoops:
    """Writes the loops of a space, and moves the cursors of everything that is reached in them.

    `items` are the bounds along the loop that threads share, or None for all of it.
    """

    def __init__(
        self,
        kernel: PointwiseKernel,
        function: Any,
        builder: Any,
        sizes: SizeValues,
        items: tuple[Any, Any] | None = None,
    ) -> None:
        self.kernel = kernel
        self.function = function
        self.builder = builder
        self.sizes = sizes
        self.space = space = row_tiles(kernel)
        self.lanes = Lanes(builder, space)
        self.bounds = [(ZERO, sizes.value(size)) for size in space.outer]
        if items and space.split is not None:
            self.bounds[space.split] = items
        self.walks = Walks(kernel, function, builder, sizes, space)

    def find(self, access: Load | Index | Store) -> int:
        """The position of the cursor of an access."""
        return next(n for n, candidate in enumerate(self.space.accesses) if candidate is access)

    def add_scratch(self, element: Any) -> int:
        """Reserve memory with one place per element of a tile; the position of its cursor."""
        sizes, lanes = self.space.reduced, self.space.lanes
        count = math.prod(sizes) * lanes
        assert isinstance(count, int), "what may be of any length is kept elsewhere"
        base = self.allocate(element, count)
        steps = tuple(math.prod(sizes[depth + 1 :]) * lanes for depth in range(len(sizes)))
        return self.walks.add(
            Walk(base, (0,) * len(self.space.kept), steps, int(lanes > 1), element)
        )

    def allocate(self, element: Any, count: int) -> Any:
        """Memory on the stack; to be called before any loop is written."""
        place = self.builder.alloca(element, ir.Constant(_INDEX, count) if count > 1 else None)
        if count > 1:
            place.align = 64
        return place

    def each_tile(self, body: Callable[[Cursors, Width], None]) -> None:
        """Write the loops over rows; `body` is given how many rows a tile has."""
        turned = self._turned()

        def tile(cursors: Cursors, width: Width) -> None:
            cursors = list(cursors)
            for number, (memory, step) in turned.items():
                memory.load(cursors[number], step)
                cursors[number] = memory.memory
            body(cursors, width)

        self._kept(0, self.walks.bases(), tile)

    def _turned(self) -> dict[int, tuple[TransposedTile, int]]:
        """Memory for the accesses that are turned, and how far apart their rows are."""
        found = {}
        for number in self.space.turned:
            access, step = self.space.accesses[number], self.space.kept_strides[number][-1]
            length = self.space.reduced[-1]
            assert isinstance(access, Load) and isinstance(step, int) and isinstance(length, int)
            tile = TransposedTile(self.builder, access.dtype, length, self.space.width)
            found[number] = (tile, step)
        return found

    def each_lane(
        self, cursors: Cursors, width: Width, body: Callable[[Cursors, Any], None]
    ) -> None:
        """Write the loop over the lanes of a tile."""
        strides = [walk.lane for walk in self.walks]
        self.lanes.each(width, lambda lane: body(self.walks.step(cursors, lane, strides), lane))

    def each_row(
        self, cursors: Cursors, width: Width, body: Callable[[Cursors, Any], None]
    ) -> None:
        """Write the loop over the rows of a tile; `body` is given the first lane of each."""
        strides = [walk.kept[-1] if self.space.tiled else 0 for walk in self.walks]
        self.lanes.each_row(width, lambda n, lane: body(self.walks.step(cursors, n, strides), lane))

    def each_element(
        self,
        cursors: Cursors,
        body: Callable[[Cursors], None],
        chunks: Chunks,
        after_chunk: Callable[[int], None],
    ) -> None:
        """Write the loops over the elements of rows, with something to do after each chunk."""
        self._reduced(0, cursors, body, chunks, after_chunk)

    def _kept(self, depth: int, cursors: Cursors, body: Callable[[Cursors, Width], None]) -> None:
        space = self.space
        if depth < len(space.kept) - (1 if space.tiled else 0):
            strides = [walk.kept[depth] for walk in self.walks]
            write_loop(
                self.builder,
                f"row{depth}",
                *self.bounds[depth],
                lambda n: self._kept(depth + 1, self.walks.step(cursors, n, strides), body),
                maybe_empty=not at_most(1, space.kept[depth]),
            )
        elif space.tiled:
            self._tiles(cursors, body)
        else:
            body(cursors, 1)

    def _tiles(self, cursors: Cursors, body: Callable[[Cursors, Width], None]) -> None:
        """Write the loop over tiles, and apart from it the last one if it has fewer rows."""
        builder, width, rows = self.builder, self.space.width, self.space.kept[-1]
        strides = [walk.kept[-1] * width for walk in self.walks]
        if isinstance(rows, SymbolicSize):
            self._some_tiles(rows, lambda n, left: body(self.walks.step(cursors, n, strides), left))
            return
        full, rest = divmod(rows, width)
        begin, end = self.bounds[-1]
        if self.space.turned and rest:
            self._overlapping_tiles(rows, cursors, body)
            return

        def tile(n: Any) -> None:
            body(self.walks.step(cursors, n, strides), width)

        if rest == 0:
            write_loop(self.builder, "tile", begin, end, tile)
            return
        last = ir.Constant(_INDEX, full)
        if begin is ZERO:
            write_loop(self.builder, "tile", begin, last, tile)
            body(self.walks.step(cursors, last, strides), rest)
            return
        with builder.if_then(builder.icmp_unsigned("<", begin, last)):
            over = builder.icmp_unsigned(">", end, last)
            write_loop(self.builder, "tile", begin, builder.select(over, last, end), tile)
        with builder.if_then(builder.icmp_unsigned(">", end, last)):
            body(self.walks.step(cursors, last, strides), rest)

    def _overlapping_tiles(
        self, rows: int, cursors: Cursors, body: Callable[[Cursors, Width], None]
    ) -> None:
        """Write the loop over tiles of which the last ends where the rows do."""
        builder, width = self.builder, self.space.width
        strides = [walk.kept[-1] for walk in self.walks]
        last = ir.Constant(_INDEX, rows - width)

        def tile(n: Any) -> None:
            start = builder.mul(n, ir.Constant(_INDEX, width))
            start = builder.select(builder.icmp_unsigned("<", start, last), start, last)
            body(self.walks.step(cursors, start, strides), width)

        write_loop(builder, "tile", *self.bounds[-1], tile)

    def _some_tiles(self, rows: Size, body: Callable[[Any, Any], None]) -> None:
        """Write the loop over as many tiles as `rows` turn out to make, with the rows of each."""
        builder, width = self.builder, ir.Constant(_INDEX, self.space.width)
        all_rows = self.sizes.value(rows)
        end = builder.udiv(self.sizes.value(rows + (self.space.width - 1)), width)

        def tile(n: Any) -> None:
            left = builder.sub(all_rows, builder.mul(n, width))
            body(n, builder.select(builder.icmp_unsigned("<", left, width), left, width))

        write_loop(self.builder, "tile", ZERO, end, tile, maybe_empty=not at_most(1, rows))

    def _reduced(
        self,
        depth: int,
        cursors: Cursors,
        body: Callable[[Cursors], None],
        chunks: Chunks,
        after_chunk: Callable[[int], None],
    ) -> None:
        if depth == len(self.space.reduced):
            body(cursors)
            return
        strides = [walk.reduced[depth] for walk in self.walks]

        def run(count: int, begin: Cursors, cuts: list[tuple[int, int]]) -> None:
            if not cuts:
                name = f"reduced{depth}"
                self._loop(
                    name,
                    count,
                    lambda n: inner(self.walks.step(begin, n, strides)),
                    innermost=self._walks_memory(depth),
                )
                return
            size, level = cuts[-1]
            distances = [stride * size for stride in strides]

            def one(n: Any) -> None:
                run(size, self.walks.step(begin, n, distances), cuts[:-1])
                after_chunk(level)

            full, rest = divmod(count, size)
            self._loop("chunk", full, one)
            if rest:
                smaller = [cut for cut in cuts[:-1] if 4 * cut[0] <= rest]
                run(rest, self.walks.step(begin, ir.Constant(_INDEX, full), distances), smaller)
                for number in range(len(cuts) - 1 - len(smaller), -1, -1):
                    after_chunk(level - number)

        def inner(here: Cursors) -> None:
            self._reduced(depth + 1, here, body, chunks, after_chunk)

        def run_some(count: Any, begin: Cursors, cuts: list[tuple[int, int]]) -> None:
            """As `run` does, for a count in a register."""
            builder = self.builder
            if not cuts:
                name = f"reduced{depth}"
                write_loop(
                    self.builder,
                    name,
                    ZERO,
                    count,
                    lambda n: inner(self.walks.step(begin, n, strides)),
                )
                return
            size, level = cuts[-1]
            distances = [stride * size for stride in strides]

            def one(n: Any) -> None:
                run(size, self.walks.step(begin, n, distances), cuts[:-1])
                after_chunk(level)

            # Cut where loops of known length are; some iterations are left to the rest.
            last = builder.sub(count, ir.Constant(_INDEX, 1), flags=("nuw", "nsw"))
            short = builder.icmp_unsigned("<", count, ir.Constant(_INDEX, 2 * size))
            full = builder.select(short, ZERO, builder.udiv(last, ir.Constant(_INDEX, size)))
            write_loop(self.builder, "chunk", ZERO, full, one, maybe_empty=True)
            taken = builder.mul(full, ir.Constant(_INDEX, size), flags=("nuw", "nsw"))
            left = builder.sub(count, taken, flags=("nuw", "nsw"))
            run_some(left, self.walks.step(begin, full, distances), cuts[:-1])
            after_chunk(level)

        total = self.space.reduced[depth]
        if isinstance(total, SymbolicSize):
            run_some(self.sizes.value(total), cursors, chunks[depth])
        else:
            run(total, cursors, chunks[depth])

    def _walks_memory(self, depth: int) -> bool:
        """Whether a loop over elements is the innermost, and something moves in memory there."""
        is_last = self.space.lanes == 1 and depth == len(self.space.reduced) - 1
        return is_last and any(w.element is not None and w.reduced[depth] != 0 for w in self.walks)

    def _loop(
        self, name: str, size: int, body: Callable[[Any], None], *, innermost: bool = False
    ) -> None:
        end = ir.Constant(_INDEX, size)
        write_loop(self.builder, name, ZERO, end, body, innermost=innermost)
