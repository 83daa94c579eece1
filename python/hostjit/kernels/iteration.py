# SPDX-License-Identifier: Apache-2.0
"""Simplification of the iteration space of a kernel."""

from __future__ import annotations

from hostjit.kernels.sizes import Size, at_most, magnitude

__all__ = ["extent", "simplify", "split_dimension", "tile", "turned_side"]

Strides = tuple[Size, ...]

# Split more evenly over the threads of most machines than the largest error that matters.
_ENOUGH_ITEMS = 256

# The sides of a tile, in elements. Of the sizes from 4x8 to 64x8 and 8x64, 8x8 was the fastest for
# transposes of 256x256 to 2048x2048 on a Zen 5.
_SHORTEST_SIDE = 4
_LONGEST_SIDE = 8
# Elements that follow each other at less than this are in few enough lines of the cache.
_FAR = 256
# A square of one of these sides is turned in vector registers, which pays as soon as neighbours are
# in different vectors: 2.5 to 3.6 times as fast as no tiles, from 16 to 256 elements apart.
_TURNED_SIDES = (8, 4)
_APART = 16


def simplify(shape: Strides, accesses: list[Strides]) -> tuple[Strides, list[Strides]]:
    """Reorder and merge dimensions without changing the set of points visited.

    Size-1 dimensions are dropped; the others are ordered by decreasing distance, where the first
    access (a store) decides and later ones break ties; neighbours that every access walks as one,
    whatever the symbols are, are merged. A non-empty shape is expected.

    Arguments: the shape, and for each access its stride per dimension.
    Returns: the new shape and the new strides, in the same order of accesses.
    Example: simplify((4, 1, 8), [(8, 8, 1), (8, 0, 1)]) == ((32,), [(1,), (1,)])
    """
    order = [dim for dim, size in enumerate(shape) if size != 1]
    order.sort(key=lambda dim: [-magnitude(access[dim]) for access in accesses])
    sizes: list[Size] = []
    merged: list[list[Size]] = [[] for _ in accesses]
    for dim in order:
        strides = [access[dim] for access in accesses]
        previous = [access[-1] for access in merged] if sizes else []
        if sizes and previous == [stride * shape[dim] for stride in strides]:
            sizes[-1] *= shape[dim]
            for access, stride in zip(merged, strides, strict=True):
                access[-1] = stride
            continue
        sizes.append(shape[dim])
        for access, stride in zip(merged, strides, strict=True):
            access.append(stride)
    return tuple(sizes), [tuple(access) for access in merged]


def tile(shape: Strides, accesses: list[Strides]) -> tuple[Strides, list[Strides]]:
    """Visit the points of a transpose in tiles, without changing the set of points visited.

    Where elements that follow each other in the innermost loop are far apart for an access, and
    neighbours in another loop, that loop and the innermost are cut, and tiles are visited one after
    the other: the lines that one row of a tile brought into the cache serve its other rows.

    Arguments and result: as `simplify` returns them. What has no tiles comes back as it is.
    Example: tile((8, 512), [(512, 1), (1, 8)]) has the shape (8, 512), 8 being near, and
    tile((512, 32), [(32, 1), (1, 512)]) has (64, 4, 8, 8)
    """
    across = _neighbours_across(accesses, _APART)
    if across is None:
        return shape, accesses
    inner = len(shape) - 1
    tall, wide = shape[across], shape[inner]
    if not (isinstance(tall, int) and isinstance(wide, int)):
        return shape, accesses
    turned = (n for n in _TURNED_SIDES if tall % n == 0 == wide % n)
    if side := next(turned, None):
        height = width = side
    else:
        height, width = _side(tall), _side(wide)
        is_far = _neighbours_across(accesses, _FAR) == across
        if min(height, width) < _SHORTEST_SIDE or not is_far:
            return shape, accesses
    # Pairs of a dimension and how many of its points a loop skips to the next.
    loops = [(dim, 1) for dim in range(inner) if dim != across]
    loops += [(across, height), (inner, width), (across, 1), (inner, 1)]
    sizes = [*(shape[dim] for dim, _ in loops[:-4]), tall // height, wide // width, height, width]
    kept = [n for n, size in enumerate(sizes) if size != 1]
    return (
        tuple(sizes[n] for n in kept),
        [tuple(access[loops[n][0]] * loops[n][1] for n in kept) for access in accesses],
    )


def turned_side(shape: Strides, strides: Strides) -> int | None:
    """The side of the square that the last two loops visit, if it is to be turned for an access.

    Example: turned_side((64, 4, 8, 8), (4096, 8, 1, 512)) == 8
    """
    if len(shape) < 2 or shape[-1] != shape[-2]:
        return None
    side, step = shape[-1], strides[-1]
    if not (isinstance(side, int) and isinstance(step, int)) or side not in _TURNED_SIDES:
        return None
    return side if strides[-2] == 1 and abs(step) >= _APART else None


def _neighbours_across(accesses: list[Strides], distance: int) -> int | None:
    """The dimension along which an access has neighbours that is as far apart in the last one."""
    for strides in accesses:
        for dim in reversed(range(len(strides) - 1)):
            if strides[dim] in (1, -1) and magnitude(strides[-1]) >= distance:
                return dim
    return None


def _side(size: int) -> int:
    return max(side for side in range(1, _LONGEST_SIDE + 1) if size % side == 0)


def split_dimension(shape: Strides) -> int:
    """The dimension of a simplified shape along which threads may share the work.

    The outermost one with enough items, so that each thread walks memory of its own.
    """
    wide = (dim for dim, size in enumerate(shape) if magnitude(size) >= _ENOUGH_ITEMS)
    return next(wide, max(range(len(shape)), key=lambda dim: magnitude(shape[dim])))


def extent(shape: Strides, strides: Strides, offset: Size) -> Size:
    """The number of elements from the buffer's start that an access may touch."""
    if 0 in shape:
        return 0
    steps = zip(shape, strides, strict=True)
    forward = ((size - 1) * step for size, step in steps if not at_most(step, 0))
    return sum(forward, offset) + 1
