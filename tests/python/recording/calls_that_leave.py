# SPDX-License-Identifier: Apache-2.0
"""Arguments of calls that run loops to their ends, and of others that leave them earlier."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["kinds_of", "rows"]

_SCALES = [9.0, 9.0, 0.1, 1.0, 2.5, 9.0, 0.4, 6.0, 0.0, 3.0, 1.5, 9.0]


def rows(*more: float) -> list[Tensor]:
    """Return arguments of four numbers: the first two keep loops running.

    `more`: about how large the numbers of further ones are.
    """
    generator = torch.Generator().manual_seed(0)
    return [x * (1 + 0.1 * torch.rand(4, generator=generator)) for x in (*_SCALES, *more)]


def kinds_of(value: Any) -> str:
    """Describe a result, but for the elements of its tensors and the digits of its floats."""
    if isinstance(value, tuple | list):
        return repr([type(value), *map(kinds_of, value)])
    if isinstance(value, Tensor):
        return repr((value.dtype, value.shape, value.stride()))
    return repr(value) if isinstance(value, int | str) else repr((type(value), str(value)[:1]))
