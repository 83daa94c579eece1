# SPDX-License-Identifier: Apache-2.0
"""`flex_attention` as products, the code of the user and a softmax.

That is what it is in eager mode, too, where `torch.compile` is run for it at each call. Gradients
are left to eager, which has none on the CPU.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch.fx import GraphModule

from hostjit.capturing.errors import CaptureError, CaptureFailure

__all__ = ["flex_attention_is_dense"]


def flex_attention_is_dense(module: GraphModule) -> None:
    """Have a graph of Dynamo's compute it so."""
    operator = getattr(torch.ops.higher_order, "flex_attention", None)
    nodes = [node for node in module.graph.nodes if node.target is operator]
    for node in nodes:
        node.target = _dense
    if nodes:
        module.recompile()


def _dense(query: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if torch.is_autocast_enabled(query.device.type):
        raise CaptureError(CaptureFailure.UNSUPPORTED_PROGRAM, "flex_attention under autocast")
    # The name that the package has for it is that of the operator.
    implementation = importlib.import_module("torch._higher_order_ops.flex_attention")
    return implementation.sdpa_dense(query, *args, **kwargs)
