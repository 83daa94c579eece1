# SPDX-License-Identifier: Apache-2.0
"""Drops from a captured graph what its result does not need."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from hostjit.capturing.dynamic_dims import is_symbolic
from hostjit.capturing.program import ArgumentLeaf, BoundTensor, InputBinding
from hostjit.capturing.results.outputs import (
    ArgumentOutput,
    BoundOutput,
    GraphOutput,
    Output,
    map_outputs,
)

__all__ = ["NeededGraph", "drop_unused"]


@dataclasses.dataclass(frozen=True)
class NeededGraph:
    """What is left of a graph's surroundings once it computes only what its result needs.

    Attributes:
        inputs: one binding per placeholder that is left.
        positions: where each of them was before.
        mutated: positions in `inputs` that the graph writes.
        output_spec: over the outputs that are left; an argument that is returned is none of them.
    """

    inputs: tuple[InputBinding, ...]
    positions: tuple[int, ...]
    mutated: tuple[int, ...]
    output_spec: Output


def drop_unused(
    graph_module: torch.fx.GraphModule,
    inputs: Sequence[InputBinding],
    mutated: Sequence[int],
    output_spec: Output,
) -> NeededGraph:
    """Drop placeholders without users and outputs that `output_spec` does not name, in place.

    Args:
        graph_module: changed; its output stays a flat tuple.
        inputs: one binding per placeholder.
        mutated: positions in `inputs` that the graph writes.
        output_spec: over the outputs of the graph.
    """
    graph = graph_module.graph
    output_node = graph.output_node()
    results = list(output_node.args[0])  # type: ignore[arg-type]
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    positions = {node: index for index, node in enumerate(placeholders)}
    kept: dict[int, int] = {}

    def replace(output: GraphOutput) -> Output:
        node = results[output.index]
        if node in positions:
            binding = inputs[positions[node]]
            if isinstance(binding, ArgumentLeaf):
                return ArgumentOutput(binding.index)
            if isinstance(binding, BoundTensor) and binding.is_constant:
                return BoundOutput(binding.tensor)
            # Another tensor may be bound before a later call.
        return GraphOutput(kept.setdefault(output.index, len(kept)))

    needed = map_outputs(output_spec, replace)
    output_node.args = (tuple(results[index] for index in kept),)
    # Those of open sizes stay, for somebody has to tell the sizes and check them. So do tensors
    # that others may take the place of: Python may have read of them what is in the result.
    used = [
        node
        for node, binding in zip(placeholders, inputs, strict=True)
        if node.users
        or is_symbolic(node.meta["val"])
        or (isinstance(binding, BoundTensor) and not binding.is_constant)
    ]
    for node in placeholders:
        if node not in used:
            graph.erase_node(node)
    graph_module.recompile()
    renumbered = {positions[node]: index for index, node in enumerate(used)}
    return NeededGraph(
        inputs=tuple(inputs[positions[node]] for node in used),
        positions=tuple(positions[node] for node in used),
        mutated=tuple(renumbered[index] for index in mutated),
        output_spec=needed,
    )
