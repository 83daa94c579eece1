# SPDX-License-Identifier: Apache-2.0
"""Operators whose fake tensors have other strides than eager's results, by others that agree.

Where an operand is not packed in the format of the result it is packed first, which fuses; where
PyTorch's traces forget channels_last, dimensions are named in the order in which they lie.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from hostjit.capturing.open_sizes import is_open, known

__all__ = ["MEMORY_FORMATS"]

aten = torch.ops.aten
Tensor = torch.Tensor


def _of_packed(
    func: torch._ops.OpOverload, format_of: Callable[[Tensor], torch.memory_format]
) -> Callable[..., Any]:
    """An operator whose results have a memory format, whatever strides its operand has."""

    def apply(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        memory_format = format_of(x)
        if x.is_contiguous(memory_format=memory_format):
            return func.decompose(x, *args, **kwargs)
        return func(x.contiguous(memory_format=memory_format), *args, **kwargs)

    return apply


def _always_contiguous(_: Tensor) -> torch.memory_format:
    return torch.contiguous_format


def _rrelu(
    x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, *rest: Any
) -> Any:
    """Both results are contiguous; without training nothing is random."""
    x = x.contiguous()
    if training:
        return aten.rrelu.default.decompose(x, lower, upper, training, *rest)
    return torch.nn.functional.leaky_relu(x, (lower + upper) / 2)


def _channels_last_order(x: Tensor) -> list[int] | None:
    """The dimensions of an operand in channels_last as they lie in memory; None of others."""
    if suggest_memory_format(x) is torch.contiguous_format:
        return None
    return [0, *range(2, x.dim()), 1]


def _as_before(x: Tensor, order: Sequence[int]) -> Tensor:
    return x.permute([order.index(dim) for dim in range(x.dim())])


def _roll(x: Tensor, shifts: Sequence[Any], dims: Sequence[int] = ()) -> Any:
    """In channels_last, where dimensions are named: as they lie in memory, as the result does.

    On CUDA results are contiguous.
    """
    if x.is_cuda:
        return _of_contiguous(aten.roll.default, x, shifts, dims)
    order = _channels_last_order(x) if dims else None
    if order is None or not all(map(functools.partial(_stays_channels_last, x), shifts, dims)):
        return NotImplemented
    places = [order.index(dim % x.dim()) for dim in dims]
    return _as_before(aten.roll.default(x.permute(order), shifts, places), order)


def _stays_channels_last(x: Tensor, shift: Any, dim: int) -> bool:
    """Whether both parts that eager puts together look so; one that is empty does not."""
    size = x.shape[dim]
    if is_open(size) or is_open(shift):
        return True
    start = (size - shift) % size if size else 0
    parts = x.narrow(dim, start, size - start), x.narrow(dim, 0, start)
    return all(suggest_memory_format(part) is not torch.contiguous_format for part in parts)


def _packed(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def _of_contiguous(func: torch._ops.OpOverload, x: Tensor, *args: Any) -> Any:
    """The operator for an operand that has other strides, packed."""
    return NotImplemented if x.is_contiguous() else func(_packed(x), *args)


def _channel_shuffle(x: Tensor, groups: int) -> Any:
    """In channels_last: a transpose of groups and their channels, which are last in memory.

    On CUDA results are contiguous, and operands such that pixels are one dimension.
    """
    if x.is_cuda and groups > 0 and known(x.shape[1] % groups == 0):
        apart = x.view(x.shape[0], groups, x.shape[1] // groups, -1)
        return _packed(apart.permute(0, 2, 1, 3)).view(x.shape)
    order = _channels_last_order(x)
    if order is None or groups < 1 or not known(x.shape[1] % groups == 0):
        return NotImplemented
    channels = x.permute(order).unflatten(-1, (groups, x.shape[1] // groups))
    return _as_before(_packed(channels.transpose(-1, -2)).flatten(-2), order)


def _pixels(func: torch._ops.OpOverload, x: Tensor, factor: int) -> Any:
    """Rearranged pixels, which on CUDA are contiguous whatever the operand is."""
    return _of_contiguous(func, x, factor) if x.is_cuda else NotImplemented


def _of_first_dim(
    func: torch._ops.OpOverload, place: int, x: Tensor, *args: Any, **kwargs: Any
) -> Any:
    """Distinct slices along a dim, which is argument `place`: on CUDA contiguous, as gathered."""
    dim = args[place] if len(args) > place else kwargs.get("dim")
    if not x.is_cuda or dim is None or dim % max(x.dim(), 1) == 0:
        return NotImplemented
    others = (*args[:place], 0, *args[place + 1 :])
    if len(args) <= place:
        others, kwargs = args, kwargs | {"dim": 0}
    slices, *rest = func(x.movedim(dim, 0), *others, **kwargs)
    return (_packed(slices.movedim(0, dim)), *rest)


# Their results are in channels_last if the operand is, and contiguous otherwise.
_NORMS = (
    *(aten.native_batch_norm.default, aten._native_batch_norm_legit.no_stats),
    aten._native_batch_norm_legit_functional.default,
    aten._native_batch_norm_legit_no_training.default,
    aten._batch_norm_with_update_functional.default,
)
_CONTIGUOUS = (aten.log_sigmoid_forward.default, aten.rrelu_with_noise_functional.default)
MEMORY_FORMATS: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    **{norm: _of_packed(norm, suggest_memory_format) for norm in _NORMS},
    **{operator: _of_packed(operator, _always_contiguous) for operator in _CONTIGUOUS},
    aten.channel_shuffle.default: _channel_shuffle,
    **{
        operator: functools.partial(_pixels, operator)
        for operator in (aten.pixel_shuffle.default, aten.pixel_unshuffle.default)
    },
    aten.roll.default: _roll,
    aten.rrelu.default: _rrelu,
    aten.unique_consecutive.default: functools.partial(
        _of_first_dim, aten.unique_consecutive.default, 2
    ),
    aten.unique_dim.default: functools.partial(_of_first_dim, aten.unique_dim.default, 0),
    aten.unique_dim_consecutive.default: functools.partial(
        _of_first_dim, aten.unique_dim_consecutive.default, 0
    ),
}
