# SPDX-License-Identifier: Apache-2.0
"""The nodes that kernels are made of, and their places in an iteration space.

A pointwise node visits the points of its result. A reduction visits those of its operand; its
results, where there are several, are members of their own: the nodes that select them.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable
from dataclasses import dataclass

from torch.fx import Node

from hostjit.lowering import pointwise
from hostjit.lowering.iteration_space import IterationSpace, Radix
from hostjit.lowering.reductions import is_reducible, points_shape, rows_of, rule_of

__all__ = [
    "Points",
    "RowsOf",
    "is_fusable",
    "is_reduction",
    "place",
    "place_result",
    "points",
    "selects",
]


@dataclass(frozen=True)
class Points:
    """The points that a reduction visits, as a member of a space."""

    node: Node


@dataclass(frozen=True)
class RowsOf:
    """The rows that a reduction makes of its points, as a member of a space."""

    node: Node


def points(node: Node) -> Hashable:
    """The member of a space that stands for the points that a node visits."""
    return Points(node) if rule_of(node) else node


def is_reduction(node: Node) -> bool:
    """Whether a node with a rule makes rows of its points."""
    return rule_of(node) is not None and rows_of(node) is not None


def is_fusable(node: Node) -> bool:
    """Whether a node can be part of a kernel."""
    if selects(node):
        return False
    return is_reducible(node) if rule_of(node) else pointwise.is_fusable(node)


def selects(node: Node) -> Node | None:
    """The node with several results of which `node` is one."""
    source = node.args[0] if node.target is operator.getitem else None
    return source if isinstance(source, Node) and rule_of(source) else None


def place(space: IterationSpace, node: Node) -> IterationSpace | None:
    """Complete a space that has the points of `node`, by its rows and results.

    Dimensions are split until each of them lies in one dimension of the node, and in its rows or
    across them. None if that can't be.
    """
    shape = points_shape(node)
    refined = space.refined(points(node), Radix.of_shape(shape))
    rule = rule_of(node)
    if refined is None or rule is None:
        return refined
    rows = rows_of(node)
    if rows is not None:
        radix = Radix.of_shape(rows.shape)
        refined = refined.refined(Points(node), radix)
        if refined is None:
            return None
        steps = radix.translate(refined.steps[Points(node)], refined.sizes, rows.row_strides)
        if steps is None:
            return None
        refined = refined.with_member(RowsOf(node), steps)
    if len(rule.results) > 1 or isinstance(node.meta["val"], tuple | list):
        return refined
    return place_result(refined, node, node, 0)


def place_result(space: IterationSpace, result: Node, node: Node, index: int) -> IterationSpace:
    """Add one result of a reduction, which is in place already."""
    rule = rule_of(node)
    assert rule is not None
    member = RowsOf(node) if rule.results[index] == "row" else Points(node)
    return space.with_member(result, space.steps[member])
