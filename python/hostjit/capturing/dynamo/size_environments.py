# SPDX-License-Identifier: Apache-2.0
"""What PyTorch knows of the sizes of a capture, which it would keep for the rest of the process."""

from __future__ import annotations

from typing import Any

from torch.fx.experimental.symbolic_shapes import ShapeEnv

__all__ = ["let_go"]


def let_go(environment: Any) -> None:
    """Let an environment of sizes be freed, once nobody asks about the sizes of its fake tensors.

    These tensors refer to it where Python's garbage collection does not look, in the sizes of a
    `TensorImpl`, and it refers to them. Answers to questions are kept by classwide caches, some of
    them without an end.
    """
    environment.tracked_fakes = None
    for member in vars(ShapeEnv).values():
        clear = getattr(member, "cache_clear", None)
        if clear is not None:
            clear()
