# SPDX-License-Identifier: Apache-2.0
"""`cond` under `vmap`: a choice for each item, or one of branches that work on all items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import _functorch
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter

from hostjit.capturing.graph_module import graph_module

__all__ = ["batched_cond", "is_batched"]

Inline = Callable[[torch.fx.GraphModule, Sequence[Any]], Any]


def is_batched(values: Sequence[Any]) -> bool:
    """Whether some of the operands have a dim that `vmap` hides."""
    return any(isinstance(v, torch.Tensor) and _functorch.is_batchedtensor(v) for v in values)


def batched_cond(
    predicate: torch.Tensor,
    yes: torch.fx.GraphModule,
    no: torch.fx.GraphModule,
    operands: Sequence[Any],
    *,
    inline: Inline,
    record: Callable[..., Any],
) -> Any:
    """Return the results of a `cond` in the innermost `vmap`.

    Where the predicate is batched, both branches run, as in eager mode.

    Args:
        predicate: of the `cond`, as are the arguments that follow.
        yes: its graph where the predicate is true.
        no: the other.
        operands: what it is given.
        inline: runs a region as a part of the program.
        record: records a `cond` outside of this `vmap`.
    """
    if is_batched([predicate]):
        results = zip(inline(yes, operands), inline(no, operands), strict=True)
        return tuple(torch.where(predicate, one, other) for one, other in results)
    interpreter = retrieve_current_functorch_interpreter()
    level = interpreter.level()
    # PyTorch takes none that another vmap alone, around this one, has made batches of.
    dims = [_functorch.maybe_get_bdim(v) if is_batched([v]) else None for v in operands]
    lower = [_functorch.get_unwrapped(v) if is_batched([v]) else v for v in operands]
    branches = [_over_batches(branch, dims, inline) for branch in (yes, no)]
    with interpreter.lower():
        found = record(predicate, *branches, lower)
    return tuple(_functorch._add_batch_dim(result, 0, level) for result in found)


def _over_batches(
    branch: torch.fx.GraphModule, dims: Sequence[int | None], inline: Inline
) -> torch.fx.GraphModule:
    """Return a graph that calls a branch for all items; they are the first dim of its results."""

    def call(*operands: Any) -> Any:
        return tuple(inline(branch, operands))

    graph = torch.fx.Graph()
    given = tuple(graph.placeholder(f"operand_{index}") for index in range(len(dims)))
    graph.output(graph.call_function(torch.vmap(call, in_dims=tuple(dims)), given))
    return graph_module({}, graph)
