# SPDX-License-Identifier: Apache-2.0
"""Hooks that run in backward passes, and modes of these, which a recording is made without."""

from __future__ import annotations

from typing import Any

import torch

from hostjit import _C

__all__ = ["AddedHook", "adds_hook", "backward_is_plain", "has_hooks", "hooks_of"]


def hooks_of(tensor: torch.Tensor) -> tuple[Any, Any]:
    """Return the dicts with hooks of a tensor, None for each that it hasn't got."""
    return tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None)


class AddedHook:
    """A hook that a recorded call has added to a tensor which was there before.

    Attributes:
        problem: that it did so, in words.
    """

    def __init__(self, tensor: torch.Tensor, problem: str) -> None:
        self.problem = problem
        self._tensor = tensor
        self._before = self._items()

    def _items(self) -> list[list[tuple[Any, Any]]]:
        return [list((hooks or {}).items()) for hooks in hooks_of(self._tensor)]

    def stays(self) -> bool:
        """Tell whether the tensor has other hooks than when this was made."""
        return self._items() != self._before


def has_hooks(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor has a hook, or a graph; or the node that accumulates its gradient."""
    return any(hooks_of(tensor)) or not _C.is_plain_leaf(tensor)


def backward_is_plain() -> bool:
    """Tell whether backward passes are neither looked at nor given what hooks make of tensors."""
    hooks: Any = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks is None and not torch.is_anomaly_enabled()


def adds_hook(function: Any) -> bool:
    """Tell whether a function of C code is a method that adds a hook to a node of a graph."""
    name = getattr(function, "__name__", "")
    return name in ("register_hook", "register_prehook") and hasattr(
        getattr(function, "__self__", None), "next_functions"
    )
