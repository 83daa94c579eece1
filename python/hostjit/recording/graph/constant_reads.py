# SPDX-License-Identifier: Apache-2.0
"""What recorded code reads that is the same at each call: no input leads to it.

An optimizer that a call makes counts its steps in a tensor, and reads it.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

from torch._ops import OpOverload
from torch.fx import Graph, Node

from hostjit.capturing.tracing import draws
from hostjit.recording.graph.inputs import Constant, Source

__all__ = ["varying_nodes"]

# Of these the elements are whatever was in memory.
_UNSET = ("empty", "new_empty", "resize")


def varying_nodes(
    graph: Graph, sources: Sequence[Source], storages: Mapping[Node, int]
) -> set[Node]:
    """Return the nodes whose results may differ from call to call.

    Args:
        graph: that was recorded, with writes in their places.
        sources: of its placeholders.
        storages: the memory of results, as `RecordedGraph.storages`.
    """
    given = iter(sources)
    varying: set[Node] = set()
    memory: set[int] = set()

    def differs(node: Node) -> bool:
        return node in varying or storages.get(node) in memory

    for node in graph.nodes:
        if node.op == "placeholder":
            differs_now = not isinstance(next(given), Constant)
        else:
            is_known = node.target is operator.getitem or _is_known(node)
            differs_now = not is_known or any(map(differs, node.all_input_nodes))
        if not differs_now:
            continue
        written = node.all_input_nodes if _may_write(node) else []
        varying |= {node, *written}
        memory |= {storages[each] for each in (node, *written) if each in storages}
    return varying


def _is_known(node: Node) -> bool:
    """Whether a call makes the same of the same operands."""
    if not isinstance(node.target, OpOverload) or node.target.namespace != "aten":
        return False
    return not (draws(node) or node.target._schema.name.removeprefix("aten::").startswith(_UNSET))


def _may_write(node: Node) -> bool:
    if node.target is operator.getitem or node.op == "placeholder":
        return False
    return not isinstance(node.target, OpOverload) or node.target._schema.is_mutable
