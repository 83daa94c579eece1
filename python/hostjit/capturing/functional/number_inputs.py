# SPDX-License-Identifier: Apache-2.0
"""Graphs that are given numbers, and other objects, beside tensors."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.node import base_types

from hostjit.capturing.dynamic_dims import is_number
from hostjit.capturing.graph_module import graph_module

__all__ = ["with_numbers", "without_objects"]


def with_numbers(module: torch.fx.GraphModule, args: Sequence[Any]) -> torch.fx.GraphModule:
    """Return the module with the inputs that are known numbers in `args` replaced by them."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    numbers: dict[torch.fx.Node, Any] = {
        node: value
        for node, value in zip(placeholders, args, strict=True)
        if not isinstance(value, torch.Tensor) and not is_number(value)
    }
    if not numbers:
        return module
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, numbers))
    return graph_module(module, graph)


def without_objects(module: torch.fx.GraphModule) -> tuple[torch.fx.GraphModule, dict[int, Any]]:
    """Return the module with None for results that are neither tensors nor numbers, and those.

    Such as the mesh of a DTensor, which a graph is given or has, and hands on; by position.
    """
    results = module.graph.output_node().args[0]
    assert isinstance(results, (tuple, list))
    found = {i: _value_of(module, result) for i, result in enumerate(results)}
    known = (torch.fx.Node, *base_types, type(None))
    objects = {i: value for i, value in found.items() if not isinstance(value, known)}
    if not objects:
        return module, objects
    graph = torch.fx.Graph()
    copied: Any = graph.graph_copy(module.graph, {})
    graph.output(tuple(None if i in objects else value for i, value in enumerate(copied)))
    graph.eliminate_dead_code(lambda node: node.op != "get_attr")
    return graph_module(module, graph), objects


def _value_of(module: torch.fx.GraphModule, result: Any) -> Any:
    if not isinstance(result, torch.fx.Node) or result.op != "get_attr":
        return result
    value = operator.attrgetter(str(result.target))(module)
    # What is no tensor may stand for the object in the trace.
    return result if isinstance(value, torch.Tensor) else getattr(value, "real_obj", value)
