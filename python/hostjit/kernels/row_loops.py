# SPDX-License-Identifier: Apache-2.0
"""The loops of a kernel with reductions: over tiles of rows, and over the elements of a row.

Where the elements of a row lie apart but rows lie side by side (a reduction over leading
dimensions), a tile of rows is computed together, with the loop over its columns innermost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit.kernels.cascade import Chunks
from hostjit.kernels.expression import Index, Load, PointwiseKernel, Store
from hostjit.kernels.loop import ZERO, write_loop
from hostjit.kernels.row_space import row_space
from hostjit.kernels.size_values import SizeValues
from hostjit.kernels.sizes import Size, SymbolicSize, at_most

__all__ = ["Cursors", "RowLoops", "Width"]

_INDEX = ir.IntType(64)

# For each walk, the pointer (or number) at the current point of the loops entered so far.
Cursors = list[Any]
# How many rows a tile has: a number, or a register that holds it.
Width = Any


@dataclass
class _Walk:
    """How something is reached: its cursor's start, and its steps along the loops."""

    base: Any
    kept: tuple[Size, ...]
    reduced: tuple[Size, ...]
    column: Size
    element: Any


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
        self.space = space = row_space(kernel)
        self.bounds = [(ZERO, sizes.value(size)) for size in space.outer]
        if items and space.split is not None:
            self.bounds[space.split] = items
        self.walks = [
            self._walk(*access)
            for access in zip(
                space.accesses, space.kept_strides, space.reduced_strides, strict=True
            )
        ]

    def _walk(
        self, access: Load | Index | Store, kept: tuple[Size, ...], reduced: tuple[Size, ...]
    ) -> _Walk:
        column = kept[-1] if self.space.tiled else 0
        if isinstance(access, Index):
            return _Walk(self.sizes.value(access.offset), kept, reduced, column, None)
        first = len(self.kernel.inputs) if isinstance(access, Store) else 0
        element = access.dtype.memory_type()
        base = self.function.args[first + access.operand]
        base = self._moved(base, element, ir.Constant(_INDEX, 1), access.offset)
        return _Walk(base, kept, reduced, column, element)

    def find(self, access: Load | Index | Store) -> int:
        """The position of the cursor of an access."""
        return next(n for n, candidate in enumerate(self.space.accesses) if candidate is access)

    def add_scratch(self, element: Any) -> int:
        """Reserve memory with one place per element of a tile; the position of its cursor."""
        count = math.prod(self.space.reduced) * self.space.width
        assert isinstance(count, int), "what may be of any length is kept elsewhere"
        base = self.allocate(element, count)
        steps = [
            math.prod(self.space.reduced[depth + 1 :]) * self.space.width
            for depth in range(len(self.space.reduced))
        ]
        walk = _Walk(
            base, (0,) * len(self.space.kept), tuple(steps), int(self.space.tiled), element
        )
        self.walks.append(walk)
        return len(self.walks) - 1

    def allocate(self, element: Any, count: int) -> Any:
        """Memory on the stack; to be called before any loop is written."""
        place = self.builder.alloca(element, ir.Constant(_INDEX, count) if count > 1 else None)
        if count > 1:
            place.align = 64
        return place

    def each_tile(self, body: Callable[[Cursors, Width], None]) -> None:
        """Write the loops over rows; `body` is given how many rows a tile has."""
        self._kept(0, [walk.base for walk in self.walks], body)

    def each_column(
        self, cursors: Cursors, width: Width, body: Callable[[Cursors, Any], None]
    ) -> None:
        """Write the loop over the rows of a tile."""
        strides = [walk.column for walk in self.walks]
        end = ir.Constant(_INDEX, width) if isinstance(width, int) else width
        write_loop(
            self.builder,
            "column",
            ZERO,
            end,
            lambda n: body(self._step(cursors, n, strides), n),
            innermost=True,
        )

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
                lambda n: self._kept(depth + 1, self._step(cursors, n, strides), body),
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
            self._some_tiles(rows, lambda n, left: body(self._step(cursors, n, strides), left))
            return
        full, rest = divmod(rows, width)
        begin, end = self.bounds[-1]

        def tile(n: Any) -> None:
            body(self._step(cursors, n, strides), width)

        if rest == 0:
            write_loop(self.builder, "tile", begin, end, tile)
            return
        last = ir.Constant(_INDEX, full)
        if begin is ZERO:
            write_loop(self.builder, "tile", begin, last, tile)
            body(self._step(cursors, last, strides), rest)
            return
        with builder.if_then(builder.icmp_unsigned("<", begin, last)):
            over = builder.icmp_unsigned(">", end, last)
            write_loop(self.builder, "tile", begin, builder.select(over, last, end), tile)
        with builder.if_then(builder.icmp_unsigned(">", end, last)):
            body(self._step(cursors, last, strides), rest)

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
                    lambda n: inner(self._step(begin, n, strides)),
                    innermost=self._walks_memory(depth),
                )
                return
            size, level = cuts[-1]
            distances = [stride * size for stride in strides]

            def one(n: Any) -> None:
                run(size, self._step(begin, n, distances), cuts[:-1])
                after_chunk(level)

            full, rest = divmod(count, size)
            self._loop("chunk", full, one)
            if rest:
                smaller = [cut for cut in cuts[:-1] if 4 * cut[0] <= rest]
                run(rest, self._step(begin, ir.Constant(_INDEX, full), distances), smaller)
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
                    self.builder, name, ZERO, count, lambda n: inner(self._step(begin, n, strides))
                )
                return
            size, level = cuts[-1]
            distances = [stride * size for stride in strides]

            def one(n: Any) -> None:
                run(size, self._step(begin, n, distances), cuts[:-1])
                after_chunk(level)

            # Cut where loops of known length are; some iterations are left to the rest.
            last = builder.sub(count, ir.Constant(_INDEX, 1), flags=("nuw", "nsw"))
            short = builder.icmp_unsigned("<", count, ir.Constant(_INDEX, 2 * size))
            full = builder.select(short, ZERO, builder.udiv(last, ir.Constant(_INDEX, size)))
            write_loop(self.builder, "chunk", ZERO, full, one, maybe_empty=True)
            taken = builder.mul(full, ir.Constant(_INDEX, size), flags=("nuw", "nsw"))
            left = builder.sub(count, taken, flags=("nuw", "nsw"))
            run_some(left, self._step(begin, full, distances), cuts[:-1])
            after_chunk(level)

        total = self.space.reduced[depth]
        if isinstance(total, SymbolicSize):
            run_some(self.sizes.value(total), cursors, chunks[depth])
        else:
            run(total, cursors, chunks[depth])

    def _walks_memory(self, depth: int) -> bool:
        """Whether a loop over elements is the innermost, and something moves in memory there."""
        is_last = not self.space.tiled and depth == len(self.space.reduced) - 1
        return is_last and any(w.element is not None and w.reduced[depth] != 0 for w in self.walks)

    def _loop(
        self, name: str, size: int, body: Callable[[Any], None], *, innermost: bool = False
    ) -> None:
        end = ir.Constant(_INDEX, size)
        write_loop(self.builder, name, ZERO, end, body, innermost=innermost)

    def _step(self, cursors: Cursors, count: Any, strides: Sequence[Size]) -> Cursors:
        return [
            self._moved(cursor, walk.element, count, stride)
            for walk, cursor, stride in zip(self.walks, cursors, strides, strict=True)
        ]

    def _moved(self, cursor: Any, element: Any, count: Any, stride: Size) -> Any:
        """A cursor moved by `count * stride`; `element` is None for one that is a number."""
        if stride == 0 or (isinstance(count, ir.Constant) and count.constant == 0):
            return cursor
        if isinstance(count, ir.Constant):
            distance = self.sizes.value(stride * count.constant)
        elif stride == 1:
            distance = count
        else:
            distance = self.builder.mul(count, self.sizes.value(stride), flags=("nsw",))
        if element is None:
            return self.builder.add(cursor, distance, flags=("nsw",))
        return self.builder.gep(cursor, [distance], inbounds=True, source_etype=element)
