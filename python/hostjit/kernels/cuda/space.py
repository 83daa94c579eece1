# SPDX-License-Identifier: Apache-2.0
"""The loops of a kernel as threads share them: rows, the elements of each, and vectors of those."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hostjit.kernels.expression import Index, Load, PointwiseKernel, Reduce, Store, operands_of
from hostjit.kernels.iteration import Strides, extent, simplify
from hostjit.kernels.row_space import row_space
from hostjit.kernels.sizes import Size, SymbolicSize, at_most

__all__ = ["ELEMENT", "ROW", "VECTOR", "Space", "make_space"]

Access = Load | Index | Store

# What a value varies with: the row (or nothing), the vector, or the element of a vector.
ROW, VECTOR, ELEMENT = range(3)

_MOST_32_BITS = (1 << 31) - 1


@dataclass(frozen=True)
class Space:
    """The dimensions of a kernel, those that tell rows apart first, and each access's strides.

    Without reductions all dimensions are of elements, as if there was one row. `columns` says that
    rows, not the elements of one, lie side by side. `width` elements in the last dimension make a
    vector, if at the call `multiples` are multiples of it and vectors may start at `starts`.
    """

    kernel: PointwiseKernel
    accesses: tuple[Access, ...]
    sizes: Strides
    strides: tuple[Strides, ...]
    num_kept: int
    columns: bool
    width: int
    multiples: tuple[Size, ...]
    starts: tuple[Load | Store, ...]

    @property
    def rows(self) -> Size:
        """The number of rows."""
        return math.prod(self.sizes[: self.num_kept])

    @property
    def elements(self) -> Size:
        """The number of elements of a row."""
        return math.prod(self.sizes[self.num_kept :])

    def strides_of(self, access: Access) -> Strides:
        """The strides of an access along the dimensions of this space."""
        return self.strides[next(n for n, other in enumerate(self.accesses) if other is access)]

    def level(self, access: Access) -> int:
        """What an access moves with, the terms of a load aside."""
        strides = self.strides_of(access)
        if strides[-1] != 0:
            return ELEMENT
        return VECTOR if any(step != 0 for step in strides[self.num_kept :]) else ROW

    def levels(self) -> list[int]:
        """For each value, what it varies with."""
        levels: list[int] = []
        for value in self.kernel.values:
            own = self.level(value) if isinstance(value, Load | Index) else ROW
            made_of = [] if isinstance(value, Reduce) else [levels[n] for n in operands_of(value)]
            levels.append(max((own, *made_of)))
        return levels

    def farthest(self, margin: int) -> list[Size]:
        """Numbers that must fit the type of indices, `margin` elements beyond the end included."""
        reached = [
            extent(self.kernel.shape, access.strides, access.offset)
            for access in self.accesses
            if not isinstance(access, Index)
        ]
        return [self.rows + margin, self.elements + margin, *reached]

    def fits_32_bits(self, margin: int) -> bool | None:
        """Whether indices fit 32 bits; None if the call decides."""
        numbers = self.farthest(margin)
        if any(isinstance(number, SymbolicSize) for number in numbers):
            return None
        return all(at_most(number, _MOST_32_BITS) for number in numbers)


def make_space(kernel: PointwiseKernel) -> Space:
    """Find the dimensions of a kernel and the widest vectors that its accesses allow."""
    if kernel.has_rows:
        rows = row_space(kernel)
        accesses: tuple[Access, ...] = rows.accesses
        reduced = rows.reduced or (1,)
        sizes = (*rows.kept, *reduced)
        pairs = zip(rows.kept_strides, rows.reduced_strides, strict=True)
        strides = [(*kept, *(inner or (0,))) for kept, inner in pairs]
        num_kept, columns = len(rows.kept), rows.tiled
    else:
        reads = [value for value in kernel.values if isinstance(value, Load | Index)]
        accesses = (*kernel.stores, *reads)
        sizes, strides = simplify(kernel.shape, [access.strides for access in accesses])
        if not sizes:
            sizes, strides = (1,), [(0,) for _ in accesses]
        num_kept, columns = 0, False
    space = Space(kernel, accesses, sizes, tuple(strides), num_kept, columns, 1, (), ())
    return space if columns else _with_vectors(space)


def _with_vectors(space: Space) -> Space:
    levels = space.levels()
    starts = [
        access
        for access, strides in zip(space.accesses, space.strides, strict=True)
        if not isinstance(access, Index) and strides[-1] == 1 and space.sizes[-1] != 1
        if isinstance(access, Store) or all(levels[n] < ELEMENT for n, _ in access.terms)
    ]
    if not starts:
        return space
    itemsizes = [access.dtype.itemsize for access in starts]
    width = min(16 // min(itemsizes), 32 // max(itemsizes))
    # The last points of all may be no vector, but each row must consist of vectors.
    is_line = len(space.sizes) == 1 and not space.kernel.has_rows
    numbers: list[Size] = [] if is_line else [space.sizes[-1]]
    for access in starts:
        numbers += [step for step in space.strides_of(access)[:-1] if step != 0]
        if isinstance(access, Load):
            numbers += [step for _, step in access.terms]
    while any(isinstance(number, int) and number % width for number in numbers):
        width //= 2
    if width == 1:
        return space
    open_numbers = [number for number in numbers if not _is_multiple(number, width)]
    return Space(
        space.kernel,
        space.accesses,
        space.sizes,
        space.strides,
        space.num_kept,
        space.columns,
        width,
        tuple(dict.fromkeys(open_numbers)),
        tuple(starts),
    )


def _is_multiple(size: Size, width: int) -> bool:
    if not isinstance(size, SymbolicSize):
        return size % width == 0
    return all(factor % width == 0 for _, factor in size.terms)
