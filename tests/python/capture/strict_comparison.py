# SPDX-License-Identifier: Apache-2.0
"""Comparison of a compiled function with eager to the strides, and its Host IR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import hostjit

RUNTIMES = ["jit", "evaluator"]


def check(target: Callable[..., Any], *args: Any, runtime: str = "jit") -> str:
    """Compare with eager, strides and NaN included; returns the Host IR."""
    fast = hostjit.compile(target, runtime=runtime)
    with torch.no_grad():
        expected = target(*args)
        for _ in range(2):
            torch.testing.assert_close(fast(*args), expected, check_stride=True, equal_nan=True)
    return str(fast.host_ir())
