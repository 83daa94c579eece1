# SPDX-License-Identifier: Apache-2.0
"""What the backward pass of a recorded call depends on besides values: hooks, graphs and modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.recording.errors import refusal_of
from hostjit.recording.graph.inputs import Gradient, Leaf, Source
from hostjit.recording.running.gradient_hooks import backward_is_plain, has_hooks, hooks_of

__all__ = ["BackwardPass", "unhooked_leaves"]


class BackwardPass:
    """The tensors outside of the arguments that a pass may reach, and where their hooks are."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        reached = [tensor for tensor in tensors if tensor.requires_grad]
        self._hooks = [(tensor, hooks_of(tensor)) for tensor in reached]
        self._plain = [tensor for tensor in reached if _C.is_plain_leaf(tensor)]

    def differs(self) -> bool:
        """Tell whether it would be another pass than it was."""
        now = ((hooks_of(tensor), hooks) for tensor, hooks in self._hooks)
        if any(a is not b for pair in now for a, b in zip(*pair, strict=True)):
            return True
        return not (all(map(_C.is_plain_leaf, self._plain)) and backward_is_plain())

    def watches(self) -> list[tuple[Any, ...]]:
        """Return what the call path compares."""
        return [
            *(("hooks", tensor) for tensor, _ in self._hooks),
            *(("plain_leaf", tensor) for tensor in self._plain),
            ("plain_backward",),
        ]


def unhooked_leaves(sources: Sequence[Source], leaves: Sequence[torch.Tensor]) -> list[int]:
    """Return which tensors of the arguments a backward pass reaches.

    Raises CaptureError for hooks, and for tensors with a graph that the pass may go on into.
    """
    for source in sources:
        if isinstance(source, Gradient) or not source.tensor.requires_grad:
            continue
        if not source.tensor.is_leaf:
            raise refusal_of(
                "it runs a backward pass, and takes a tensor that was computed outside with "
                "gradients, where the pass may go on"
            )
        if not _C.is_plain_leaf(source.tensor):
            raise refusal_of("nodes of graphs have hooks, which a backward pass runs")
    used = {source.index for source in sources if isinstance(source, Leaf)}
    found = [index for index in sorted(used) if leaves[index].requires_grad]
    if any(has_hooks(leaves[index]) for index in found):
        raise refusal_of("an argument has hooks, which a backward pass runs")
    return found
