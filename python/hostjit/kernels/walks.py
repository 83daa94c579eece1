# SPDX-License-Identifier: Apache-2.0
"""How everything that a kernel with reductions reaches moves along its loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit.kernels.expression import Index, Load, PointwiseKernel, Store
from hostjit.kernels.row_tiles import RowTiles
from hostjit.kernels.size_values import SizeValues
from hostjit.kernels.sizes import Size

__all__ = ["Cursors", "Walk", "Walks"]

_INDEX = ir.IntType(64)

# For each walk, the pointer (or number) at the current point of the loops entered so far.
Cursors = list[Any]


@dataclass(frozen=True)
class Walk:
    """How something is reached: its cursor's start, and its steps along the loops.

    `element` is its type in memory, or None for a number.
    """

    base: Any
    kept: tuple[Size, ...]
    reduced: tuple[Size, ...]
    lane: Size
    element: Any


class Walks:
    """The walks of all accesses of a space, in its order, and of what is added."""

    def __init__(
        self,
        kernel: PointwiseKernel,
        function: Any,
        builder: Any,
        sizes: SizeValues,
        space: RowTiles,
    ) -> None:
        self._kernel = kernel
        self._function = function
        self._builder = builder
        self._sizes = sizes
        steps = zip(space.kept_strides, space.reduced_strides, space.lane_strides, strict=True)
        self._walks = [
            Walk(self._base(access), *strides, self._element(access))
            for access, strides in zip(space.accesses, steps, strict=True)
        ]

    def __iter__(self) -> Iterator[Walk]:
        return iter(self._walks)

    def add(self, walk: Walk) -> int:
        """Add one; the position of its cursor."""
        self._walks.append(walk)
        return len(self._walks) - 1

    def bases(self) -> Cursors:
        """The cursors outside of all loops."""
        return [walk.base for walk in self._walks]

    def step(self, cursors: Cursors, count: Any, strides: Sequence[Size]) -> Cursors:
        """The cursors moved by `count` times their strides."""
        return [
            self._moved(cursor, walk.element, count, stride)
            for walk, cursor, stride in zip(self._walks, cursors, strides, strict=True)
        ]

    def _base(self, access: Load | Index | Store) -> Any:
        if isinstance(access, Index):
            return self._sizes.value(access.offset)
        first = len(self._kernel.inputs) if isinstance(access, Store) else 0
        base = self._function.args[first + access.operand]
        return self._moved(base, self._element(access), ir.Constant(_INDEX, 1), access.offset)

    def _element(self, access: Load | Index | Store) -> Any:
        return None if isinstance(access, Index) else access.dtype.memory_type()

    def _moved(self, cursor: Any, element: Any, count: Any, stride: Size) -> Any:
        if stride == 0 or (isinstance(count, ir.Constant) and count.constant == 0):
            return cursor
        if isinstance(count, ir.Constant):
            distance = self._sizes.value(stride * count.constant)
        elif stride == 1:
            distance = count
        else:
            distance = self._builder.mul(count, self._sizes.value(stride), flags=("nsw",))
        if element is None:
            return self._builder.add(cursor, distance, flags=("nsw",))
        return self._builder.gep(cursor, [distance], inbounds=True, source_etype=element)
