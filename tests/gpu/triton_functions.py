# SPDX-License-Identifier: Apache-2.0
"""Functions of `@triton.jit`, for tests where Triton is installed."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["scale", "tuned"]


@triton.jit
def scale(y, x, a, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, a * tl.load(x + i, mask=i < n), mask=i < n)


tuned = triton.autotune(
    configs=[
        triton.Config({"BLOCK": 128}, num_warps=2),
        triton.Config({"BLOCK": 512}, num_warps=8),
    ],
    key=["n"],
)(scale)
