# SPDX-License-Identifier: Apache-2.0
"""Calls of an operator or a module with other sizes than those of the database's samples."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map

from conformance.case import Call, seed_everything

__all__ = ["resized"]

# Some operators take sizes of a kind: those of samples plus a few, or in the same proportions.
_CHANGES: tuple[Callable[[int], int], ...] = (
    lambda size: size + 1,
    lambda size: size + 2,
    lambda size: 2 * size,
    lambda size: 3 * size,
)
# How many other sizes a dim takes.
_COUNT = 2


def resized(call: Call) -> list[list[Call]]:
    """Return groups of calls like one, each of two, in whose tensors other dims have other sizes.

    The dims of all sizes but one and zero, if eager takes that; otherwise groups for each size that
    may be another by itself. None for what has no such dim, or other tensors than dense ones, and
    for modules that take their sizes from the first call.
    """
    if isinstance(call.function, torch.nn.Module) and any(map(is_lazy, call.function.parameters())):
        return []
    tensors = [x for x in tree_leaves((call.args, call.kwargs)) if isinstance(x, torch.Tensor)]
    if any(x.layout is not torch.strided or x.is_nested for x in tensors):
        return []
    sizes = sorted({size for x in tensors for size in x.shape if size > 1})
    together = _calls(call, sizes)
    if together or len(sizes) < 2:
        return [together] if together else []
    return [found for size in sizes if (found := _calls(call, [size]))]


def _calls(call: Call, sizes: Collection[int]) -> list[Call]:
    """Calls with the first changes of such sizes that eager takes; none if those are too few."""
    found: list[Call] = []
    for change in _CHANGES:
        seed_everything()

        def changed(value: Any, change: Callable[[int], int] = change) -> Any:
            return _resized(value, sizes, change) if isinstance(value, torch.Tensor) else value

        args, kwargs = tree_map(changed, (call.args, call.kwargs))
        other = dataclasses.replace(call, args=args, kwargs=kwargs)
        if len(found) < _COUNT and sizes and _is_taken(other):
            found.append(other)
    return found if len(found) == _COUNT else []


def _resized(x: torch.Tensor, sizes: Collection[int], change: Callable[[int], int]) -> torch.Tensor:
    """A tensor of the same kind of elements: repeated ones, floats a little larger each."""
    found = x.detach().resolve_conj().resolve_neg()
    for dim, size in enumerate(x.shape):
        if size in sizes:
            times = [1] * x.dim()
            times[dim] = -(-change(size) // size)
            found = found.repeat(times).narrow(dim, 0, change(size))
    if found.is_floating_point() or found.is_complex():
        found = (found * (1 + 0.05 * torch.rand(found.shape))).to(x.dtype)
    order = sorted(range(x.dim()), key=lambda dim: -x.stride(dim))
    found = found.permute(order).contiguous()
    return found.permute([order.index(dim) for dim in range(x.dim())]).requires_grad_(
        x.requires_grad
    )


def _is_taken(call: Call) -> bool:
    """Whether eager takes a call."""
    args, kwargs = tree_map(
        lambda value: value.detach().clone() if isinstance(value, torch.Tensor) else value,
        (call.args, call.kwargs),
    )
    is_module = isinstance(call.function, torch.nn.Module)
    function = copy.deepcopy(call.function) if is_module else call.function
    try:
        with torch.no_grad():
            function(*args, **kwargs)
    except Exception:
        return False
    return True
