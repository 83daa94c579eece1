# SPDX-License-Identifier: Apache-2.0
"""The rule for the number that a tensor holds, as a result of a program."""

from __future__ import annotations

import torch
from torch.fx import Node

from hostjit.lowering.context import LoweringContext
from hostjit.lowering.registry import lowers

__all__ = ["gives_number"]


def gives_number(tensor: torch.Tensor) -> bool:
    """Tell whether a program can return the element of a tensor as a number, without loss.

    Floats are f64, integers and bools index. Of any tensor without dims on the CPU, but for complex
    ones and those of uint64.
    """
    is_real = not tensor.dtype.is_complex and tensor.dtype is not torch.uint64
    return is_real and tensor.dim() == 0 and tensor.is_cpu


@lowers("aten._local_scalar_dense.default")
def item(context: LoweringContext, node: Node) -> bool:
    (tensor,) = node.all_input_nodes
    if not gives_number(tensor.meta["val"]):
        return False
    context.bind(node, context.item(tensor))
    return True
