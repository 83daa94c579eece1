# SPDX-License-Identifier: Apache-2.0
"""Parts of inputs that a graph writes: in place, instead of in a copy of the whole.

A functional graph has `x[n] = y` of an input as a new tensor, equal to `x` but for a part, which is
copied back at the end. That is read here as what eager does with a clone: a copy to a view of it.
The clone is left out where nobody looks at the input in between, and the rest is put back.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from hostjit.capturing.functional.hidden_writes import HIDDEN
from hostjit.launching.launch_operator import LAUNCH
from hostjit.lowering.members import is_fusable
from hostjit.lowering.put_rules import PUT, Put
from hostjit.lowering.registry import lowers
from hostjit.lowering.selection import selection_of
from hostjit.lowering.sizes import symbolic_views

__all__ = [
    "expand_scatters",
    "fold_scatters",
    "may_be_of_input",
    "puts",
    "stands_for_scatter",
    "written_parts",
]

aten = torch.ops.aten

# The entry of `meta` of a clone that stands for a scatter: whether it may be an input itself. Of
# the view that is written: what to make of it again.
_SCATTER = "scatter"
_VIEWS: dict[Any, torch._ops.OpOverload] = {
    aten.select_scatter.default: aten.select.int,
    aten.slice_scatter.default: aten.slice.Tensor,
}

# Operators without a lowering rule that compute with whatever is in their tensors.
_NEVER_FAIL = frozenset(
    {
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten.convolution.default,
        aten.dot.default,
        aten.mv.default,
    }
)


def written_parts(graph: Graph) -> set[Node]:
    """Return the scatters that inputs are written by, behind which nothing may fail.

    A call that fails before it has written anything is run again, by eager.
    """
    found: set[Node] = set()
    for back in graph.find_nodes(op="call_function", target=aten.copy_.default):
        chain = _chain(back)
        if HIDDEN not in back.meta and chain:
            later = dict.fromkeys(_after(chain[-1]))
            if not any(_may_fail(node, later) for node in later):
                found.update(chain)
    return found


def puts(graph: Graph) -> list[Node]:
    """Return the scatters at places that tensors tell."""
    targets = (aten.index_put.default, aten.index_copy.default)
    found = [node for t in targets for node in graph.find_nodes(op="call_function", target=t)]
    return [node for node in sorted(found) if Put.of(node) is not None]


def expand_scatters(graph: Graph) -> None:
    """Put a clone, and a write to a view of it, in the place of each.

    All those at places that tensors tell, of which fewer copies do no harm; parts of inputs.
    """
    views = symbolic_views(graph)
    of_inputs = written_parts(graph)
    for scatter in dict.fromkeys((*puts(graph), *of_inputs)):
        base = scatter.args[0]
        with graph.inserting_before(scatter):
            clone = graph.call_function(aten.clone.default, (base,))
        clone.meta.update(scatter.meta)
        clone.meta[_SCATTER] = scatter in of_inputs
        if scatter.target in _VIEWS:
            _write_part(scatter, clone, views)
        else:
            _put(scatter, clone)
        scatter.replace_all_uses_with(clone)
        graph.erase_node(scatter)


def _write_part(scatter: Node, clone: Node, views: Any) -> None:
    source, *place = scatter.args[1:]
    make: Any = _VIEWS[scatter.target]
    with scatter.graph.inserting_before(scatter):
        part = scatter.graph.call_function(make, (clone,))
        write = scatter.graph.call_function(aten.copy_.default, (part, source))
    part.args, part.kwargs = (clone, *place), scatter.kwargs  # numbers are for made nodes
    with views():
        value = make(scatter.meta["val"], *place, **scatter.kwargs)
    for node in (part, write):
        node.meta.update(scatter.meta)
        node.meta["val"] = value
    part.meta[_SCATTER] = scatter.target


def _put(scatter: Node, clone: Node) -> None:
    put = Put.of(scatter)
    assert put is not None
    arguments = (clone, put.source, put.checked_places(), list(put.indices))
    with scatter.graph.inserting_before(scatter):
        write = scatter.graph.call_function(PUT, arguments)
    write.meta.update(scatter.meta)


def stands_for_scatter(clone: Node) -> bool:
    """Whether `expand_scatters` made a clone."""
    return _SCATTER in clone.meta


def may_be_of_input(clone: Node) -> bool:
    """Whether a clone that stands for a scatter may be left out if it is of an input."""
    return bool(clone.meta[_SCATTER])


def fold_scatters(graph: Graph) -> None:
    """Make the clones that are left scatters again, but for those at places that tensors tell."""
    for clone in graph.find_nodes(op="call_function", target=aten.clone.default):
        part = clone.next
        if stands_for_scatter(clone) and _SCATTER in part.meta:
            write = part.next
            clone.target = part.meta[_SCATTER]
            clone.args = (clone.args[0], write.args[1], *part.args[1:])
            clone.kwargs = part.kwargs
            graph.erase_node(write)
            graph.erase_node(part)


def _chain(back: Node) -> list[Node]:
    """The scatters between an input and what is copied back to it, from the last on."""
    target, node = back.args[:2]
    chain: list[Node] = []
    while isinstance(node, Node) and (node.target in _VIEWS or Put.of(node) is not None):
        chain.append(node)
        node = node.args[0]
    is_input = isinstance(target, Node) and target.op == "placeholder"
    return chain if is_input and node is target else []


def _after(node: Node) -> Iterator[Node]:
    while (node := node.next).op != "output":
        yield node


def _may_fail(node: Node, later: Collection[Node]) -> bool:
    """Whether a node among the later ones may fail for what is in tensors; errs to yes."""
    if node.target is operator.getitem or node.target in _NEVER_FAIL:
        return False
    if lowers.find(node.target) is not None:
        return node.target is LAUNCH
    put = Put.of(node)
    if put is not None:  # an index is checked where it is made
        return any(index in later for index in put.indices.values())
    if not is_fusable(node):
        return True
    selection = selection_of(node)
    return selection is not None and bool(selection.picks)
