# SPDX-License-Identifier: Apache-2.0
"""Random numbers that are drawn in place, in the order in which eager fills memory."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.open_sizes import known
from hostjit.capturing.python_kernels import python_kernels_changed

__all__ = ["draws_in_order"]

aten = torch.ops.aten
Tensor = torch.Tensor
# From so many numbers on, eager fills contiguous memory by another algorithm.
_FEW_NORMAL = 16


def draws_in_order() -> contextlib.AbstractContextManager[None]:
    """Trace `bernoulli_` and `normal_` of any tensor as what draws what eager draws.

    Functionalisation makes of them what fills contiguous memory, or memory without gaps.
    """
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return python_kernels_changed(
        {
            aten.bernoulli_.Tensor: {key: _bernoulli},
            aten.bernoulli_.float: {key: _bernoulli},
            aten.normal_.default: {key: _normal},
        }
    )


def _order(x: Tensor) -> list[int]:
    """The dims as they lie in memory, the outermost first."""
    return sorted(range(x.dim()), key=lambda dim: x.stride()[dim], reverse=True)


def _bernoulli(x: Tensor, p: Any = 0.5, *, generator: Any = None) -> Any:
    order = _order(x)
    if order == [*range(x.dim())]:
        return NotImplemented
    if isinstance(p, Tensor):
        p = p.expand(x.shape).permute(order)
    x.permute(order).bernoulli_(p, generator=generator)
    return x


def _normal(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Any:
    if x.permute(_order(x)).is_contiguous() or known(x.numel() < _FEW_NORMAL):
        return NotImplemented
    raise CaptureError(
        CaptureFailure.UNSUPPORTED_PROGRAM,
        "normal_ fills a tensor with gaps, by other numbers than one without",
        hint="draw a tensor with torch.randn, and copy it into the part",
    )
