# SPDX-License-Identifier: Apache-2.0
"""One loop, as basic blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit.kernels.loop_hints import is_unrolled_too_early, keep_rolled

__all__ = ["ZERO", "write_loop"]

_INDEX = ir.IntType(64)
ZERO = ir.Constant(_INDEX, 0)


def write_loop(
    builder: Any,
    name: str,
    first: Any,
    end: Any,
    body: Callable[[Any], None],
    *,
    maybe_empty: bool = False,
    innermost: bool = False,
) -> None:
    """Write a loop, tested at its bottom, and before if the range may be empty.

    What runs once, from `ZERO`, becomes no loop. An innermost one is to be vectorised.
    """
    if first is ZERO and isinstance(end, ir.Constant) and end.constant == 1:
        body(first)
        return
    before = builder.block
    loop = builder.function.append_basic_block(name)
    done = builder.function.append_basic_block(f"{name}_done")
    if maybe_empty:
        builder.cbranch(builder.icmp_unsigned("<", first, end), loop, done)
    else:
        builder.branch(loop)
    builder.position_at_end(loop)
    counter = builder.phi(_INDEX, name=f"{name}_counter")
    counter.add_incoming(first, before)
    body(counter)
    following = builder.add(counter, ir.Constant(_INDEX, 1), flags=("nuw", "nsw"))
    counter.add_incoming(following, builder.block)
    branch = builder.cbranch(builder.icmp_unsigned("==", following, end), done, loop)
    if innermost and isinstance(end, ir.Constant) and is_unrolled_too_early(end.constant):
        keep_rolled(builder.module, branch)
    builder.position_at_end(done)
