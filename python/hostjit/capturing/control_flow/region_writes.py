# SPDX-License-Identifier: Apache-2.0
"""Branches of `cond` that change what they are given: they change clones, which are results more.

After the operator the results are copied to where the branches were to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.graph_module import graph_module
from hostjit.capturing.traced_graph import storage_of

__all__ = ["check_apart", "writing_clones"]


def check_apart(operands: Sequence[torch.Tensor], written: Sequence[int]) -> None:
    """Refuse writes to memory that another operand shares, for a region writes clones."""
    storages = [storage_of(operand) for operand in operands]
    if any(storages.count(storages[position]) > 1 for position in written):
        raise CaptureError(
            CaptureFailure.UNSUPPORTED_PROGRAM,
            "a region changes memory that two of its operands share",
            hint="change a clone, and return it",
        )


def writing_clones(module: torch.fx.GraphModule, written: Sequence[int]) -> torch.fx.GraphModule:
    """Return the region with clones written in place of operands, which are its last results."""
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in module.graph.find_nodes(op="placeholder"):
        copies[node] = graph.node_copy(node)
    clones = []
    for position, node in enumerate([*copies]):
        if position in written:
            copies[node] = graph.call_function(torch.ops.aten.clone.default, (copies[node],))
            clones.append(copies[node])
    results: Any = graph.graph_copy(module.graph, copies)
    results = results if isinstance(results, (tuple, list)) else (results,)
    graph.output((*results, *clones))
    return graph_module(module, graph)
