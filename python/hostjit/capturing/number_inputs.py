# SPDX-License-Identifier: Apache-2.0
"""Graphs that are given numbers beside tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["with_numbers"]


def with_numbers(module: torch.fx.GraphModule, args: Sequence[Any]) -> torch.fx.GraphModule:
    """Return the module with the inputs that are no tensors in `args` replaced by their values."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    numbers: dict[torch.fx.Node, Any] = {
        node: value
        for node, value in zip(placeholders, args, strict=True)
        if not isinstance(value, torch.Tensor)
    }
    if not numbers:
        return module
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, numbers))
    return torch.fx.GraphModule(module, graph)
