# SPDX-License-Identifier: Apache-2.0
"""What is computed to compare the values that were read, the program need not compute again.

The code of a solver decides by what it has computed so far: nearly all of a call is needed to tell
whether it is the recorded one. The program that does so hands on what the other one goes on with.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils._pytree import tree_leaves

from hostjit.capturing.program import InputBinding
from hostjit.capturing.tensors import TensorFacts
from hostjit.capturing.traced_graph import storage_of
from hostjit.capturing.tracing import draws
from hostjit.recording.graph.inputs import LiveInput
from hostjit.recording.graph.recorder import Recorder
from hostjit.recording.programs.cut import changed_memory, put_inputs, values_wanted
from hostjit.recording.replays.read_guard import compares_in_call_path

__all__ = ["hand_on", "may_hand_on"]

aten = torch.ops.aten

# Of nodes, which may also be regions of an operator that chooses what runs.
_VALUES = ("placeholder", "call_function")

_PRODUCTS = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default}

# So many operators on elements of inputs are fused into what takes their result: one more tensor
# costs more.
_CHEAP = 4
# Nanoseconds, measured on tensors of some hundred elements: of a tensor that is made and handed on,
# of an operator, and of so many elements, or multiply-adds.
_TENSOR, _OPERATOR, _ELEMENTS = 130, 4, 32


def may_hand_on(recorder: Recorder, inputs: Sequence[torch.Tensor]) -> bool:
    """Tell whether the call path compares what was read: only that keeps what it has computed.

    `inputs`: those of the graph. Not where random numbers are drawn, which the caller sees.
    """
    tensors = [*inputs, *(read.expected for read in recorder.reads)]
    return compares_in_call_path(tensors, recorder.generators_given())


def hand_on(graph: Graph, reads: Graph, copies: Mapping[Node, Node]) -> tuple[InputBinding, ...]:
    """Have a graph take what another one computes, where that saves time; return further inputs.

    Args:
        graph: functional, but for `aten.copy_` to its inputs at its end.
        reads: copies of some of its nodes, without an effect; its results become more.
        copies: those, by the nodes of `graph`; some are not in `reads` any more.
    """
    there = set(reads.nodes)
    computed = {node for node in graph.nodes if node.op in _VALUES and copies.get(node) in there}
    if any(map(draws, computed)) or _changes(graph, computed):
        return ()
    for node in graph.nodes:
        if node.target is operator.getitem and node.args[0] in computed:
            computed.add(node)
    cost = _costs(graph, computed)
    values = values_wanted(graph, computed, lambda node: cost[node] <= _CHEAP)
    handing_on = sum(_TENSOR + 2 * node.meta["val"].numel() / _ELEMENTS for node in values)
    saved = computed & (_needed(graph, []) - _needed(graph, values))
    if handing_on > sum(map(_nanoseconds, saved)):
        return ()
    output = reads.output_node()
    more = []
    for node in values:
        copy = copies.get(node)
        if copy not in there:  # another item of several that are computed
            with reads.inserting_before(output):
                copy = reads.node_copy(node, lambda old: copies[old])
        more.append(copy)
    output.args = ((*output.args[0], *more),)  # type: ignore[misc]
    placeholders = [*graph.find_nodes(op="placeholder")]
    inputs = put_inputs(graph, values, placeholders, "handed_on")
    return tuple(_binding(index, node.meta["val"]) for index, node in enumerate(inputs))


def _changes(graph: Graph, computed: set[Node]) -> bool:
    """Whether the graph changes memory that is computed, as that is which kernels are given."""
    inputs = {storage_of(node.meta["val"]) for node in graph.find_nodes(op="placeholder")}
    changed = changed_memory(graph) - inputs
    values = [node.meta.get("val") for node in computed]
    return not changed.isdisjoint(map(storage_of, tree_leaves(values)))


def _costs(graph: Graph, computed: set[Node]) -> dict[Node, float]:
    """How many operators on elements compute a value from inputs; inf where others do, too."""
    costs: dict[Node, float] = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            costs[node] = 0
        elif node in computed:
            below = sum(costs.get(operand, 0) for operand in node.all_input_nodes)
            costs[node] = below + _cost(node)
    return costs


def _cost(node: Node) -> float:
    target: Any = node.target
    if target is operator.getitem or not isinstance(target, torch._ops.OpOverload):
        return torch.inf
    if target.is_view or not node.all_input_nodes:
        return 0
    return 1 if torch.Tag.pointwise in target.tags else torch.inf


def _needed(graph: Graph, given: Sequence[Node]) -> set[Node]:
    """The nodes that the graph computes where it is given some values."""
    needed: set[Node] = set()
    pending = [graph.output_node(), *(n for n in graph.nodes if n.target is aten.copy_.default)]
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending.extend(x for x in node.all_input_nodes if x not in given)
    return needed


def _nanoseconds(node: Node) -> float:
    """What an operator takes, about."""
    if node.op != "call_function":
        return 0
    operands = [x.meta.get("val") for x in node.all_input_nodes]
    values = [node.meta.get("val"), operands]
    tensors = [x for x in tree_leaves(values) if isinstance(x, torch.Tensor)]
    work = max((x.numel() for x in tensors), default=0)
    if node.target in _PRODUCTS:
        work = node.meta["val"].numel() * node.all_input_nodes[-1].meta["val"].shape[-2]
    return _OPERATOR + work / _ELEMENTS


def _binding(slot: int, value: torch.Tensor) -> LiveInput:
    example = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cpu")
    description = ("handed_on", slot, example)
    return LiveInput(example, TensorFacts.of(example), "", description=description)
