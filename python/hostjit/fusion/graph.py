# SPDX-License-Identifier: Apache-2.0
"""The graph that a definition ends as: with outputs, writes of inputs, and a device."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from hostjit.fusion.builder import aten
from hostjit.fusion.values import Tensor

__all__ = ["Output", "finished_graph"]

# What may return memory of its first operand.
_VIEWS = frozenset(
    (
        aten.alias.default,
        aten.expand.default,
        aten.permute.default,
        aten.reshape.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.squeeze.dims,
        aten.to.dtype,
        aten.unsqueeze.default,
        aten.view_as_real.default,
    )
)


@dataclasses.dataclass(frozen=True)
class Output:
    """A tensor that is returned, or written to an input."""

    tensor: Tensor
    alias_input: Tensor | None = None


def finished_graph(
    definition: Graph,
    outputs: Sequence[Output],
    placed: Sequence[Node],
    device: str | torch.device | None,
) -> Graph:
    """Return a graph of those nodes of a definition that its outputs need; it returns a list.

    Args:
        definition: the nodes, without an output.
        outputs: in the order in which they were added.
        placed: nodes of tensors that are made of nothing.
        device: for those; or the name of the input on whose device they are.
    """
    graph = Graph()
    copies: dict[Node, Node] = {}
    needed = _needed(outputs)
    for node in definition.nodes:
        if node.op == "placeholder" or node in needed:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    made = [copies[node] for node in placed if node in needed]
    if made:
        _place(graph, made, device)
    writes = [output for output in outputs if output.alias_input is not None]
    written: dict[Node, Node] = {}
    sources: list[tuple[Node, Node]] = []
    for output in writes:
        assert output.alias_input is not None
        source, target = copies[output.tensor.node], copies[output.alias_input.node]
        written[source] = target
        sources.append((target, _own(graph, source)))
    results: list[Node] = []
    for output in outputs:
        if output.alias_input is not None:
            continue
        node = copies[output.tensor.node]
        if writes and node not in written and node.op != "placeholder":
            node = _own(graph, node)
        results.append(written.get(node, node))
    for target, source in sources:
        graph.call_function(_write, (target, source))
    graph.output(results)
    return graph


def _needed(outputs: Sequence[Output]) -> set[Node]:
    """The nodes that outputs are computed from."""
    found: set[Node] = set()
    open_nodes = [output.tensor.node for output in outputs]
    while open_nodes:
        node = open_nodes.pop()
        if node not in found:
            found.add(node)
            open_nodes += node.all_input_nodes
    return found


def _place(graph: Graph, nodes: Sequence[Node], device: Any) -> None:
    if isinstance(device, str):
        placeholders = graph.find_nodes(op="placeholder")
        of = next(node for node in placeholders if node.target == device)
        with graph.inserting_after(placeholders[-1]):
            device = graph.call_function(getattr, (of, "device"))
    for node in nodes:
        node.update_kwarg("device", device or torch.device("cpu"))


def _own(graph: Graph, node: Node) -> Node:
    """The node, or a copy where it may be memory of an input, which is about to be written."""
    root = node
    while root.op == "call_function" and root.target in _VIEWS:
        root = root.all_input_nodes[0]
    if root.op != "placeholder":
        return node
    return graph.call_function(aten.clone.default, (node,))


def _write(target: torch.Tensor, source: torch.Tensor) -> None:
    """Write to an input; captured with the graph."""
    if source.shape != target.shape:
        raise RuntimeError(
            f"add_output: a tensor of shape {list(source.shape)} cannot be written to an input of "
            f"shape {list(target.shape)}"
        )
    target.copy_(source)
