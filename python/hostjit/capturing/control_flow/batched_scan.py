# SPDX-License-Identifier: Apache-2.0
"""`scan` under `vmap`: one that works on all items, which are the last dim of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import _functorch
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter
from torch._functorch.vmap import restore_vmap

from hostjit.capturing.control_flow.batched_cond import Inline, is_batched
from hostjit.capturing.graph_module import graph_module

__all__ = ["batched_scan"]


def batched_scan(
    step: torch.fx.GraphModule,
    *lists: Sequence[Any],
    inline: Inline,
    record: Callable[..., Sequence[torch.Tensor]],
) -> tuple[torch.Tensor, ...]:
    """Return the results of a `scan` in the innermost `vmap`, in the layout that eager's have.

    Args:
        step: the graph of the `scan`.
        lists: what it carries, walks and reads.
        inline: runs a region as a part of the program.
        record: records a `scan` outside of this `vmap`.
    """
    interpreter: Any = retrieve_current_functorch_interpreter()
    level = interpreter.level()
    dims = tuple(-1 if is_batched([value]) else None for values in lists for value in values)
    found: list[int | None] = []

    def call(*operands: Any) -> tuple[Any, ...]:
        run = restore_vmap(
            lambda *items: tuple(inline(step, items)),
            dims,
            interpreter.batch_size(),
            interpreter.randomness(),
        )
        results, where = run(*operands)
        found[:] = where
        return tuple(
            value if dim is None else value.movedim(dim, -1)
            for value, dim in zip(results, where, strict=True)
        )

    graph = torch.fx.Graph()
    given = tuple(graph.placeholder(f"operand_{index}") for index in range(len(dims)))
    graph.output(graph.call_function(call, given))
    with interpreter.lower():
        lower = [[_with_items_last(value) for value in values] for values in lists]
        results = record(graph_module({}, graph), *lower)
    return tuple(
        result if dim is None else _functorch._add_batch_dim(result, result.dim() - 1, level)
        for result, dim in zip(results, found, strict=True)
    )


def _with_items_last(value: Any) -> Any:
    if not is_batched([value]):
        return value
    return _functorch.get_unwrapped(value).movedim(_functorch.maybe_get_bdim(value), -1)
