# SPDX-License-Identifier: Apache-2.0
"""The ways in which second derivatives are tested."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

__all__ = ["COMPILERS", "in_each_way", "leaf"]

COMPILERS: dict[str, Callable[[Any], Any]] = {
    "compile": hostjit.compile,
    "evaluator": functools.partial(hostjit.compile, runtime="evaluator"),
    "capture": hostjit.capture,
    "backend": functools.partial(torch.compile, backend="hostjit"),
}
in_each_way = pytest.mark.parametrize("way", list(COMPILERS))


def leaf(*sizes: int) -> Tensor:
    """Return what gradients are asked of, normally distributed."""
    return torch.randn(*sizes, dtype=torch.float64, requires_grad=True)
