# SPDX-License-Identifier: Apache-2.0
"""Simplification of the iteration space of a kernel."""

from __future__ import annotations

from hostjit.kernels.sizes import Size, at_most, magnitude

__all__ = ["extent", "simplify", "split_dimension"]

Strides = tuple[Size, ...]

# Split more evenly over the threads of most machines than the largest error that matters.
_ENOUGH_ITEMS = 256


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
