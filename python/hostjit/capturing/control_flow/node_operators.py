# SPDX-License-Identifier: Apache-2.0
"""The higher-order operators that Host IR has nodes for."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch._ops import HigherOrderOperator
from torch.fx import Graph, Node

__all__ = ["CONTROL_OPERATORS", "with_regions"]

_operators = torch.ops.higher_order

# Their regions stay regions.
CONTROL_OPERATORS: tuple[HigherOrderOperator, ...] = (
    _operators.cond,
    _operators.while_loop,
    _operators.map_impl,
    _operators.scan,
)


def with_regions(graph: Graph) -> Iterator[Node]:
    """Return the nodes of a functional graph, and those of its regions, each behind its own."""
    for node in graph.nodes:
        yield node
        if "region" in node.meta:
            yield from with_regions(node.meta["region"].graph)
