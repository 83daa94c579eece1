# SPDX-License-Identifier: Apache-2.0
"""The loops of a kernel with reductions, in numbers: which there are, and how accesses step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hostjit.kernels.expression import Index, Load, PointwiseKernel, Store
from hostjit.kernels.iteration import Strides, simplify, split_dimension
from hostjit.kernels.sizes import SymbolicSize

__all__ = ["RowSpace", "row_space"]

# Rows computed together: as many as walk memory in long pieces, while their accumulators stay in
# the first cache level.
_TILE = 256

Access = Load | Index | Store


@dataclass(frozen=True)
class RowSpace:
    """Loops over kept dimensions around loops over reduced ones, with each access's strides.

    `width` rows of the last kept dimension are computed together if that is more than one.
    """

    accesses: tuple[Access, ...]
    kept: Strides
    kept_strides: tuple[Strides, ...]
    reduced: Strides
    reduced_strides: tuple[Strides, ...]
    width: int

    @property
    def tiled(self) -> bool:
        """Whether several rows are computed together."""
        return self.width > 1

    @property
    def outer(self) -> Strides:
        """The sizes of the loops around one tile of rows, a smaller last tile included.

        Without that over tiles if their number is only known at the call.
        """
        if not self.tiled:
            return self.kept
        columns = self.kept[-1]
        if isinstance(columns, SymbolicSize):
            return self.kept[:-1]
        return (*self.kept[:-1], -(-columns // self.width))

    @property
    def split(self) -> int | None:
        """The outer loop along which threads may share the work; None without any."""
        return split_dimension(self.outer) if self.outer else None


def row_space(kernel: PointwiseKernel) -> RowSpace:
    """Find the loops of a kernel. The loads of elements decide their order."""
    reads = [value for value in kernel.values if isinstance(value, Load | Index)]
    reads.sort(key=lambda read: not kernel.moves_in_row(read.strides))
    accesses: tuple[Access, ...] = (*reads, *kernel.stores)
    rank = len(kernel.shape) - kernel.num_reduced
    strides = [access.strides for access in accesses]
    kept, kept_strides = simplify(kernel.shape[:rank], [s[:rank] for s in strides])
    reduced, reduced_strides = simplify(kernel.shape[rank:], [s[rank:] for s in strides])
    width = 1
    if kept and reduced:
        # Several at once if rows, not the elements of one, lie side by side.
        moving = [
            number
            for number, access in enumerate(accesses)
            if not isinstance(access, Index) and kernel.moves_in_row(access.strides)
        ]
        columns = _neighbours([kept_strides[number] for number in moving])
        elements = _neighbours([reduced_strides[number] for number in moving])
        rows = kept[-1]
        fitting = _TILE if isinstance(rows, SymbolicSize) else min(rows, _TILE)
        width = fitting if columns > elements else 1
    return RowSpace(accesses, kept, tuple(kept_strides), reduced, tuple(reduced_strides), width)


def _neighbours(strides: Sequence[Strides]) -> tuple[int, int]:
    """How well the last loop walks memory: accesses that go to the next place, less jumps."""
    steps = [step for *_, step in strides]
    return steps.count(1), -sum(step not in (0, 1) for step in steps)
