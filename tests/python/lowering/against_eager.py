# SPDX-License-Identifier: Apache-2.0
"""Compares compiled functions with eager, in both runtimes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import hostjit

__all__ = ["RUNTIMES", "check_compiled"]

RUNTIMES = ("jit", "evaluator")


def check_compiled(
    function: Callable[..., Any],
    *arguments: torch.Tensor,
    runtime: str = "jit",
    fused: bool = True,
    **tolerances: Any,
) -> None:
    """Check values, dtypes and strides; with `fused`, also that no ATen call is left."""
    compiled = hostjit.compile(function, runtime=runtime)
    actual, expected = compiled(*arguments), function(*arguments)
    torch.testing.assert_close(actual, expected, equal_nan=True, check_stride=True, **tolerances)
    if fused:
        assert "aten_call" not in compiled.host_ir()
