# SPDX-License-Identifier: Apache-2.0
"""PyTorch's types in Host IR's terms."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from hostjit import _C

__all__ = ["dtype_name", "is_plain", "tensor_type"]

_NAMES = {torch_dtype: name for name, torch_dtype in _C.torch_dtypes().items()}


def dtype_name(dtype: torch.dtype) -> str:
    """Return Host IR's name of a dtype ("f32"); raises KeyError for one it has no name for."""
    return _NAMES[dtype]


def is_plain(node: Any) -> bool:
    """Tell whether a node is a real strided tensor without pending conjugation or negation."""
    if not isinstance(node, Node):
        return False
    value = node.meta["val"]
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and not value.is_conj()
        and not value.is_neg()
    )


def tensor_type(value: _C.Value) -> _C.TensorType:
    """Return the type of a value of a program that is a tensor."""
    type_ = value.type
    assert isinstance(type_, _C.TensorType), f"%{value.name} is no tensor"
    return type_
