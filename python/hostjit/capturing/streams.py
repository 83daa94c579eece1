# SPDX-License-Identifier: Apache-2.0
"""Streams of the user's in graphs of Dynamo's.

Dynamo takes `with torch.cuda.stream(s)` into a graph as a note at the nodes inside, under the key
"custom" of their meta, and events as operators of the namespace `streams`. The graph alone, run
node by node, would work on the caller's stream.
"""

from __future__ import annotations

import torch

__all__ = ["STREAMS_ARE_EAGER", "find_stream_use"]

STREAMS_ARE_EAGER = (
    "it works on streams of its own; hostjit.compile(streams=n) makes streams itself"
)


def find_stream_use(graph: torch.fx.Graph) -> torch.fx.Node | None:
    """Return the first node that is on a stream of the user's or is about streams and events."""
    return next((node for node in graph.nodes if _uses_stream(node)), None)


def _uses_stream(node: torch.fx.Node) -> bool:
    if "stream" in node.meta.get("custom", {}):
        return True
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace == "streams"
    return isinstance(target, torch._ops.OpOverloadPacket) and str(target).startswith("streams.")
