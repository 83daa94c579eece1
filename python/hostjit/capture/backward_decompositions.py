# SPDX-License-Identifier: Apache-2.0
"""Derivatives as the pointwise operators and reductions that they are made of.

As operators of their own they would be calls through PyTorch between the fused kernels of a
backward pass. The formulas are those of `torch._decomp`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table

__all__ = ["BACKWARD_DECOMPOSITIONS"]

_NAMES = (
    *("elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "log_sigmoid", "mish"),
    *("sigmoid", "silu", "softplus", "tanh", "threshold"),
    *("binary_cross_entropy", "huber_loss", "mse_loss", "smooth_l1_loss"),
    "native_dropout",
)
# Sums of them in half precision would be rounded in other places than the operators round.
_REDUCING = (
    *("_log_softmax_backward_data", "_softmax_backward_data", "native_layer_norm_backward"),
)
_FLOATS = (torch.float32, torch.float64)


def _find() -> dict[Any, Callable[..., Any]]:
    found: dict[Any, Callable[..., Any]] = {}
    for name in (*(f"{name}_backward" for name in _NAMES), *_REDUCING):
        operator = getattr(getattr(torch.ops.aten, name, None), "default", None)
        if operator in decomposition_table:
            decomposition = decomposition_table[operator]
            found[operator] = _of_floats(decomposition) if name in _REDUCING else decomposition
    return found


def _of_floats(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    def apply(gradient: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if gradient.dtype not in _FLOATS:
            return NotImplemented
        return decomposition(gradient, *args, **kwargs)

    return apply


BACKWARD_DECOMPOSITIONS = _find()
