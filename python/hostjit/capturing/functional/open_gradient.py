# SPDX-License-Identifier: Apache-2.0
"""`torch.gradient`: differences of neighbours along dims of open size."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch import _prims_common as utils

__all__ = ["GRADIENTS"]

aten = torch.ops.aten


def gradient(
    x: Tensor,
    *,
    spacing: Any = None,
    dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> list[Tensor]:
    """The derivative along each dim, by central differences, and one-sided ones at the ends.

    Args:
        x: the values.
        spacing: the distance of neighbours, or one for each dim, or the places of all elements
            along each dim.
        dim: those along which it is; all if there is none.
        edge_order: 1 or 2; the order of the differences at the ends.

    Raises RuntimeError where eager does.
    """
    if x.dtype is torch.uint8 or edge_order not in (1, 2):
        raise RuntimeError("torch.gradient takes no uint8, and an edge_order of 1 or 2")
    given = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    dims = utils.canonicalize_dims(x.dim(), tuple(given))
    if len(set(dims)) < len(dims) or any(x.shape[d] < edge_order + 1 for d in dims):
        raise RuntimeError("torch.gradient takes dims that differ, with edge_order + 1 elements")
    is_one = not isinstance(spacing, (list, tuple))
    steps = [1.0 if spacing is None else spacing] * len(dims) if is_one else [*spacing]
    if len(steps) != len(dims):
        raise RuntimeError("torch.gradient takes one spacing, or one for each dim")
    along = functools.partial(_along, x, edge_order=edge_order)
    return [along(d, step) for d, step in zip(dims, steps, strict=True)]


def _along(x: Tensor, dim: int, step: Any, *, edge_order: int) -> Tensor:
    size = x.shape[dim]
    is_even = not isinstance(step, Tensor)
    if not is_even and (step.dim() != 1 or step.shape[0] != size):
        raise RuntimeError("torch.gradient takes the places along a dim as a vector of its size")

    def values(first: Any, count: Any = 1) -> Tensor:
        part: Tensor = x.narrow(dim, first, count)
        return part

    inner, last = size - 2, size - 1
    if is_even:
        middle = (values(2, inner) - values(0, inner)) / step / 2
        widths = [step] * (2 * edge_order)
    else:
        gaps = step.diff()
        shape = [inner if d == dim else 1 for d in range(x.dim())]
        left, right = gaps.narrow(0, 0, inner), gaps.narrow(0, 1, inner)
        before, at, after = (
            weight.reshape(shape)
            for weight in (
                -right / (left * (left + right)),
                (right - left) / (left * right),
                left / (right * (left + right)),
            )
        )
        middle = before * values(0, inner) + at * values(1, inner) + after * values(2, inner)
        widths = [gaps[place] for place in ((0, 1, -2, -1) if edge_order == 2 else (0, -1))]
    if edge_order == 1:
        start = (values(1) - values(0)) / widths[0]
        end = (values(last) - values(inner)) / widths[-1]
    else:
        start = _edge(values(0), values(1), values(2), *widths[:2])
        end = -_edge(values(last), values(inner), values(inner - 1), *reversed(widths[2:]))
    return torch.cat([start, middle, end], dim)


def _edge(at: Tensor, near: Tensor, far: Tensor, first: Any, second: Any) -> Tensor:
    """The derivative at the first of three places, by the distances from one to the next."""
    both = first + second
    derivative: Tensor = at * (-(first + both) / (first * both))
    derivative += near * (both / (first * second))
    derivative += far * (-first / (second * both))
    return derivative


GRADIENTS: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    getattr(aten.gradient, overload): gradient for overload in aten.gradient.overloads()
}
