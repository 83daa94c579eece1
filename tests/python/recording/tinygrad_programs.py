# SPDX-License-Identifier: Apache-2.0
"""What the programs of tinygrad are written with, beside tinygrad itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest

__all__ = ["calls", "of", "random_of", "runs", "square"]

os.environ.setdefault("DEV", "CPU")
if shutil.which(os.environ.get("CC", "clang")) is None:
    pytest.skip("tinygrad compiles with clang", allow_module_level=True)
tinygrad = pytest.importorskip("tinygrad")
numpy = pytest.importorskip("numpy")


def of(*values: float, dtype: str = "float32") -> Any:
    """A vector in memory."""
    return tinygrad.Tensor(numpy.array(values, dtype=dtype)).realize()


def random_of(*sizes: int) -> Any:
    """Random numbers in memory; always the same ones would hide a replay of old inputs."""
    return tinygrad.Tensor(numpy.random.randn(*sizes).astype("float32")).realize()


def square(size: int) -> Any:
    return tinygrad.Tensor.ones(size, size).contiguous().realize()


def calls(function: Callable[..., Any], count: int = 5) -> list[float]:
    """Call with vectors of one element, 0, 1, ...; the first runs, the second is captured."""
    return [function(of(number)).item() for number in range(count)]


def runs(function: Callable[..., Any], state: Callable[[], Any], count: int = 5) -> list[Any]:
    """What some state is after each of such calls."""
    found = []
    for number in range(count):
        function(of(number))
        found.append(state())
    return found
