# SPDX-License-Identifier: Apache-2.0
"""Lists among the inputs of a graph: compiled autograd gives what a backward pass needs as one."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hostjit.capturing.graph_module import graph_module

__all__ = ["has_lists", "over_flat_inputs"]


def has_lists(inputs: Sequence[Any]) -> bool:
    """Tell whether some input is a list."""
    return any(isinstance(value, list) for value in inputs)


def over_flat_inputs(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    compile: Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]],
) -> Callable[..., Any]:
    """Compile the graph with the elements of lists as its inputs; return what takes the lists.

    A list is empty afterwards where Dynamo says that it is the graph's: so that what the caller
    gave is not kept for longer than the graph needs it, where what is compiled has `call_boxed`,
    and not for longer than the call elsewhere.
    """
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    graph.output(graph.graph_copy(module.graph, copies))
    given = [copies[node] for node in module.graph.find_nodes(op="placeholder")]
    lists = [index for index, value in enumerate(inputs) if isinstance(value, list)]
    stolen = [index for index in lists if given[index].meta.get("steal_arg", False)]
    for index in lists:
        _take_elements(graph, given[index], inputs[index])
    flat = graph_module(module, graph)
    compiled = compile(flat, _flattened(inputs))
    call_boxed = getattr(compiled, "call_boxed", None)

    def call(*values: Any) -> Any:
        elements = _flattened(values)
        for index in stolen:
            values[index].clear()
        return compiled(*elements) if call_boxed is None else call_boxed(elements)

    return call


def _take_elements(graph: torch.fx.Graph, whole: torch.fx.Node, values: Sequence[Any]) -> None:
    elements = []
    with graph.inserting_before(whole):
        for position, value in enumerate(values):
            element = graph.placeholder(f"{whole.name}_{position}")
            element.meta["example_value"] = value
            elements.append(element)
    for user in list(whole.users):
        if user.target is operator.getitem and isinstance(user.args[1], int):
            user.replace_all_uses_with(elements[user.args[1]])
            graph.erase_node(user)
    if whole.users:  # it is passed on as a list
        with graph.inserting_after(elements[-1]):
            whole.replace_all_uses_with(graph.call_function(list, (elements,)))
    graph.erase_node(whole)


def _flattened(values: Sequence[Any]) -> list[Any]:
    return [
        element for value in values for element in (value if isinstance(value, list) else [value])
    ]
