# SPDX-License-Identifier: Apache-2.0
"""Takes out of a program what depends on no argument and on nothing that is written.

Exact, by effects: an operator stays where it draws random numbers, writes, or reads what is written
by the program or brought by the call. What is taken out is computed at the recording, and again
when somebody has written to or replaced the memory that it was computed of.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from hostjit import _C
from hostjit.capturing.graph_module import graph_module
from hostjit.capturing.program import BoundTensor
from hostjit.capturing.tensors import TensorFacts
from hostjit.capturing.traced_graph import storage_of
from hostjit.recording.graph.inputs import LiveInput
from hostjit.recording.programs.cut import changed_memory, put_inputs, values_wanted
from hostjit.recording.programs.program import RecordedProgram
from hostjit.recording.replays.pruned import Pruned

__all__ = ["prune"]


def prune(
    program: RecordedProgram, compile_graph: Callable[[torch.fx.Graph], _C.CompiledProgram]
) -> tuple[RecordedProgram, Pruned | None]:
    """Return the rest of a program, whose last inputs are the values of what is taken out."""
    graph = program.graph_module.graph
    placeholders = graph.find_nodes(op="placeholder")
    bindings = dict(zip(placeholders, program.inputs, strict=True))
    written = {placeholders[index] for index in program.mutated}
    fixed = {
        node
        for node, binding in bindings.items()
        if isinstance(binding, BoundTensor)
        and not isinstance(binding, LiveInput)
        and node not in written
        and not binding.tensor.is_inference()
    }
    changed = changed_memory(graph)
    for node in graph.nodes:
        if node.op == "call_function" and _repeats(node) and set(node.all_input_nodes) <= fixed:
            if changed.isdisjoint(map(storage_of, tree_leaves(node.meta.get("val")))):
                fixed.add(node)
    kept = values_wanted(graph, fixed)
    if not kept:
        return program, None
    once, sources = _once(kept, bindings)
    operators = sum(node.op == "call_function" for node in once.nodes)
    pruned = Pruned(compile_graph(once), sources, operators)
    pruned.compute()
    rest = _rest(graph, kept, bindings)
    inputs = [binding for node, binding in bindings.items() if node in rest]
    constants = [
        BoundTensor(value, TensorFacts.of(value), "", is_constant=True) for value in pruned.values
    ]
    module = graph_module(torch.nn.Module(), _without_unused(graph, rest))
    mutated = tuple(
        index for index, node in enumerate(n for n in placeholders if n in rest) if node in written
    )
    return dataclasses.replace(
        program, graph_module=module, inputs=(*inputs, *constants), mutated=mutated
    ), pruned


def _repeats(node: torch.fx.Node) -> bool:
    """Tell whether an operator gives the same for the same operands, and does nothing else."""
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
        return False
    if torch.Tag.nondeterministic_seeded in node.target.tags:
        return False
    return not node.target._schema.is_mutable and bool(node.target._schema.returns)


def _once(
    kept: list[torch.fx.Node], bindings: dict[torch.fx.Node, Any]
) -> tuple[torch.fx.Graph, list[torch.Tensor]]:
    """Return the graph that computes the values, and its inputs."""
    needed: set[torch.fx.Node] = set()
    pending = list(kept)
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending.extend(node.all_input_nodes)
    made = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    sources: list[torch.Tensor] = []
    for node in kept[0].graph.nodes:
        if node in needed:
            copies[node] = made.node_copy(node, lambda old: copies[old])
            if node.op == "placeholder":
                sources.append(bindings[node].tensor)
    made.output(tuple(copies[node] for node in kept))
    return made, sources


def _rest(
    graph: torch.fx.Graph, kept: list[torch.fx.Node], bindings: dict[torch.fx.Node, Any]
) -> set[torch.fx.Node]:
    """Put placeholders in the place of the values, in order; return all nodes still needed."""
    once = put_inputs(graph, kept, list(bindings), "once")
    impure = [node for node in graph.nodes if node.op != "placeholder" and not _repeats(node)]
    needed: set[torch.fx.Node] = set()
    pending: list[torch.fx.Node] = [graph.output_node(), *once, *impure]
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending.extend(node.all_input_nodes)
    return needed


def _without_unused(graph: torch.fx.Graph, needed: set[torch.fx.Node]) -> torch.fx.Graph:
    for node in reversed(list(graph.nodes)):
        if node not in needed and not node.users:
            graph.erase_node(node)
    return graph
