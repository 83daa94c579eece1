# SPDX-License-Identifier: Apache-2.0
"""Refuses writes to inputs that share memory, which functionalisation does not see."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hostjit.capture.errors import CaptureError, CaptureFailure

__all__ = ["may_write", "refuse_overlap"]


def refuse_overlap(module: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> None:
    """Raise CaptureError where inputs share memory and one may be written.

    Functionalisation can't see that; without a write it is fine.
    """
    if not any(may_write(node) for node in module.graph.nodes):
        return
    seen: dict[int, torch.Tensor] = {}
    for tensor in inputs:
        storage = tensor.untyped_storage()._cdata
        if storage in seen and tensor.numel():
            raise CaptureError(
                CaptureFailure.OVERLAPPING_INPUTS,
                "two inputs share memory, and the call changes tensors in place",
                hint="pass tensors that do not share memory, or clone one of them",
            )
        seen[storage] = tensor


def may_write(node: torch.fx.Node) -> bool:
    """Tell whether a node of Dynamo's graph may change a tensor; cheap, and errs to yes."""
    if node.op in ("placeholder", "output", "get_attr"):
        return False
    if "out" in node.kwargs or node.kwargs.get("inplace"):
        return True
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name in _KNOWN_PURE:
        return False
    return name.endswith("_") or name in _KNOWN_WRITERS or name.startswith("i")


_KNOWN_PURE = frozenset({"isnan", "isinf", "isfinite", "is_nonzero", "item", "index_select"})
_KNOWN_WRITERS = frozenset({"setitem", "batch_norm", "instance_norm", "detach_"})
