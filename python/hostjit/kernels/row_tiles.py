# SPDX-License-Identifier: Apache-2.0
"""What the innermost loop of a kernel with reductions visits on the CPU: the lanes of a tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from hostjit.kernels.expression import Index, Load, PointwiseKernel, Reduce, Store, operands_of
from hostjit.kernels.iteration import Strides
from hostjit.kernels.reduction_plan import make_plan
from hostjit.kernels.row_space import RowSpace, row_space
from hostjit.kernels.sizes import Size, SymbolicSize, magnitude

__all__ = ["RowTiles", "row_tiles"]

# Lanes of neighbours: as many as walk memory in long pieces.
_MOST_LANES = 256
# As many lanes as have their accumulators in registers, and fill enough vectors to hide how long
# one addition takes.
_IN_REGISTERS = 64
# Rows whose elements lie together in longer pieces fill vectors by themselves.
_LONGEST_WITHIN = 64
_FEWEST_LANES = 8
# Rows that are turned together, the most first: a line of the cache where they are written.
_TURNED_WIDTHS = (16, 8)
_SHORTEST = 4
# What is written so far apart is in other lines; what is turned stays in the first cache level.
_APART = 8
_MOST_BYTES = 1 << 15
# Lines that are so far apart have the same few places in the first cache level.
_BYTES_OF_SETS = 4096


@dataclass(frozen=True)
class RowTiles(RowSpace):
    """A space, and the lanes of its tiles of `width` rows.

    A tile has, of each row, `within` neighbours, row after row, and `before` such lines one after
    the other. A row has accumulators in each of its lanes, which are brought together in the end.
    `lane_strides` are the steps from lane to lane. The elements of the accesses `turned` are copied
    to where the rows of a tile lie side by side.
    """

    within: int = 1
    before: int = 1
    lane_strides: Strides = ()
    turned: tuple[int, ...] = ()

    @property
    def lanes(self) -> int:
        """The lanes of a tile that is not the last."""
        return self.before * self.width * self.within


def row_tiles(kernel: PointwiseKernel) -> RowTiles:
    """Find the loops of a kernel, and the lanes of the innermost."""
    space = row_space(kernel)
    known = {field.name: getattr(space, field.name) for field in fields(space)}
    lane_strides = tuple(strides[-1] if space.tiled else 0 for strides in space.kept_strides)
    tiles = RowTiles(**known, lane_strides=lane_strides)
    if not tiles.kept or not tiles.reduced:
        return tiles
    visited = _visited(kernel, tiles)
    turned = _with_turned_rows(tiles, kernel)
    if turned is not None:
        return turned
    if not tiles.tiled:
        tiles = _with_columns(tiles, kernel) or _with_neighbours(tiles, visited)
    return _with_lines(tiles, visited)


def _with_columns(tiles: RowTiles, kernel: PointwiseKernel) -> RowTiles | None:
    """Tiles of rows that lie side by side where they are read, in several passes; None if not.

    What is written across comes to a line of the cache element after element, and the lines of all
    rows must have room there.
    """
    rows = tiles.kept[-1]
    crowded = reads = False
    for number, access in enumerate(tiles.accesses):
        if isinstance(access, Index) or not kernel.moves_in_row(access.strides):
            continue
        across, along = tiles.kept_strides[number][-1], tiles.reduced_strides[number][-1]
        if isinstance(access, Store):
            crowded |= magnitude(across) * access.dtype.itemsize % _BYTES_OF_SETS == 0
        elif across != 1 or magnitude(along) < _APART:
            return None
        else:
            reads = True
    if not reads or isinstance(rows, SymbolicSize) or len(make_plan(kernel, 1).passes) == 1:
        return None
    lane_strides = tuple(strides[-1] for strides in tiles.kept_strides)
    width = min(rows, _FEWEST_LANES if crowded else _MOST_LANES)
    return replace(tiles, width=width, lane_strides=lane_strides)


def _visited(kernel: PointwiseKernel, tiles: RowTiles) -> list[int]:
    """The accesses that are made at each element, not once for a row."""
    after = [False] * len(kernel.values)  # values for which a reduction must end
    varies = kernel.varies_in_row()
    for number, value in enumerate(kernel.values):
        after[number] = isinstance(value, Reduce) or any(after[n] for n in operands_of(value))
    pending = [store.value for store in kernel.stores if kernel.moves_in_row(store.strides)]
    pending += [value.operand for value in kernel.values if isinstance(value, Reduce)]
    found: set[int] = set()
    while pending:
        operand = pending.pop()
        if operand not in found and (varies[operand] or not after[operand]):
            found.add(operand)
            pending.extend(operands_of(kernel.values[operand]))
    return [
        number
        for number, access in enumerate(tiles.accesses)
        if (kernel.moves_in_row(access.strides) and isinstance(access, Store))
        or any(kernel.values[operand] is access for operand in found)
    ]


def _with_neighbours(tiles: RowTiles, visited: Sequence[int]) -> RowTiles:
    """The space whose tiles have the few elements of a row that lie together, or itself.

    Those of several rows where rows follow each other.
    """
    within, rows = tiles.reduced[-1], tiles.kept[-1]
    if len(tiles.reduced) < 2 or isinstance(within, SymbolicSize) or within > _LONGEST_WITHIN:
        return tiles
    width = 1
    if isinstance(rows, int) and all(
        tiles.kept_strides[n][-1] == tiles.reduced_strides[n][-1] * within for n in visited
    ):
        width = min(rows, _MOST_LANES // within)
    if width * within < _FEWEST_LANES:
        return tiles
    return replace(
        tiles,
        reduced=tiles.reduced[:-1],
        reduced_strides=tuple(strides[:-1] for strides in tiles.reduced_strides),
        width=width,
        within=within,
        lane_strides=tuple(strides[-1] for strides in tiles.reduced_strides),
    )


def _with_lines(tiles: RowTiles, visited: Sequence[int]) -> RowTiles:
    """The space whose tiles are several lines, where whole ones follow each other in memory."""
    line, size = tiles.lanes, tiles.reduced[-1]
    whole = line == tiles.within or tiles.width == tiles.kept[-1]
    if line == 1 or line * 2 > _IN_REGISTERS or not whole or not isinstance(size, int):
        return tiles
    if any(tiles.reduced_strides[n][-1] != tiles.lane_strides[n] * line for n in visited):
        return tiles
    before = max(n for n in range(1, _IN_REGISTERS // line + 1) if size % n == 0)

    def cut(numbers: Strides, last: Size) -> Strides:
        return (*numbers[:-1], last)

    return replace(
        tiles,
        reduced=cut(tiles.reduced, size // before),
        reduced_strides=tuple(cut(s, s[-1] * before) for s in tiles.reduced_strides),
        before=before,
    )


def _with_turned_rows(tiles: RowTiles, kernel: PointwiseKernel) -> RowTiles | None:
    """Tiles of rows that lie side by side only where they are written; None if there are none.

    Only rows of one dimension. Where tiles don't divide the rows, the last overlaps the one before
    it, and two threads may compute the same rows.
    """
    length, rows = tiles.reduced[-1], tiles.kept[-1]
    if len(tiles.reduced) != 1 or any(operand.may_alias for operand in kernel.outputs):
        return None
    if isinstance(length, SymbolicSize) or isinstance(rows, SymbolicSize) or length < _SHORTEST:
        return None
    turned: dict[int, int] = {}
    num_lines = 0
    for number, access in enumerate(tiles.accesses):
        if isinstance(access, Index) or not kernel.moves_in_row(access.strides):
            continue
        across, along = tiles.kept_strides[number][-1], tiles.reduced_strides[number][0]
        if across == 1 and magnitude(along) >= _APART:
            num_lines += 1
        elif isinstance(access, Load) and not access.terms and along == 1 and across != 0:
            turned[number] = access.dtype.itemsize
        else:
            return None
    if (
        not turned
        or not num_lines
        or any(isinstance(tiles.kept_strides[number][-1], SymbolicSize) for number in turned)
    ):
        return None
    for width in _TURNED_WIDTHS:
        kept_in_outputs = any(make_plan(kernel, width).caches.values())
        fits = rows >= width and not (rows % width and kept_in_outputs)
        if fits and length * width * sum(turned.values()) <= _MOST_BYTES:
            return _turned(tiles, tuple(turned), width)
    return None


def _turned(tiles: RowTiles, turned: tuple[int, ...], width: int) -> RowTiles:
    reduced_strides = list(tiles.reduced_strides)
    lane_strides = [strides[-1] for strides in tiles.kept_strides]
    for number in turned:
        reduced_strides[number], lane_strides[number] = (width,), 1
    return replace(
        tiles,
        width=width,
        reduced_strides=tuple(reduced_strides),
        lane_strides=tuple(lane_strides),
        turned=turned,
    )
