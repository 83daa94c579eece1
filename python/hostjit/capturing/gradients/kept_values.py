# SPDX-License-Identifier: Apache-2.0
"""What a forward graph keeps of inputs that the call writes."""

from __future__ import annotations

from typing import Any

import torch
from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput

from hostjit.capturing.traced_graph import storage_of

__all__ = ["keep_what_was", "with_own_memory"]

aten = torch.ops.aten


def keep_what_was(forward: torch.fx.GraphModule, result_count: int) -> None:
    """Let a forward graph keep copies of what it keeps of an input that the call writes.

    AOTAutograd keeps the input itself, or a view of it: the backward pass would then read what was
    written, or fail where autograd saw the write.

    Args:
        forward: of AOTAutograd's partitioner; changed in place.
        result_count: how many results are not there for the backward pass.
    """
    graph = forward.graph
    written = {storage_of(node.meta["val"]) for node in _written_inputs(graph)}
    if not written:
        return
    output = graph.output_node()
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    last = graph.find_nodes(op="placeholder")[-1]
    for position, node in enumerate(results[result_count:], result_count):
        value = node.meta["val"]
        if isinstance(value, torch.Tensor) and storage_of(value) in written:
            with graph.inserting_after(last if node.op == "placeholder" else node):
                results[position] = with_own_memory(node)
    output.args = (tuple(results),)
    forward.recompile()


def with_own_memory(node: torch.fx.Node) -> torch.fx.Node:
    """Return a node that copies another, at the place where its graph inserts."""
    copy = node.graph.call_function(aten.clone.default, (node,))
    copy.meta.update(node.meta)
    with node.meta["val"].fake_mode:
        copy.meta["val"] = aten.clone.default(node.meta["val"])
    return copy


def _written_inputs(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """Return the placeholders that the graph writes, or whose new values it returns."""
    placeholders = graph.find_nodes(op="placeholder")
    by_input = {node.meta.get("desc"): node for node in placeholders}
    copied: list[Any] = [
        node.args[0] for node in graph.find_nodes(op="call_function", target=aten.copy_.default)
    ]
    returned = [
        by_input[result.mutated_input]
        for result in graph.output_node().meta.get("desc", ())
        if isinstance(result, InputMutationAOTOutput)
    ]
    return [node for node in (*copied, *returned) if node in placeholders]
