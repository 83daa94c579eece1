# SPDX-License-Identifier: Apache-2.0
"""One iteration space for nodes of different shapes: mixed-radix digits of row-major positions.

A node of shape (4, 6) and its transpose, or its reshape to (2, 2, 6), visit the same points in
different order. A space is a list of sizes; each member has, per dimension of the space, the step
that this dimension makes in the member's own row-major position. Splitting a dimension never
changes what is visited, so shapes are brought together by splitting until their digits agree.

A member that is the same along a dimension, as the sum of a row is along the row, has step 0 there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hostjit.kernels.sizes import Size, at_most, magnitude, quotient

__all__ = ["IterationSpace", "Radix", "Steps", "row_major"]

Steps = tuple[Size, ...]


def row_major(shape: Sequence[Size]) -> Steps:
    """The strides of a contiguous tensor."""
    some = [1 if size == 0 else size for size in shape]
    return tuple(math.prod(some[dim + 1 :]) for dim in range(len(shape)))


@dataclass(frozen=True)
class Radix:
    """The digits of a position: dimension `d` counts `sizes[d]` steps of `steps[d]`.

    The steps of a one-to-one walk over all positions; dimensions of size 1 count nothing.
    """

    steps: Steps
    sizes: Steps

    @staticmethod
    def of_shape(shape: Sequence[Size]) -> Radix:
        return Radix(row_major(shape), tuple(shape))

    def boundaries(self) -> set[Size]:
        return {step for step, size in zip(self.steps, self.sizes, strict=True) if size != 1}

    def digit(self, step: Size, size: Size) -> tuple[int, Size] | None:
        """The dimension in which `size` steps of `step` stay, and the step within it."""
        for dim, (base, count) in enumerate(zip(self.steps, self.sizes, strict=True)):
            if count == 1:
                continue
            factor = quotient(step, base)
            if factor is not None and at_most(1, factor) and at_most(factor * size, count):
                return dim, factor
        return None

    def translate(self, steps: Steps, sizes: Steps, strides: Sequence[Size]) -> Steps | None:
        """The steps of a walk in another numbering, where dimension `d` has `strides[d]`.

        Arguments: the walk's steps in this radix and its sizes; the other numbering's strides.
        Returns: the steps in the other numbering; None if one crosses dimensions.
        Example: Radix.of_shape((4, 6)).translate((6, 1), (4, 6), (1, 4)) == (1, 4)
        """
        result: list[Size] = []
        for step, size in zip(steps, sizes, strict=True):
            if step == 0:
                result.append(0)
                continue
            digit = self.digit(step, size)
            if digit is None:
                return None
            dim, factor = digit
            result.append(strides[dim] * factor)
        return tuple(result)


@dataclass(frozen=True)
class IterationSpace:
    """The sizes of the dimensions, none of them 1, and each member's steps in them."""

    sizes: Steps
    steps: dict[Hashable, Steps]

    @staticmethod
    def of_shape(node: Hashable, shape: Sequence[Size]) -> IterationSpace:
        dims = [dim for dim, size in enumerate(shape) if size != 1]
        strides = row_major(shape)
        return IterationSpace(
            tuple(shape[dim] for dim in dims), {node: tuple(strides[dim] for dim in dims)}
        )

    def with_member(self, node: Hashable, steps: Steps) -> IterationSpace:
        return IterationSpace(self.sizes, {**self.steps, node: steps})

    def refined(self, node: Hashable, radix: Radix) -> IterationSpace | None:
        """Split dimensions until each of the member's steps is a digit of `radix`."""
        boundaries = sorted(radix.boundaries(), key=magnitude)
        pieces: list[list[Size]] = []
        for size, step in zip(self.sizes, self.steps[node], strict=True):
            if step == 0:
                pieces.append([size])
                continue
            inner = [b for b in boundaries if not _is_outside(b, step, step * size)]
            factors = [quotient(high, low) for low, high in pairwise([step, *inner, step * size])]
            whole = [factor for factor in factors if factor is not None]
            if len(whole) < len(factors):
                return None
            pieces.append(whole[::-1])
        sizes = tuple(size for factors in pieces for size in factors)
        return IterationSpace(
            sizes, {member: _split(steps, pieces) for member, steps in self.steps.items()}
        )

    def still(self, node: Hashable) -> frozenset[int]:
        """The dimensions along which a member stays the same."""
        return frozenset(dim for dim, step in enumerate(self.steps[node]) if step == 0)

    def merged(self, other: IterationSpace, node: Hashable) -> IterationSpace | None:
        """The space of both, whose members are aligned at `node`, a member of both."""
        left = self.refined(node, Radix(other.steps[node], other.sizes))
        right = other.refined(node, Radix(self.steps[node], self.sizes))
        if left is None or right is None:
            return None
        here = list(zip(left.steps[node], left.sizes, strict=True))
        there = list(zip(right.steps[node], right.sizes, strict=True))
        if Counter(here) != Counter(there):
            return None
        # Equal digits, which are those without a step, are paired in order.
        order = [
            [place for place, digit in enumerate(there) if digit == mine][here[:number].count(mine)]
            for number, mine in enumerate(here)
        ]
        moved = {
            member: tuple(steps[position] for position in order)
            for member, steps in right.steps.items()
        }
        return IterationSpace(left.sizes, {**moved, **left.steps})


def _is_outside(boundary: Size, low: Size, high: Size) -> bool:
    """Whether a boundary is known not to lie between two others."""
    return (
        at_most(boundary, low)
        or at_most(high, boundary)
        or quotient(low, boundary) is not None
        or quotient(boundary, high) is not None
    )


def _split(steps: Steps, pieces: list[list[Size]]) -> Steps:
    result: list[Size] = []
    for step, factors in zip(steps, pieces, strict=True):
        result += [step * math.prod(factors[position + 1 :]) for position in range(len(factors))]
    return tuple(result)
