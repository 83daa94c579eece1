# SPDX-License-Identifier: Apache-2.0
"""Loops of `while_loop` that a recorded call runs: Dynamo, as a part of eager's, is not there.

The operator carries a flat tuple. It is Dynamo that makes one of what a step returns, and gives the
results the structure of that.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

__all__ = ["run_loop"]


def run_loop(
    condition: Callable[..., Any], step: Callable[..., Any], carried: Sequence[Any], *rest: Any
) -> Any:
    """Return what eager's `while_loop` does; `step` is PyTorch's, around the user's."""
    spec: Any = None

    def flat_step(*now: Any) -> tuple[Any, ...]:
        nonlocal spec
        leaves, spec = pytree.tree_flatten(step(*now))
        return tuple(leaves)

    results = torch.ops.higher_order.while_loop(condition, flat_step, carried, *rest)
    if spec is None:  # no step: of the structure of what it starts with
        given = inspect.getclosurevars(step).nonlocals.get("in_spec")
        spec = given and (given.child(0) if hasattr(given, "child") else given.children_specs[0])
    return results if spec is None else pytree.tree_unflatten(results, spec)
