# SPDX-License-Identifier: Apache-2.0
"""Whether nodes can be computed point by point together: each meets what it reads in place."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from torch import Tensor
from torch.fx import Node

from hostjit.kernels.sizes import Size, at_most
from hostjit.lowering.iteration_space import IterationSpace, Radix, row_major
from hostjit.lowering.members import Points, RowsOf, is_reduction, place, points, selects
from hostjit.lowering.places import index_checked_by
from hostjit.lowering.reductions import broadcast, points_shape
from hostjit.lowering.selection import selection_of
from hostjit.lowering.sizes import shape_of
from hostjit.lowering.views import Views

__all__ = ["Alignment"]

# From here on, threads can share a row only in a kernel of one pass.
_LONG_ROW = 1 << 16


class Alignment:
    """Brings nodes into the space of a group.

    A member is per element, or the same along exactly the dimensions that the group reduces: per
    row. A node may read what is per row at each element of the row.
    """

    def __init__(self, views: Views) -> None:
        self.views = views

    def join(
        self, node: Node, members: Sequence[Node], space: IterationSpace, reduction: Node | None
    ) -> IterationSpace | None:
        """A group's space with `node` in it; None if it would not meet the members it reads.

        Arguments: the node; the group's members, its space and one of its reductions.
        """
        if not self._finds(node, members, reduction):
            return None
        inside = [
            operand for operand in node.all_input_nodes if self.views.root(operand) in members
        ]
        found: IterationSpace | None = space
        for operand in inside:
            found = self._along(node, operand, found)
        if found is None:
            return None
        if points(node) not in found.steps:
            twin = _twin(points_shape(node), members)
            if twin is None:
                return None
            found = found.with_member(points(node), found.steps[twin])
        found = place(found, node)
        if found is None or not all(self._meets(node, operand, found) for operand in inside):
            return None
        if not _levels_agree(found, reduction or node):
            return None
        roots = [self.views.root(operand) for operand in inside]
        return None if _waits_for_a_long_row(node, roots, found) else found

    def holds(self, members: Sequence[Node], space: IterationSpace, reduction: Node | None) -> bool:
        """Whether all members of two groups can be together in `space`."""
        if reduction is not None and not _levels_agree(space, reduction):
            return False
        if not all(self._finds(member, members, reduction) for member in members):
            return False
        return all(
            self._meets(member, operand, space)
            for member in members
            if not selects(member)
            for operand in member.all_input_nodes
            if self.views.root(operand) in members
        )

    def _finds(self, node: Node, members: Sequence[Node], reduction: Node | None) -> bool:
        """Whether the tensor that a node takes elements of will be in memory.

        Its indices too if there are reductions: who finds the wrong ones has no rows.
        """
        selection = selection_of(node)
        taken = [selection.source] if selection else []
        if reduction:
            taken += (
                [pick.index for pick in selection.picks] if selection else index_checked_by(node)
            )
        return not any(self.views.root(operand) in members for operand in taken)

    def _along(
        self, node: Node, operand: Node, space: IterationSpace | None
    ) -> IterationSpace | None:
        """Place a node by the member that one of its operands is, or is a reordering of.

        Operands that are broadcast leave the space as it is.
        """
        access = self.views.one_to_one(operand)
        if space is None or access is None:
            return space
        if math.prod(access.shape) != math.prod(points_shape(node)):
            return space
        radix = Radix(access.strides, access.shape)
        space = space.refined(access.root, radix)
        if space is None:
            return None
        target = row_major(access.shape)
        steps = radix.translate(space.steps[access.root], space.sizes, target)
        member = points(node)
        if steps is None or space.steps.get(member, steps) != steps:
            return None
        return space.with_member(member, steps)

    def _meets(self, node: Node, operand: Node, space: IterationSpace) -> bool:
        """Whether at each point of a node, its operand is the member's value at that point."""
        access = self.views.dense(operand)
        if access is None or access.offset != 0:
            return False
        radix = Radix.of_shape(points_shape(node))
        strides = broadcast(node, operand, access.strides)
        steps = radix.translate(space.steps[points(node)], space.sizes, strides)
        return steps == space.steps[access.root]


def _twin(shape: tuple[Size, ...], members: Sequence[Node]) -> Hashable | None:
    """What among the members visits points of the same shape, or is of that shape."""
    for member in members:
        if points_shape(member) == shape:
            return points(member)
        value = member.meta["val"]
        if isinstance(value, Tensor) and shape_of(value) == shape:
            return member
    return None


def _levels_agree(space: IterationSpace, reduction: Node) -> bool:
    """Whether each member is per element or per row of `reduction`, and all rows are the same."""
    if RowsOf(reduction) not in space.steps:
        return all(0 not in steps for steps in space.steps.values())
    reduced = space.still(RowsOf(reduction))
    for member in space.steps:
        still = space.still(member)
        if isinstance(member, RowsOf) and still != reduced:
            return False
        visits = isinstance(member, Points) and is_reduction(member.node)
        if still and (visits or still != reduced):
            return False
    return True


def _waits_for_a_long_row(node: Node, operands: Sequence[Node], space: IterationSpace) -> bool:
    """Whether a node takes a result of the only row, which is long, back to its elements.

    Nothing is gained by one kernel there: the elements have left the caches when the row is done.
    """
    if not at_most(_LONG_ROW, math.prod(space.sizes)) or space.still(points(node)):
        return False
    return any(len(space.still(operand)) == len(space.sizes) for operand in operands)
