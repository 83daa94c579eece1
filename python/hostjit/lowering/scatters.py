# SPDX-License-Identifier: Apache-2.0
"""Parts of inputs that a graph writes: in place, instead of in a copy of the whole.

A functional graph has `x[n] = y` of an input as a new tensor, equal to `x` but for a part, which is
copied back at the end. That is read here as what eager does with a clone: a copy to a view of it.
The clone is left out where nobody looks at the input in between, and the rest is put back.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from hostjit.capturing.functional.hidden_writes import HIDDEN
from hostjit.launching.launch_operator import LAUNCH
from hostjit.lowering.members import is_fusable
from hostjit.lowering.places import Behind, check_selection, may_select_nothing
from hostjit.lowering.pointwise import named_arguments
from hostjit.lowering.put_rules import write_to_places
from hostjit.lowering.puts import Put
from hostjit.lowering.registry import lowers
from hostjit.lowering.sizes import symbolic_views
from hostjit.lowering.views import viewed

__all__ = [
    "copies_to_state",
    "expand_scatters",
    "fold_scatters",
    "is_partly_written",
    "may_be_of_input",
    "never_fails",
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
    aten.diagonal_scatter.default: aten.diagonal.default,
}

_PIECES = {aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int}

# The entry of `meta` of a copy to what a loop carries.
_STATE = "of_state"

# Operators without a lowering rule that compute with whatever is in their tensors.
_NEVER_FAIL = frozenset(
    {
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten.convolution.default,
        aten.dot.default,
        aten.mv.default,
    }
)


def copies_to_state(back: Node) -> None:
    """Mark a copy to an input as one to what a loop carries: nobody sees that if a pass fails."""
    back.meta[_STATE] = True


def is_partly_written(given: Node, result: Node) -> bool:
    """Tell whether a result is an input but for parts that are written."""
    return result is not given and bool(_scatters_between(given, result))


def written_parts(graph: Graph) -> set[Node]:
    """Return the scatters that inputs are written by, behind which nothing may fail.

    A call that fails before it has written anything is run again, by eager.
    """
    return {scatter for chain, _ in _chains(graph) for scatter in chain}


def _chains(graph: Graph) -> list[tuple[list[Node], Behind]]:
    """The scatters of each input that may be written in place, and what stands behind the first."""
    found = []
    backs = graph.find_nodes(op="call_function", target=aten.copy_.default)
    chains = [
        (chain, _STATE in back.meta)
        for back in backs
        if HIDDEN not in back.meta and (chain := _chain(back))
    ]
    if not chains:
        return []
    scatters = {node for node in graph.nodes if node.target in _VIEWS or Put.of(node) is not None}
    for chain, is_state in chains:
        first = min(chain)
        behind = Behind(first, () if is_state else dict.fromkeys(_from(first)), scatters)
        if not any(_may_fail(node, behind) for node in behind.nodes):
            found.append((chain, behind))
    return found


def puts(graph: Graph) -> list[Node]:
    """Return the scatters at places that tensors tell, and that replace what is there."""
    found = ((node, Put.of(node)) for node in graph.nodes if node.op == "call_function")
    return [node for node, put in found if put is not None and not put.combine]


def expand_scatters(graph: Graph) -> None:
    """Put a clone, and a write to a view of it, in the place of each.

    All those at places that tensors tell, of which fewer copies do no harm; parts of inputs.
    """
    views = symbolic_views(graph)
    chains = _chains(graph)
    if chains:
        _take_pieces_alone(graph)
    for _, behind in chains:
        _check_ahead(behind)
    of_inputs = {scatter for chain, _ in chains for scatter in chain}
    for scatter in dict.fromkeys((*puts(graph), *of_inputs)):
        base = scatter.args[0]
        with graph.inserting_before(scatter):
            clone = graph.call_function(aten.clone.default, (base,))
        clone.meta.update(scatter.meta)
        clone.meta[_SCATTER] = scatter in of_inputs
        if scatter.target in _VIEWS:
            _write_part(scatter, clone, views)
        else:
            put = Put.of(scatter)
            assert put is not None
            write_to_places(clone, put, scatter)
        scatter.replace_all_uses_with(clone)
        graph.erase_node(scatter)


def _take_pieces_alone(graph: Graph) -> None:
    """Make pieces of tensors views of their own: a node that has all of them is no tensor."""
    for pieces in [node for node in graph.nodes if node.target in _PIECES]:
        arguments = named_arguments(pieces)
        base, values = arguments["self"], pieces.meta["val"]
        dim = arguments["dim"] % base.meta["val"].dim()
        is_split = pieces.target is not aten.unbind.int
        widths = [value.shape[dim] for value in values] if is_split else []
        if any(type(width) is not int for width in widths):
            continue
        for piece in list(pieces.users):
            place: Any = piece.args[1] if piece.target is operator.getitem else None
            if type(place) is not int:
                continue
            place %= len(values)
            if is_split:
                start = sum(widths[:place])
                piece.target = aten.slice.Tensor
                piece.args = (base, dim, start, start + widths[place])
            else:
                piece.target, piece.args = aten.select.int, (base, dim, place)
        if not pieces.users:
            graph.erase_node(pieces)


def _check_ahead(behind: Behind) -> None:
    """Have all indices checked before the first of the scatters that an input is written by."""
    for node in list(behind.nodes):
        put = Put.of(node)
        if put is not None:
            for pick in put.picks:
                behind.move_ahead(pick.index)
        elif is_fusable(node):
            check_selection(node, behind)


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
    """The scatters between an input and what is copied back to it, those of its parts included."""
    target, source = back.args[:2]
    if not (isinstance(target, Node) and target.op == "placeholder"):
        return []
    return _scatters_between(target, source) or []


def _scatters_between(target: Node, node: Any) -> list[Node] | None:
    """The scatters that make a node of the target, or of views of it; None if others do, too."""
    chain: list[Node] = []
    while isinstance(node, Node) and node is not target:
        if node.target in _VIEWS:
            chain += [node, *(_scatters_between(target, node.args[1]) or ())]
        elif Put.of(node) is not None:
            chain.append(node)
        elif viewed(node) is None:
            return None
        node = node.args[0]
    return chain if node is target else None


def _from(node: Node) -> Iterator[Node]:
    while node.op != "output":
        yield node
        node = node.next


def _may_fail(node: Node, behind: Behind) -> bool:
    """Whether a node may fail for what is in tensors; errs to yes.

    Indices are checked ahead of all that stands behind where that can be.
    """
    if never_fails(node):
        return False
    put = Put.of(node)
    if put is not None:
        return not all(behind.may_be_ahead(pick.index) for pick in put.picks)
    return not is_fusable(node) or may_select_nothing(node, behind)


def never_fails(node: Node) -> bool:
    """Whether a node that stands for itself fails for nothing that is in tensors; errs to no."""
    if node.target is operator.getitem or node.target in _VIEWS or node.target in _NEVER_FAIL:
        return True
    if named_arguments(node).get("check_errors"):
        return False  # rules leave it to ATen
    return lowers.find(node.target) is not None and node.target is not LAUNCH
