# SPDX-License-Identifier: Apache-2.0
"""From a captured functional ATen graph to a Host IR program of Inductor's kernels."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from hostjit import _C
from hostjit.capturing.numbers.graph_sizes import with_sizes_in_place
from hostjit.inductor.lines import LineLowering
from hostjit.inductor.schedule import UnsupportedLineError, schedule
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.copies import copy_values
from hostjit.lowering.devices import kernel_devices
from hostjit.lowering.lower import identifier, results_of
from hostjit.lowering.sizes import symbolic_views
from hostjit.lowering.types import is_plain
from hostjit.lowering.views import Views

__all__ = ["lower"]


def lower(graph: Graph, name: str) -> _C.Program:
    """Lower a captured functional ATen graph to Host IR by way of Inductor's schedule.

    Where Inductor decides by an open size, its decision is a guard of the graph's environment.

    Args:
        graph: as for `hostjit.lowering.lower.lower`.
        name: of what was captured, for the program's name.

    Raises UnsupportedLineError that names what has no form in Host IR, and what Inductor raises.
    """
    placed = with_sizes_in_place(graph)
    results = [result for result in results_of(placed) if isinstance(result, Node)]
    views = Views(symbolic_views(placed))
    # A result that shares memory is a view of what it shares; Inductor may copy instead.
    roots = {result: _root(views, result) for result in results}
    made = list(dict.fromkeys(root for root in roots.values() if root.op != "placeholder"))
    for root in made:
        if not is_plain(root):
            raise UnsupportedLineError(f"a result is a view of {root.target}")
    originals = {node.name: node for node in graph.nodes}
    scheduled = schedule(graph, [originals[root.name] for root in made])

    context = LoweringContext(identifier(name), kernel_devices(placed))
    inputs = [node for node in placed.nodes if node.op == "placeholder"]
    context.add_inputs(inputs)
    lines = LineLowering(context, scheduled)
    lines.bind_inputs([context.value(node) for node in inputs])
    lines.lower()
    for root, value in zip(made, lines.results(), strict=True):
        context.bind(root, _laid_out(context, root, value))
    for result, root in roots.items():
        if result is not root:
            context.view(result, root)
    context.program.set_outputs([context.result(result) for result in results_of(placed)])
    lines.add_kernels()
    return context.program


def _root(views: Views, node: Node) -> Node:
    """The node whose memory a node is a view of; a written input is that input."""
    root = views.root(node)
    if root.target is not torch.ops.aten.copy_.default:
        return root
    written = root.args[0]
    assert isinstance(written, Node)
    return _root(views, written)


def _laid_out(context: LoweringContext, node: Node, value: _C.Value) -> _C.Value:
    """A value with the sizes and strides of a node: itself, or a copy."""
    type_ = context.indices.type_of(node.meta["val"])
    if type_ == value.type:
        return value
    laid_out = context.new_buffer(node.meta["val"])
    copy_values(context, value, laid_out)
    return laid_out
