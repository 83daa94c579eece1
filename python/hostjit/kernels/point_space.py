# SPDX-License-Identifier: Apache-2.0
"""The loops of a kernel without reductions, in numbers: which there are, and how accesses step."""

from __future__ import annotations

from dataclasses import dataclass

from hostjit.kernels.expression import Index, Load, PointwiseKernel, Store
from hostjit.kernels.iteration import Strides, simplify, split_dimension
from hostjit.kernels.sizes import magnitude
from hostjit.kernels.transposed_tile import SQUARES

__all__ = ["PointSpace", "Tile", "point_space"]

# Neighbours of an access that are at least so many elements apart in the last loop are in different
# vectors: from there on tiles are 2.5 to 3.6 times as fast as none.
_APART = 16
# A tile is as high as a line of the cache is long, so that a line is read once, and as wide as a
# register, or a line where what is written has room in few sets of the cache. On a Zen 4 this takes
# 0.6 to 0.9 of the time of 8x8, and a quarter for 2048x2048 of 2 bytes.
_BYTES_OF_LINE = 64
_BYTES_OF_SETS = 4096
_SHORTEST_SIDE = 4

Access = Load | Index | Store


@dataclass(frozen=True)
class Tile:
    """A part of a plane of points: `height` of `tall` along one dimension, `width` of `wide`.

    The last tile of a row or column of tiles ends where the plane does, and overlaps the one before
    it if the sides don't divide the plane: no tile is a part of one.
    """

    height: int
    width: int
    tall: int
    wide: int

    @property
    def counts(self) -> tuple[int, int]:
        """How many there are, one below the other and side by side."""
        return -(-self.tall // self.height), -(-self.wide // self.width)

    @property
    def overlaps(self) -> bool:
        """Whether some points are in two tiles."""
        return self.tall % self.height != 0 or self.wide % self.width != 0


@dataclass(frozen=True)
class PointSpace:
    """Loops over the points of a kernel, with each access's strides: stores, then what is read.

    With a tile, the last four loops are those from tile to tile and those over its points. Strides
    are the steps from one point to the next in all of them.
    """

    accesses: tuple[Access, ...]
    sizes: Strides
    strides: tuple[Strides, ...]
    tile: Tile | None = None

    @property
    def split(self) -> int | None:
        """The loop along which threads may share the work; None without any."""
        if any(isinstance(access, Store) and access.combine for access in self.accesses):
            return None
        outer = self.sizes[:-2] if self.tile else self.sizes
        return split_dimension(outer) if outer else None

    def is_turned(self, place: int) -> bool:
        """Whether an access walks each tile across, and can be turned before."""
        access, strides = self.accesses[place], self.strides[place]
        if self.tile is None or not isinstance(access, Load) or access.terms:
            return False
        return strides[-2] == 1 and isinstance(strides[-1], int) and abs(strides[-1]) >= _APART


def point_space(kernel: PointwiseKernel) -> PointSpace:
    """Find the loops of a kernel; the stores decide their order.

    Where elements that follow each other in the innermost loop are far apart for an access, and
    neighbours in another loop, that loop and the innermost are cut: tiles are visited one after the
    other, and the lines that one row of a tile brought into the cache serve its other rows.
    """
    reads = [value for value in kernel.values if isinstance(value, Load | Index)]
    accesses: tuple[Access, ...] = (*kernel.stores, *reads)
    sizes, strides = simplify(kernel.shape, [access.strides for access in accesses])
    whole = PointSpace(accesses, sizes, tuple(strides))
    found = _across(accesses, strides)
    if found is None or not all(store.replaces_all for store in kernel.stores):
        return whole
    lying, across = found
    inner = len(sizes) - 1
    tall, wide = sizes[across], sizes[inner]
    if not (isinstance(tall, int) and isinstance(wide, int)):
        return whole
    exact = any(operand.may_alias for operand in kernel.outputs)
    written = kernel.stores[0].dtype.itemsize
    is_crowded = magnitude(strides[0][across]) * written % _BYTES_OF_SETS == 0
    height = _side(tall, _BYTES_OF_LINE // lying.dtype.itemsize, exact)
    width = _side(wide, _BYTES_OF_LINE // written if is_crowded else SQUARES[written], exact)
    if height is None or width is None:
        return whole
    tile = Tile(height, width, tall, wide)
    loops = [*(dim for dim in range(inner) if dim != across), across, inner]
    return PointSpace(
        accesses,
        (*(sizes[dim] for dim in loops[:-2]), *tile.counts, height, width),
        tuple(tuple(access[dim] for dim in [*loops, across, inner]) for access in strides),
        tile,
    )


def _across(
    accesses: tuple[Access, ...], strides: list[Strides]
) -> tuple[Load | Store, int] | None:
    """The first access that lies across, and the dimension along which it has neighbours."""
    for access, steps in zip(accesses, strides, strict=True):
        if isinstance(access, Index):
            continue
        for dim in reversed(range(len(steps) - 1)):
            if steps[dim] in (1, -1) and magnitude(steps[-1]) >= _APART:
                return access, dim
    return None


def _side(size: int, longest: int, exact: bool) -> int | None:
    """The longest side or a part of it, whichever fits `size` best."""
    sides = [longest]
    while sides[-1] > _SHORTEST_SIDE:
        sides.append(sides[-1] // 2)
    sides = [side for side in sides if side <= size and (not exact or size % side == 0)]
    covered = {side: -(-size // side) * side for side in sides}
    fitting = (side for side in sides if covered[side] * 8 <= size * 9)
    return next(fitting, min(sides, key=lambda side: covered[side], default=None))
