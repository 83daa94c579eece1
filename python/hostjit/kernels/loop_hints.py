# SPDX-License-Identifier: Apache-2.0
"""What LLVM is told of loops."""

from __future__ import annotations

from typing import Any

__all__ = ["keep_rolled"]


def keep_rolled(module: Any, branch: Any) -> None:
    """Ask LLVM not to unroll the loop that ends in `branch`.

    A short loop is otherwise unrolled before it can be vectorised, and the loop around it is
    vectorised instead.
    """
    identity = module.add_metadata([f"loop {len(module.metadata)}", ["llvm.loop.unroll.disable"]])
    # By its first operand, itself, LLVM tells a loop from others.
    identity.operands = (identity, *identity.operands[1:])
    branch.set_metadata("llvm.loop", identity)
