# SPDX-License-Identifier: Apache-2.0
"""Lets operators of a functional graph that compute the same be one.

PyTorch's own pass takes most random operators, and numbers that compare equal (0.0 and -0.0), for
the same, and imports Inductor's lowerings, half of the time of a first training step.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from hostjit.capturing.dynamic_dims import is_symbolic
from hostjit.capturing.traced_graph import storage_of

__all__ = ["merge_common_subexpressions"]

# What others register may do more than its schema says.
_NAMESPACES = ("aten", "prims")
# Another call has other numbers, or sizes with other names.
_NEVER_EQUAL = frozenset(
    {
        torch.Tag.nondeterministic_seeded,
        torch.Tag.data_dependent_output,
        torch.Tag.dynamic_output_shape,
    }
)


def merge_common_subexpressions(graph: torch.fx.Graph) -> None:
    """Replace operators by earlier ones with the same operands, in place.

    Every result of the graph keeps memory of its own, and nothing is taken from before a write.
    """
    returned = {
        storage for node in graph.output_node().all_input_nodes for storage in _storages(node)
    }
    earlier: dict[Hashable, torch.fx.Node] = {}
    for node in list(graph.nodes):
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            earlier.clear()
        if not _is_function_of_operands(node) or not returned.isdisjoint(_storages(node)):
            continue
        kept = earlier.setdefault((node.target, _key(node.args), _key(node.kwargs)), node)
        if kept is not node:
            node.replace_all_uses_with(kept)
            graph.erase_node(node)


def _is_function_of_operands(node: torch.fx.Node) -> bool:
    """Tell whether a node does nothing but compute results, which its operands decide."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return target is operator.getitem
    return bool(
        target.namespace in _NAMESPACES
        and target._schema.returns
        and not target._schema.is_mutable
        and _NEVER_EQUAL.isdisjoint(target.tags)
    )


def _storages(node: torch.fx.Node) -> set[int]:
    """Return whose memory the results of a node are."""
    leaves = tree_leaves(node.meta.get("val"))
    tensors = [x for x in leaves if isinstance(x, torch.Tensor) and x.layout is torch.strided]
    return {storage for storage in map(storage_of, tensors) if storage is not None}


def _key(value: Any) -> Hashable:
    """Return what is equal for equal operands: of numbers, those of one type and sign."""
    if isinstance(value, (tuple, list)):
        return tuple(map(_key, value))
    if isinstance(value, dict):
        return tuple((name, _key(value[name])) for name in sorted(value))
    if is_symbolic(value):
        return id(value.node)
    if isinstance(value, (float, complex)):
        return type(value), repr(value)
    return type(value), value
