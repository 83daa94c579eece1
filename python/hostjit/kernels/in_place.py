# SPDX-License-Identifier: Apache-2.0
"""Which outputs of a kernel may be the same memory as one of its inputs."""

from __future__ import annotations

from hostjit.kernels.expression import Load, PointwiseKernel, Store
from hostjit.kernels.iteration import Strides
from hostjit.kernels.point_space import point_space
from hostjit.kernels.sizes import Size

__all__ = ["in_place_pairs"]


def in_place_pairs(kernel: PointwiseKernel) -> list[tuple[int, int]]:
    """Pairs of an input and an output that may share all bytes.

    Those that every point reads and writes at the same place: the values of a point are computed
    before its stores, and no other point comes there. A kernel with rows has none, as it may read
    a row again after it has written to it; nor has one with indices, which it takes from anywhere
    and looks at again when one is wrong, nor one whose tiles overlap, which computes points again.

    Example: in_place_pairs(kernel) == [(0, 0)] for out[i] = tanh(in[i]) + row[i % 8]
    """
    if kernel.has_rows or kernel.errors():
        return []
    if any(store.terms or not store.replaces_all for store in kernel.stores):
        return []
    tile = point_space(kernel).tile
    if tile and tile.overlaps:
        return []
    read = _places(kernel, [value for value in kernel.values if isinstance(value, Load)])
    written = _places(kernel, list(kernel.stores))
    return [
        (input_, output)
        for output, target in written.items()
        for input_, source in read.items()
        if len(target) == 1 and source == target
    ]


_Place = tuple[int, Size, Strides]


def _places(kernel: PointwiseKernel, accesses: list[Load] | list[Store]) -> dict[int, set[_Place]]:
    """By operand: item size, offset and strides of each access; dimensions of size 1 left out."""
    places: dict[int, set[_Place]] = {}
    for access in accesses:
        moving = zip(access.strides, kernel.shape, strict=True)
        strides = tuple(stride for stride, size in moving if size != 1)
        place = (access.dtype.itemsize, access.offset, strides)
        places.setdefault(access.operand, set()).add(place)
    return places
