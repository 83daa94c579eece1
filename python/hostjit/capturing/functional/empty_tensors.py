# SPDX-License-Identifier: Apache-2.0
"""Whether tensors of open sizes have elements: decided while decisions still are guards."""

from __future__ import annotations

import torch
from torch.fx import Graph
from torch.fx.experimental.symbolic_shapes import guard_or_false
from torch.utils import _pytree as pytree

from hostjit.capturing.dynamic_dims import is_number

__all__ = ["decide_emptiness"]


def decide_emptiness(graph: Graph) -> None:
    """Guard on which open sizes of a fresh trace's tensors are 0, as allocating them asks.

    Lowering allocates tensors like them, and may decide nothing. Up to torch 2.14 functional
    tensors ask when they are made; those of torch 2.15 take the size of the memory that they wrap.
    """
    for node in graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor):
                any(is_number(size) and guard_or_false(size == 0) for size in value.shape)
