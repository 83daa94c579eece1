# SPDX-License-Identifier: Apache-2.0
"""Small convolutions as matrix products or sums of shifted inputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

__all__ = ["convolution"]

Tensor = torch.Tensor

# Multiply-adds up to which this is faster than the library, which spends some 10 us on a call.
_MAX_MULTIPLY_ADDS = 1 << 24
# Elements of the unfolded input, and places of the window: each is one copy.
_MAX_UNFOLDED = 1 << 19
_MAX_TAPS = 32


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """aten.convolution over one or two dimensions; NotImplemented where the library is better.

    Shapes: x (batch, channels, *space), weight (outputs, channels / groups, *window),
    bias (outputs,); the result is (batch, outputs, *space).
    """
    rank = x.dim() - 2
    plain = (
        x.dtype in (torch.float32, torch.float64)
        and rank in (1, 2)
        and not transposed
        and 0 not in (*x.shape, *weight.shape)
    )
    taps = math.prod(weight.shape[2:])
    if not plain or taps > _MAX_TAPS:
        return NotImplemented
    stride, padding, dilation = (_per_dim(n, rank) for n in (stride, padding, dilation))
    space = [
        (size + 2 * pad - step * (window - 1) - 1) // jump + 1
        for size, pad, step, window, jump in zip(
            x.shape[2:], padding, dilation, weight.shape[2:], stride, strict=True
        )
    ]
    points = x.shape[0] * math.prod(space)
    if min(space) < 1 or points * weight.numel() > _MAX_MULTIPLY_ADDS:
        return NotImplemented
    depthwise = groups == x.shape[1] == weight.shape[0]
    if not depthwise and (groups > 1 or points * x.shape[1] * taps > _MAX_UNFOLDED):
        return NotImplemented
    if any(padding):
        x = torch.constant_pad_nd(x, [n for pad in reversed(padding) for n in (pad, pad)])
    shifted = _shifted(x, weight.shape[2:], space, stride, dilation)
    if depthwise:
        return _depthwise(shifted, weight, bias)
    return _as_product(shifted, weight, bias, space)


def _per_dim(numbers: Sequence[int], rank: int) -> list[int]:
    return list(numbers) * rank if len(numbers) == 1 else list(numbers)


def _shifted(
    x: Tensor,
    window: Sequence[int],
    space: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Iterator[Tensor]:
    """What each place of the window meets, (batch, channels, *space), as views."""
    for place in itertools.product(*map(range, window)):
        view = x
        for dim, (position, size, jump, step) in enumerate(
            zip(place, space, stride, dilation, strict=True)
        ):
            start = position * step
            view = torch.ops.aten.slice.Tensor(
                view, dim + 2, start, start + (size - 1) * jump + 1, jump
            )
        yield view


def _as_product(
    shifted: Iterator[Tensor], weight: Tensor, bias: Tensor | None, space: Sequence[int]
) -> Tensor:
    """Weight (outputs, channels * window) @ unfolded (channels * window, points)."""
    places = list(shifted)
    unfolded = places[0] if len(places) == 1 else torch.stack(places, 2)
    batch, outputs = unfolded.shape[0], weight.shape[0]
    matrix = weight.reshape(outputs, -1)
    columns = unfolded.reshape(batch, matrix.shape[1], -1)
    if batch == 1 and bias is not None:
        result = torch.addmm(bias.unsqueeze(1), matrix, columns[0])
    else:
        result = torch.bmm(matrix.expand(batch, -1, -1), columns)
        if bias is not None:
            result = result + bias.unsqueeze(1)
    return result.view(batch, outputs, *space)


def _depthwise(shifted: Iterator[Tensor], weight: Tensor, bias: Tensor | None) -> Tensor:
    """One window per channel: a sum that fuses to one kernel."""
    factors = weight.flatten(1).unbind(1)
    ones = [1] * (weight.dim() - 2)
    total: Tensor | None = None if bias is None else bias.view(-1, *ones)
    for view, factor in zip(shifted, factors, strict=True):
        product = view * factor.view(-1, *ones)
        total = product if total is None else total + product
    assert total is not None
    return total
