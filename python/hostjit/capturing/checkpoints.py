# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in graphs of Dynamo's that run eagerly."""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops.wrap import tag_activation_checkpoint
from torch.utils.checkpoint import checkpoint

__all__ = ["with_eager_checkpoints"]


def with_eager_checkpoints(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return a graph, itself if it has none, whose checkpoints are those that the user called.

    Dynamo's operator leaves random numbers to a partitioner. Run as it is, it draws others when the
    backward pass computes the checkpoint again.
    """
    if not _has_checkpoint(module):
        return module
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    for node in graph.nodes:
        if node.target is tag_activation_checkpoint:
            node.target = _checkpoint
    copy = torch.fx.GraphModule(module, graph)
    copy.meta.update(module.meta)
    for name, child in module.named_children():
        if isinstance(child, torch.fx.GraphModule):
            setattr(copy, name, with_eager_checkpoints(child))
    return copy


def _has_checkpoint(module: torch.fx.GraphModule) -> bool:
    return any(
        node.target is tag_activation_checkpoint
        for part in module.modules()
        if isinstance(part, torch.fx.GraphModule)
        for node in part.graph.nodes
    )


def _checkpoint(region: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    """Run a region; inputs that need no gradients are fine for this kind only."""
    kwargs["use_reentrant"] = False
    if "_checkpoint_context_fn" in region.meta:
        kwargs["context_fn"] = region.meta["_checkpoint_context_fn"]
    return checkpoint(region, *args, **kwargs)
