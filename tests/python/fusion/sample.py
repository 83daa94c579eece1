# SPDX-License-Identifier: Apache-2.0
"""What a sample of an operation is, and inputs for them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["SAMPLES", "Sample", "add", "bools", "floats", "ints", "special", "unit", "wide"]


@dataclasses.dataclass(frozen=True)
class Sample:
    """A use of an operation.

    Attributes:
        inputs: makes tensors, and numbers for symbolic scalars.
        define: takes the definition and its inputs, returns a tensor or several.
        expected: computes the same of the inputs.
    """

    inputs: Callable[[], list[Any]]
    define: Callable[..., Any]
    expected: Callable[..., Any]


SAMPLES: dict[str, list[Sample]] = {}


def add(name: str, inputs: Callable[[], list[Any]], define: Any, expected: Any) -> None:
    """Add a sample of an operation."""
    SAMPLES.setdefault(name, []).append(Sample(inputs, define, expected))


def floats(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(sizes).to(dtype)


def unit(*sizes: int) -> torch.Tensor:
    """Numbers between 0.1 and 0.9."""
    return torch.rand(sizes) * 0.8 + 0.1


def ints(*sizes: int, dtype: torch.dtype = torch.int64, low: int = -9) -> torch.Tensor:
    return torch.randint(low, 9, sizes, dtype=dtype)


def bools(*sizes: int) -> torch.Tensor:
    return torch.rand(sizes) > 0.5


def special() -> torch.Tensor:
    return torch.tensor([0.0, -0.0, 1.5, -2.5, math.inf, -math.inf, math.nan])


def wide(x: torch.Tensor) -> torch.Tensor:
    """The operand of an operation that computes in Float what is narrower."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
