# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in graphs of Dynamo's: those that run eagerly, and those that have to."""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops.wrap import tag_activation_checkpoint
from torch.utils.checkpoint import checkpoint

from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.functional.graph_writes import written_nodes
from hostjit.capturing.graph_module import graph_module
from hostjit.capturing.overlap import may_write
from hostjit.capturing.traced_graph import attribute_of, source_location, storage_of

__all__ = ["refuse_writing_checkpoints", "with_eager_checkpoints"]


def refuse_writing_checkpoints(module: torch.fx.GraphModule) -> None:
    """Raise CaptureError for a checkpoint that writes what it is given.

    Eager writes again where the backward pass computes it again: statistics of a batch norm move
    twice. In PyTorch's traces the backward pass writes nothing.
    """
    for node in module.graph.find_nodes(op="call_function", target=tag_activation_checkpoint):
        region: Any = node.args[0]
        graph = attribute_of(module, region.target).graph
        given = {storage_of(_value(place)) for place in graph.find_nodes(op="placeholder")} - {None}
        for inner in filter(may_write, graph.nodes):
            if any(storage_of(_value(written)) in given for written in written_nodes(inner)):
                raise CaptureError(
                    CaptureFailure.NEEDS_AUTOGRAD,
                    "a checkpoint changes a tensor, which its backward pass does again",
                    where=source_location(inner) or source_location(node),
                    hint="call what changes tensors, such as batch norms, outside of checkpoints",
                )


def _value(node: torch.fx.Node) -> Any:
    return node.meta.get("example_value", node.meta.get("val"))


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
    copy = graph_module(module, graph)
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
