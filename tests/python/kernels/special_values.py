# SPDX-License-Identifier: Apache-2.0
"""Operands for tests: special values of each type among seeded random ones."""

from __future__ import annotations

import torch

__all__ = ["pair", "special"]

_FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -3.0, 6.0, 20.5, 100.0, -100.0]


def special(dtype: torch.dtype) -> torch.Tensor:
    """Every special value of `dtype`, then random ones: 64 elements."""
    generator = torch.Generator().manual_seed(7)
    if dtype is torch.bool:
        return torch.rand(64, generator=generator) < 0.5
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        values = [*_FLOATS, float("nan"), float("inf"), float("-inf"), info.max, info.min]
        values += [info.tiny, -info.tiny, info.smallest_normal / 2, info.eps]
        head = torch.tensor(values, dtype=torch.float64)
        tail = torch.randn(64 - len(values), generator=generator, dtype=torch.float64) * 4
        return torch.cat([head, tail]).to(dtype)
    limits = torch.iinfo(dtype)
    values_int = [0, 1, 2, 3, 7, 8, limits.max, limits.min, limits.max - 1, limits.min + 1]
    values_int += [-1, -2, -3, -7] if limits.min < 0 else [5, 6]
    tail = torch.randint(0 if limits.min == 0 else -50, 50, (64,), generator=generator)
    return torch.cat([torch.tensor(values_int, dtype=dtype), tail.to(dtype)])[:64]


def pair(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Two vectors of 4096 elements that hold every pair of special values."""
    values = special(dtype)
    return values.repeat_interleave(64), values.repeat(64)
