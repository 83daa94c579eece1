# SPDX-License-Identifier: Apache-2.0
"""Tensors that are made without contents, for something that writes them."""

from __future__ import annotations

import torch
from torch.fx import Node

from hostjit.capturing.overlap import overlaps_itself
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.registry import lowers

__all__: list[str] = []


@lowers(
    "aten.empty.memory_format",
    "aten.empty_like.default",
    "aten.empty_strided.default",
    "aten.new_empty.default",
    "aten.new_empty_strided.default",
)
def lower_empty(context: LoweringContext, node: Node) -> bool:
    """empty(sizes) -> allocate, unless it is pinned, filled as PyTorch was told, or overlaps."""
    filled = (
        torch.are_deterministic_algorithms_enabled()
        and torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    )
    if filled or node.kwargs.get("pin_memory") or overlaps_itself(node.meta["val"]):
        return False
    context.allocate(node)
    return True
