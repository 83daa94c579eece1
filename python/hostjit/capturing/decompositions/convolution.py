# SPDX-License-Identifier: Apache-2.0
"""Small convolutions as products or sums of shifted inputs, very large ones in parts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hostjit.capturing.open_sizes import is_open, known, some, typical

__all__ = ["convolution"]

Tensor = torch.Tensor

# Places of the window: each is one copy.
_MAX_TAPS = 32


@dataclass(frozen=True)
class _Limits:
    """Up to where this is faster than the library, which spends some 10 us on a call, 40 on groups.

    `unfolded` counts the elements of the unfolded input, each of which is copied.
    """

    multiply_adds: int
    unfolded: int


_PLAIN = _Limits(1 << 24, 1 << 19)
# With one thread twice as fast as the library there; with two it does not fall behind.
_GROUPED = _Limits(1 << 21, 1 << 17)
# Rows that are shorter than a vector take five times as long to copy.
_GROUPED_IN_SHORT_ROWS = _Limits(1 << 21, 1 << 14)
_SHORT_ROW = 8
# Memory of so many bytes goes back to the system when freed (csrc/runtime/freed_memory.h), and so
# do the copies that the library makes: with such a result a convolution waits for new pages for a
# third to two thirds of its time.
_HUGE = (32 << 20) - (64 << 10)
# Bytes of the result of a part of the batch; 2 to 8 MiB differ by 5%. Larger ones rather than more
# than _MOST_PARTS: each is a call in the program.
_PART = 4 << 20
_LARGEST_PART = 16 << 20
_MOST_PARTS = 64


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
    """aten.convolution; NotImplemented where it is best as it is.

    Shapes: x (batch, channels, *space), weight (outputs, channels / groups, *window),
    bias (outputs,); the result is (batch, outputs, *space).
    """
    rank = x.dim() - 2
    if transposed or not some((*x.shape, *weight.shape)):
        return NotImplemented
    # The batch alone may be open.
    if any(is_open(size) for size in (*x.shape[1:], *weight.shape)):
        return NotImplemented
    stride, padding, dilation = (_per_dim(n, rank) for n in (stride, padding, dilation))
    space = [
        (size + 2 * pad - step * (window - 1) - 1) // jump + 1
        for size, pad, step, window, jump in zip(
            x.shape[2:], padding, dilation, weight.shape[2:], stride, strict=True
        )
    ]
    if min(space) < 1:
        return NotImplemented
    points = typical(x.shape[0]) * math.prod(space)
    depthwise = groups == x.shape[1] == weight.shape[0]
    limits = _PLAIN
    if groups > 1 and not depthwise:
        limits = _GROUPED if space[-1] >= _SHORT_ROW else _GROUPED_IN_SHORT_ROWS
    taps = math.prod(weight.shape[2:])
    unfolded = 0 if depthwise else points * x.shape[1] * taps
    is_large = points * weight.numel() > limits.multiply_adds or unfolded > limits.unfolded
    if is_large:
        options = (weight, bias, stride, padding, dilation, transposed, output_padding, groups)
        return _by_the_library(x, options, points * weight.shape[0])
    if x.dtype not in (torch.float32, torch.float64) or rank not in (1, 2):
        return NotImplemented
    plain = groups == 1 and not any(padding) and all(step == 1 for step in dilation)
    if taps > 1 and plain and stride == list(weight.shape[2:]):
        return _product_with(_patches(x, stride, space), weight, bias, space)
    if taps > _MAX_TAPS:
        return NotImplemented
    if any(padding):
        x = torch.constant_pad_nd(x, [n for pad in reversed(padding) for n in (pad, pad)])
    shifted = _shifted(x, weight.shape[2:], space, stride, dilation)
    if depthwise:
        return _depthwise(shifted, weight, bias)
    if groups > 1:
        return _as_products(shifted, weight, bias, groups)
    return _as_product(shifted, weight, bias, space)


def _by_the_library(x: Tensor, options: tuple[Any, ...], elements: int) -> Any:
    """Huge ones in parts of the batch, or in channels_last, which the library does without copies.

    For others the copies of the operands take as long as the library gains: a Zen 5 took 0.78 to
    0.98 of the time with 32 to 256 channels, a Zen 4 0.98 to 1.14.
    """
    weight, groups = options[0], options[-1]
    if is_open(x.shape[0]) or not (x.is_contiguous() and weight.is_contiguous()):
        return NotImplemented
    is_huge = elements * x.itemsize >= _HUGE
    of_image = elements // x.shape[0] * x.itemsize
    if is_huge and of_image <= _LARGEST_PART // 2:
        part = min(max(_PART, elements * x.itemsize // _MOST_PARTS), _LARGEST_PART)
        parts = x.split(max(1, part // of_image))
        return torch.cat([torch.ops.aten.convolution.default(part, *options) for part in parts])
    if not is_huge or groups != 1 or x.dim() != 4 or x.dtype is not torch.float32:
        return NotImplemented
    x, weight = (operand.contiguous(memory_format=torch.channels_last) for operand in (x, weight))
    if x.is_contiguous() and weight.is_contiguous():  # one channel: both formats are the same
        return NotImplemented
    return torch.ops.aten.convolution.default(x, weight, *options[1:]).contiguous()


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
    return _product_with(unfolded, weight, bias, space)


def _patches(x: Tensor, window: Sequence[int], space: Sequence[int]) -> Tensor:
    """Windows that lie side by side, as a view: (batch, channels, *window, *space)."""
    view = x
    for dim, (width, count) in reversed([*enumerate(zip(window, space, strict=True), start=2)]):
        inside = torch.ops.aten.slice.Tensor(view, dim, 0, count * width)
        view = inside.unflatten(dim, (count, width))
    rank = len(window)
    return view.permute(0, 1, *range(3, 3 + 2 * rank, 2), *range(2, 2 + 2 * rank, 2))


def _product_with(
    unfolded: Tensor, weight: Tensor, bias: Tensor | None, space: Sequence[int]
) -> Tensor:
    batch, outputs = unfolded.shape[0], weight.shape[0]
    matrix = weight.reshape(outputs, -1)
    columns = unfolded.reshape(batch, matrix.shape[1], -1)
    if known(batch == 1) and bias is not None:
        result = torch.addmm(bias.unsqueeze(1), matrix, columns[0])
    else:
        result = torch.bmm(matrix.expand(batch, -1, -1), columns)
        if bias is not None:
            result = result + bias.unsqueeze(1)
    return result.view(batch, outputs, *space)


def _as_products(
    shifted: Iterator[Tensor], weight: Tensor, bias: Tensor | None, groups: int
) -> Tensor:
    """One product per group: what the batch adds are more columns."""
    # (groups, channels of one, batch, *space)
    places = [view.unflatten(1, (groups, -1)).movedim(0, 2) for view in shifted]
    unfolded = places[0] if len(places) == 1 else torch.stack(places, 2)
    batch, *space = places[0].shape[2:]
    matrices = weight.reshape(groups, weight.shape[0] // groups, -1)
    products = torch.bmm(matrices, unfolded.reshape(groups, matrices.shape[2], -1))
    if known(batch == 1):
        result = products.view(1, -1, *space)
    else:
        result = products.view(groups, -1, batch, *space).movedim(2, 0).flatten(1, 2)
    return result if bias is None else result + bias.view(-1, *[1] * len(space))


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
