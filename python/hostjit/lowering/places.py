# SPDX-License-Identifier: Apache-2.0
"""Indices that are checked ahead: as places, with which reads and writes cannot fail.

Behind what fails nothing may have been written.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Collection

import torch
from torch.fx import Node

from hostjit.kernels import DType
from hostjit.lowering.pointwise import PointwiseContext, pointwise
from hostjit.lowering.selection import CHECKED, selection_of
from hostjit.lowering.sizes import size_of

__all__ = [
    "Behind",
    "check_selection",
    "checked_places",
    "index_checked_by",
    "may_select_nothing",
]

aten = torch.ops.aten

_library = torch.library.Library("hostjit", "FRAGMENT")
_library.define("places(Tensor index, SymInt size, str error, bool wraps) -> Tensor")
_PLACES = torch.ops.hostjit.places.default


@pointwise("hostjit.places.default")
def places(context: PointwiseContext) -> int:
    """Indices as places, counted from the front."""
    index = context.value(context.operand("index"), DType.I64)
    size, error = size_of(context.argument("size")), context.argument("error")
    return context.builder.bounded(index, size, error, wraps=context.argument("wraps"))


def checked_places(index: Node, size: int, error: str, wraps: bool) -> Node:
    """Return what gives an index as places, and fails where it is none: right behind it."""
    arguments = (index, size, error, wraps)  # by position: equal ones are made once
    for user in index.users:
        if user.target is _PLACES and user.args == arguments:
            return user
    behind = index
    while behind.next.op == "placeholder":
        behind = behind.next
    with index.graph.inserting_after(behind):
        found = index.graph.call_function(_PLACES, arguments)
    found.meta.update(index.meta)
    value = index.meta["val"]
    found.meta["val"] = value.new_empty(value.shape, dtype=torch.int64)
    return found


def index_checked_by(node: Node) -> list[Node]:
    """The index that a node checks, if it does so."""
    index = node.args[0] if node.target is _PLACES else None
    return [index] if isinstance(index, Node) else []


@dataclasses.dataclass(frozen=True)
class Behind:
    """What stands behind the first of the scatters that write an input, itself included.

    Attributes:
        first: that scatter.
        nodes: all from there on.
        scatters: those of the graph, which stay where they are.
    """

    first: Node
    nodes: Collection[Node]
    scatters: Collection[Node]

    def may_be_ahead(self, index: Node) -> bool:
        """Whether an index can be computed ahead: nothing is written to make it."""
        return all(_is_pure(node) and node not in self.scatters for node in self._leading(index))

    def move_ahead(self, index: Node) -> None:
        """Move what leads to an index ahead, if it is not there yet."""
        for node in sorted(self._leading(index)):
            if self.first < node:
                self.first.prepend(node)

    def _leading(self, index: Node) -> set[Node]:
        found: set[Node] = set()
        pending = [index]
        while pending:
            node = pending.pop()
            if node in self.nodes and node not in found:
                found.add(node)
                pending += node.all_input_nodes
        return found


def _is_pure(node: Node) -> bool:
    target = node.target
    if target is operator.getitem:
        return True
    return (
        isinstance(target, torch._ops.OpOverload)
        and not target._schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in target.tags
    )


def may_select_nothing(node: Node, behind: Behind) -> bool:
    """Whether a fusable node may meet an index that is none, which cannot be checked ahead."""
    selection = selection_of(node)
    return selection is not None and not all(
        pick.index.meta["val"].device.type == "cpu"
        and pick.index is not selection.source
        and behind.may_be_ahead(pick.index)
        for pick in selection.picks
    )


def check_selection(node: Node, behind: Behind) -> None:
    """Have the indices of a node that selects elements checked ahead."""
    selection = selection_of(node)
    if selection is None or not selection.picks:
        return
    found: dict[int, Node] = {}
    for pick in selection.picks:
        behind.move_ahead(pick.index)
        size = selection.source.meta["val"].shape[pick.dim]
        found[pick.dim] = checked_places(pick.index, size, pick.error, pick.wraps)
    if node.target is aten.index.Tensor:
        given: list[Node | None] = list(node.args[1])  # type: ignore[arg-type]
        node.update_arg(1, [found.get(dim, index) for dim, index in enumerate(given)])
    else:
        (pick,) = selection.picks
        node.replace_input_with(pick.index, found[pick.dim])
    node.meta[CHECKED] = True
