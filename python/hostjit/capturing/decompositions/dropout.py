# SPDX-License-Identifier: Apache-2.0
"""Dropout as eager computes it: of nothing to drop, the operand itself."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.open_sizes import known
from hostjit.capturing.python_kernels import python_kernels_changed

__all__ = ["dropout", "dropout_as_eager"]

aten = torch.ops.aten


def dropout(x: torch.Tensor, p: float, train: bool) -> Any:
    """Replace `aten.dropout`, which PyTorch decomposes to a copy where there is nothing to drop."""
    if not 0 <= p <= 1:
        raise CaptureError(
            CaptureFailure.USER_EXCEPTION,
            f"dropout raises: its probability has to be between 0 and 1, but is {p}",
            hint="the call raises; run it eagerly to see the error",
        )
    if p == 0 or not train or known(x.numel() == 0):
        return x
    if p == 1:  # no numbers are drawn
        return x * torch.zeros((), dtype=x.dtype, device=x.device)
    return aten.native_dropout.default(x, p, train)[0]


def dropout_as_eager() -> contextlib.AbstractContextManager[None]:
    """Trace it so inside of other composite operators, too."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return python_kernels_changed({aten.dropout.default: {key: dropout}})
