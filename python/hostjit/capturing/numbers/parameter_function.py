# SPDX-License-Identifier: Apache-2.0
"""How a function of PyTorch is computed where a parameter of it is an open number."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["NumberFunction", "is_exact"]

_FLOATS = (torch.float32, torch.float64)


@dataclasses.dataclass(frozen=True)
class NumberFunction:
    """How a function is computed.

    Attributes:
        parameters: the names of those that may be open.
        compute: has the parameters of the function.
        applies: tells of what it is called with, as far as that is known, whether it may be
            computed so. Tensors are fake ones.
        types: of the parameter.
    """

    parameters: tuple[str, ...]
    compute: Callable[..., Any]
    applies: Callable[[Mapping[str, Any]], bool]
    types: tuple[type, ...] = (float,)


def is_exact(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether these are tensors, or None, of no half type: a product would be rounded once more."""

    def applies(given: Mapping[str, Any]) -> bool:
        tensors = [given[name] for name in names if given[name] is not None]
        return all(isinstance(t, Tensor) and t.dtype in _FLOATS for t in tensors)

    return applies
