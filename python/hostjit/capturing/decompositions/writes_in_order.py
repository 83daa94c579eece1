# SPDX-License-Identifier: Apache-2.0
"""Operators that write a tensor whose dims lie in memory in another order.

Functionalisation makes a new tensor of each, which it views as what the old one is a view of. Those
of elements leave the order as it is; the others lay out what they make from the first dim to the
last, and there may be no such view: "Cannot view a tensor with shape ...".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from hostjit.capturing.python_kernels import python_kernels_changed

__all__ = ["writes_in_order"]

aten = torch.ops.aten

# By the operator that writes: the one that makes a new tensor.
_MAKES = {
    aten.addbmm_.default: aten.addbmm.default,
    aten.addmm_.default: aten.addmm.default,
    aten.baddbmm_.default: aten.baddbmm.default,
    aten.cumprod_.default: aten.cumprod.default,
    aten.cumsum_.default: aten.cumsum.default,
    aten.index_add_.default: aten.index_add.default,
    aten.index_copy_.default: aten.index_copy.default,
    aten.index_fill_.int_Scalar: aten.index_fill.int_Scalar,
    aten.index_fill_.int_Tensor: aten.index_fill.int_Tensor,
    aten.index_reduce_.default: aten.index_reduce.default,
    aten.masked_fill_.Scalar: aten.masked_fill.Scalar,
    aten.masked_fill_.Tensor: aten.masked_fill.Tensor,
    aten.masked_scatter_.default: aten.masked_scatter.default,
    aten.put_.default: aten.put.default,
    aten.renorm_.default: aten.renorm.default,
    aten.scatter_.reduce: aten.scatter.reduce,
    aten.scatter_.src: aten.scatter.src,
    aten.scatter_.value: aten.scatter.value,
    aten.scatter_.value_reduce: aten.scatter.value_reduce,
    aten.scatter_add_.default: aten.scatter_add.default,
    aten.scatter_reduce_.two: aten.scatter_reduce.two,
    aten.tril_.default: aten.tril.default,
    aten.triu_.default: aten.triu.default,
}


def writes_in_order() -> contextlib.AbstractContextManager[None]:
    """Trace them as copies of what they make, which keep the order of what is written."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return python_kernels_changed(
        {writes: {key: _by_copy(makes)} for writes, makes in _MAKES.items()}
    )


def _by_copy(makes: Callable[..., Any]) -> Callable[..., Any]:
    def write(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return NotImplemented if x.is_contiguous() else x.copy_(makes(x, *args, **kwargs))

    return write
