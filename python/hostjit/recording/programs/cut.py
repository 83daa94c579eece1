# SPDX-License-Identifier: Apache-2.0
"""Cuts a functional graph in two: values that one program computes, another one takes as inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set

import torch
from torch.fx import Graph, Node
from torch.utils._pytree import tree_leaves

from hostjit.capturing.traced_graph import storage_of

__all__ = ["changed_memory", "put_inputs", "values_wanted"]

aten = torch.ops.aten


def changed_memory(graph: Graph) -> set[int | None]:
    """Return the storages that operators write: those of kernels are copies, which they change."""
    found: set[int | None] = set()
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            for argument, value in zip(node.target._schema.arguments, node.args, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    written = [x for x in tree_leaves(value) if isinstance(x, Node)]
                    found.update(storage_of(x.meta["val"]) for x in written)
    return found


def values_wanted(
    graph: Graph, computed: Set[Node], is_cheap: Callable[[Node], bool] = lambda node: False
) -> list[Node]:
    """Return the tensors that the rest of a graph takes: new memory, not views of inputs or others.

    Args:
        graph: that is cut.
        computed: the nodes ahead of the cut, and placeholders that are not written.
        is_cheap: whether the rest computes a value again.
    """
    memory = {storage_of(node.meta["val"]) for node in graph.find_nodes(op="placeholder")}
    found: dict[Node, None] = {}
    seen: set[Node] = set()
    bases: dict[int | None, Node] = {}
    for node in graph.nodes:
        if node in computed and isinstance(node.meta.get("val"), torch.Tensor):
            bases.setdefault(storage_of(node.meta["val"]), node)

    def want(node: Node) -> None:
        if node not in computed or node.op == "placeholder" or node in seen:
            return
        seen.add(node)
        storage = storage_of(node.meta["val"])
        is_other = storage in memory or bases.get(storage) is not node
        if is_other or not node.all_input_nodes or is_cheap(node):
            for operand in node.all_input_nodes:
                want(operand)
        else:
            found[node] = None

    for node in graph.nodes:
        if node not in computed and node.op != "placeholder":
            for operand in node.all_input_nodes:
                want(operand)
    return list(found)


def put_inputs(
    graph: Graph, values: Iterable[Node], placeholders: Sequence[Node], name: str
) -> list[Node]:
    """Put placeholders in the place of values, behind the others; return them.

    What is returned is copied: each call returns new tensors.
    """
    last = placeholders[-1] if placeholders else None
    returned = {storage_of(x.meta["val"]) for x in graph.output_node().all_input_nodes}
    made = []
    for index, node in enumerate(values):
        place = graph.inserting_after(last) if last else graph.inserting_before(_first(graph))
        with place:
            last = graph.placeholder(f"{name}_{index}")
        last.meta.update(node.meta)
        taken = last
        if storage_of(node.meta["val"]) in returned:
            with graph.inserting_before(node):
                taken = graph.call_function(aten.clone.default, (last,))
            taken.meta.update(node.meta)
        node.replace_all_uses_with(taken)
        made.append(last)
    return made


def _first(graph: Graph) -> Node:
    first: Node = next(iter(graph.nodes))
    return first
