# SPDX-License-Identifier: Apache-2.0
"""Operators that a call of ATen is most of the time of, as views, copies and fused arithmetic.

Those of tensors with few elements: of many, ATen has loops of its own that are as fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table

__all__ = ["SMALL_OPERATORS"]

aten = torch.ops.aten
Tensor = torch.Tensor

_MOST_ELEMENTS = 1 << 14
# Of more points than these, `torch.cdist` makes a product of matrices.
_MOST_POINTS = 25


def _is_small(*tensors: Tensor) -> bool:
    """Whether tensors have few elements, some at least, and sizes that are known."""
    sizes = [size for tensor in tensors for size in tensor.shape]
    if not all(type(size) is int for size in sizes):
        return False
    return all(0 < math.prod(tensor.shape) <= _MOST_ELEMENTS for tensor in tensors)


def _cross(a: Tensor, b: Tensor, *, dim: int = -1) -> Any:
    if not _is_small(a, b) or a.dtype is not b.dtype or a.dtype is torch.bool:
        return NotImplemented
    if a.dim() != b.dim() or a.shape[dim] != 3 or b.shape[dim] != 3:
        return NotImplemented
    a0, a1, a2 = a.unbind(dim)
    b0, b1, b2 = b.unbind(dim)
    parts = torch.broadcast_tensors(a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0)
    return torch.stack(parts, dim % a.dim())


def _trace(x: Tensor) -> Any:
    return x.diagonal().sum() if _is_small(x) and x.dim() == 2 else NotImplemented


def _cdist(a: Tensor, b: Tensor, p: float, mode: int | None) -> Any:
    """Distances of few points, by differences, as eager computes them."""
    if not _is_small(a, b) or p not in (1, 2, math.inf):
        return NotImplemented
    if a.shape[-2] * b.numel() > _MOST_ELEMENTS or a.dtype is not b.dtype:
        return NotImplemented
    if p == 2 and (mode == 1 or (mode != 2 and max(a.shape[-2], b.shape[-2]) > _MOST_POINTS)):
        return NotImplemented
    difference = a.unsqueeze(-2) - b.unsqueeze(-3)
    if p == 2:
        return difference.square().sum(-1).sqrt()
    return difference.abs().sum(-1) if p == 1 else difference.abs().amax(-1)


def _block_diag(tensors: Sequence[Tensor]) -> Any:
    is_plain = len({tensor.dtype for tensor in tensors}) == 1
    if not (is_plain and tensors and _is_small(*tensors)) or any(x.dim() > 2 for x in tensors):
        return NotImplemented
    found: Any = decomposition_table[aten.block_diag.default](tensors)
    return found


def _small(operator: torch._ops.OpOverload) -> Callable[..., Any]:
    """PyTorch's own decomposition, of tensors with few elements."""
    decomposition = decomposition_table[operator]

    def decomposed(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        tensors = [x, *(each for each in args if isinstance(each, Tensor))]
        return decomposition(x, *args, **kwargs) if _is_small(*tensors) else NotImplemented

    return decomposed


SMALL_OPERATORS: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    aten._cdist_forward.default: _cdist,
    aten.block_diag.default: _block_diag,
    aten.diag_embed.default: _small(aten.diag_embed.default),
    aten.huber_loss.default: _small(aten.huber_loss.default),
    aten.linalg_cross.default: _cross,
    aten.rot90.default: _small(aten.rot90.default),
    aten.trace.default: _trace,
}
