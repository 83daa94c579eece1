# SPDX-License-Identifier: Apache-2.0
"""The higher-order operators that Host IR has nodes for."""

from __future__ import annotations

import torch
from torch._ops import HigherOrderOperator

__all__ = ["CONTROL_OPERATORS"]

_operators = torch.ops.higher_order

# Their regions stay regions.
CONTROL_OPERATORS: tuple[HigherOrderOperator, ...] = (
    _operators.cond,
    _operators.while_loop,
    _operators.map_impl,
    _operators.scan,
)
