# SPDX-License-Identifier: Apache-2.0
"""Nodes that take elements of another tensor from where its own shape or an index says.

They are loads with address arithmetic in the kernels of their users: `flip` walks backwards,
`gather`, `index_select`, `embedding` and `x[index]` add an index times a stride. The rules, one per
operator, are in `selection_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch.fx import Node

from hostjit.kernels import DType
from hostjit.kernels.sizes import Size, at_most
from hostjit.lowering.pointwise import (
    PointwiseContext,
    check_tensor,
    dtype_of,
    takes,
)
from hostjit.lowering.registry import Registry
from hostjit.lowering.sizes import element_count, size_of

__all__ = [
    "CHECKED",
    "Pick",
    "Selection",
    "along",
    "index_strides",
    "selection_of",
    "selects_elements",
]

# The entry of `meta` of a node whose indices are known to be places.
CHECKED = "indices_are_checked"


# For each dimension of a node, that of an operand which it walks, or None.
Walk = tuple[int | None, ...]


@dataclass(frozen=True)
class Pick:
    """A dimension of the source whose place an index gives, with the error of a wrong one."""

    dim: int
    index: Node
    walk: Walk
    error: str
    wraps: bool = False


@dataclass(frozen=True)
class Selection:
    """Where the elements of a node come from.

    Dimensions of `source` are walked, from the end if they are `flipped`, or picked.
    """

    source: Node
    walk: Walk
    flipped: frozenset[int] = frozenset()
    picks: tuple[Pick, ...] = ()


Rule = Callable[[Node], Selection]
_rules: Registry[Rule] = Registry("selection rule")


def selects_elements(*overloads: str) -> Callable[[Rule], Rule]:
    """Register the decorated rule, which finds a node's selection, for operator overloads."""

    def register(rule: Rule) -> Rule:
        takes(*overloads)(_emit)
        return _rules(*overloads)(rule)

    return register


def selection_of(node: Node) -> Selection | None:
    """The selection of a fusable node; None for one that meets its operands in place."""
    rule = _rules.find(node.target)
    return rule(node) if rule else None


def index_strides(node: Node, operand: Node, strides: Sequence[Size]) -> tuple[Size, ...] | None:
    """Strides of an operand along the dimensions of a node that it is an index of, else None."""
    selection = selection_of(node)
    if selection is None:
        return None
    walk = next(pick.walk for pick in selection.picks if pick.index is operand)
    return along(walk, strides)


def along(walk: Walk, strides: Sequence[Size]) -> tuple[Size, ...]:
    """Strides of an operand along the dimensions of the node that walks it."""
    return tuple(0 if dim is None else strides[dim] for dim in walk)


def _emit(context: PointwiseContext) -> int:
    selection = selection_of(context.node)
    assert selection is not None
    check_tensor(selection.source)
    source = selection.source.meta["val"]
    context.require(source.dim() > 0, "there is nothing to choose from in one element")
    some = at_most(1, element_count(source)) or not selection.picks
    context.require(some, "eager decides what an index of an empty tensor is")
    terms = []
    for pick in selection.picks:
        context.require(dtype_of(pick.index) in (DType.I64, DType.I32), "masks pick by number")
        index = context.builder.cast(context.reader.read(pick.index), DType.I64)
        size = size_of(source.shape[pick.dim])
        if CHECKED in context.node.meta:
            place = context.builder.bounded(index, size, error="")
        else:
            place = context.builder.bounded(index, size, pick.error, wraps=pick.wraps)
        terms.append((place, pick.dim))
    return context.reader.select(selection, terms)
