# SPDX-License-Identifier: Apache-2.0
"""Ranges of numbers of which some are open; see `parameters`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["arange", "is_linear", "is_range", "linspace"]

_FLOATS = (torch.float32, torch.float64)


def arange(
    start: float,
    end: float | None = None,
    step: float = 1,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`arange` over floats: Python computes how many there are."""
    first, last = (0, start) if end is None else (start, end)
    count = math.ceil((last - first) / step)
    return (
        torch.arange(count, dtype=dtype or torch.get_default_dtype(), device=device) * step + first
    )


def is_range(given: Mapping[str, Any]) -> bool:
    """Whether it has elements, and is one of floats."""
    start, end, step, dtype = (given[name] for name in ("start", "end", "step", "dtype"))
    if given["requires_grad"] is not False or (dtype is not None and dtype not in _FLOATS):
        return False
    first, last = (0, start) if end is None else (start, end)
    return _are_numbers(first, last, step) and bool(last > first) and bool(step > 0.0)


def linspace(
    start: float,
    end: float,
    steps: int,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`linspace` of floats: as eager does, the second half is counted from the end."""
    dtype = dtype or torch.get_default_dtype()
    places = torch.arange(steps, dtype=dtype, device=device)
    step = (end - start) / (steps - 1)
    from_end = end - (steps - 1 - places) * step
    return torch.where(places < steps // 2, places * step + start, from_end)


def is_linear(given: Mapping[str, Any]) -> bool:
    """Whether it has two elements or more, and is one of floats."""
    dtype = given["dtype"] or torch.get_default_dtype()
    if given["requires_grad"] is not False or dtype not in _FLOATS:
        return False
    steps = given["steps"]
    is_known = _are_numbers(given["start"], given["end"]) and isinstance(steps, (int, torch.SymInt))
    return is_known and bool(steps > 1)


def _are_numbers(*given: Any) -> bool:
    return all(isinstance(x, (int, float, torch.SymInt, torch.SymFloat)) for x in given)
