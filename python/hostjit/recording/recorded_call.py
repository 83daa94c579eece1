# SPDX-License-Identifier: Apache-2.0
"""Facts about the arguments and the result of a call that is recorded."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hostjit.capturing.arguments import (
    tensor_leaves,
)
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.overlap import may_overlap
from hostjit.capturing.tensors import TensorFacts

__all__ = [
    "is_released",
    "memory_is_shared",
    "moved_off",
    "placed_facts",
    "refusal_of",
]


def placed_facts(tensor: torch.Tensor) -> Any:
    """Return what a tensor is, and whose memory it has."""
    return TensorFacts.of(tensor), tensor.untyped_storage()._cdata


def moved_off(
    aligned: Sequence[int | torch.Tensor], leaves: Sequence[torch.Tensor]
) -> int | torch.Tensor | None:
    """Return which of some leaves and tensors has an address that 16 does not divide."""
    for place in aligned:
        tensor = place if isinstance(place, torch.Tensor) else leaves[place]
        if tensor.data_ptr() % 16 != 0:
            return place
    return None


def refusal_of(what: str) -> CaptureError:
    """Return the error that says why a call is not replayed."""
    return CaptureError(CaptureFailure.UNSUPPORTED_PROGRAM, what)


def memory_is_shared(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether two arguments may have an element in common."""
    pairs = itertools.combinations(tensor_leaves(args, kwargs), 2)
    return any(may_overlap(first, second) for first, second in pairs)


def is_released(result: torch.Tensor) -> bool:
    """Tell whether the graph of a result was used up by a backward pass."""
    pending, seen = [result.grad_fn], set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for name in dir(node):
            if name.startswith("_saved_"):
                try:
                    getattr(node, name)
                except RuntimeError as error:
                    # Else it was written, and a backward pass would raise.
                    if "been freed" in str(error) or "second time" in str(error):
                        return True
        pending.extend(follower for follower, _ in node.next_functions)
    return False
