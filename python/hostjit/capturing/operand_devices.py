# SPDX-License-Identifier: Apache-2.0
"""Where an operator computes, by the tensors that it is given."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

__all__ = ["on_cuda"]


def on_cuda(args: Any) -> bool:
    """Tell whether one of the tensors among arguments is on a CUDA device."""
    return any(isinstance(leaf, torch.Tensor) and leaf.is_cuda for leaf in tree_leaves(args))
