# SPDX-License-Identifier: Apache-2.0
"""What LLVM is told of loops."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit.kernels.sizes import Size

__all__ = ["is_unrolled_too_early", "keep_rolled"]

# Shorter loops fill no vector; longer ones LLVM unrolls only after it has vectorised them.
_SHORTEST = 8
_LONGEST = 256


def is_unrolled_too_early(size: Size) -> bool:
    """Whether LLVM may unroll an innermost loop of so many iterations before it vectorises it."""
    return isinstance(size, int) and _SHORTEST <= size <= _LONGEST


def keep_rolled(module: Any, branch: Any) -> None:
    """Ask LLVM not to unroll the loop that ends in `branch` before it is vectorised.

    A short loop is otherwise unrolled at first, and the loop around it is vectorised instead, by
    gathers. What vectorisation leaves may be unrolled, so that its slots become registers.
    """
    name = f"loop {len(module.metadata)}"
    vectorised = ["llvm.loop.isvectorized", ir.Constant(ir.IntType(32), 1)]
    identity = module.add_metadata(
        [name, ["llvm.loop.unroll.disable"], ["llvm.loop.vectorize.followup_all", vectorised]]
    )
    # By its first operand, itself, LLVM tells a loop from others.
    identity.operands = (identity, *identity.operands[1:])
    branch.set_metadata("llvm.loop", identity)
