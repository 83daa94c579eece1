# SPDX-License-Identifier: Apache-2.0
"""Which outputs of a kernel may be the same memory as one of its inputs."""

from __future__ import annotations

from dataclasses import replace

from hostjit.kernels.expression import Bounded, Load, PointwiseKernel, Store
from hostjit.kernels.iteration import Strides
from hostjit.kernels.point_space import point_space
from hostjit.kernels.sizes import Size

__all__ = ["in_place_pairs", "is_read_before_it_is_written"]


def in_place_pairs(kernel: PointwiseKernel) -> list[tuple[int, int]]:
    """Pairs of an input and an output that may share all bytes.

    Those that every point reads and writes at the same place: the values of a point are computed
    before its stores, and no other point comes there. A kernel with rows has none, as it may read
    a row again after it has written to it; nor has one with indices, which it takes from anywhere
    and looks at again when one is wrong, nor one whose tiles overlap, which computes points again.

    Example: in_place_pairs(kernel) == [(0, 0)] for out[i] = tanh(in[i]) + row[i % 8]
    """
    if not _keeps_places_apart(kernel):
        return []
    read = _places(kernel, [value for value in kernel.values if isinstance(value, Load)])
    written = _places(kernel, list(kernel.stores))
    return [
        (input_, output)
        for output, target in written.items()
        for input_, source in read.items()
        if input_ < len(kernel.inputs) and len(target) == 1 and source == target
    ]


def is_read_before_it_is_written(
    kernel: PointwiseKernel, input_: int, output: int, distance: Size
) -> bool:
    """Whether an output may start at an element of an input, `distance` from its first one."""
    if not _keeps_places_apart(kernel):
        return False
    loads = [v for v in kernel.values if isinstance(v, Load) and v.operand == input_]
    from_there = [replace(load, offset=load.offset - distance) for load in loads]
    read = _places(kernel, from_there).get(input_, set())
    written = _places(kernel, list(kernel.stores))[output]
    return len(written) == 1 and read == written


def _keeps_places_apart(kernel: PointwiseKernel) -> bool:
    """Whether points read and write where the coordinates say, once each."""
    if kernel.has_rows or any(isinstance(value, Bounded) for value in kernel.values):
        return False
    if any(store.terms or not store.replaces_all for store in kernel.stores):
        return False
    tile = point_space(kernel).tile
    return not (tile and tile.overlaps)


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
