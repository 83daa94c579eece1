# SPDX-License-Identifier: Apache-2.0
"""Derivatives as the pointwise operators and reductions that they are made of.

As operators of their own they would be calls through PyTorch between the fused kernels of a
backward pass. The formulas are those of `torch._decomp`, or of eager's kernels where these round
otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._decomp.decompositions import Reduction, pw_cast_for_opmath

from hostjit.capturing.open_sizes import some

__all__ = ["BACKWARD_DECOMPOSITIONS"]

aten = torch.ops.aten
Tensor = torch.Tensor

_NAMES = (
    *("gelu", "hardsigmoid", "leaky_relu", "log_sigmoid", "mish", "sigmoid", "silu", "softplus"),
    *("tanh", "threshold", "binary_cross_entropy", "huber_loss", "mse_loss"),
    "native_dropout",
)
# Sums of them in half precision would be rounded in other places than the operators round.
_REDUCING = (
    *("_log_softmax_backward_data", "_softmax_backward_data", "native_layer_norm_backward"),
)
_FLOATS = (torch.float32, torch.float64)


def _find() -> dict[Any, Callable[..., Any]]:
    found: dict[Any, Callable[..., Any]] = {}
    for name in (*(f"{name}_backward" for name in _NAMES), *_REDUCING):
        operator = getattr(getattr(torch.ops.aten, name, None), "default", None)
        if operator in decomposition_table:
            decomposition = decomposition_table[operator]
            found[operator] = _of_floats(decomposition) if name in _REDUCING else decomposition
    return found


def _of_floats(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    def apply(gradient: Tensor, *args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        changes = any(isinstance(x, torch.dtype) and x is not gradient.dtype for x in given)
        if gradient.dtype not in _FLOATS or changes:
            return NotImplemented
        return decomposition(gradient, *args, **kwargs)

    return apply


_OF_TABLE = _find()

# NaN takes the branch that it takes in eager's vectors; in PyTorch's decompositions, another.


@pw_cast_for_opmath
def _elu(
    gradient: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, x: Tensor
) -> Tensor:
    slope = alpha * scale
    if is_result:
        negative = gradient * input_scale * (x + slope)
    else:
        negative = gradient * input_scale * slope * torch.exp(x * input_scale)
    return torch.where(x > 0, gradient * scale, negative)


@pw_cast_for_opmath
def _hardswish(gradient: Tensor, x: Tensor) -> Tensor:
    inside = torch.where(x >= 3, gradient, gradient * (x / 3 + 0.5))
    return torch.where(x <= -3, 0.0, inside)


@pw_cast_for_opmath
def _hardtanh(gradient: Tensor, x: Tensor, low: float, high: float) -> Tensor:
    return torch.where((x > low) & (x < high), gradient, 0.0)


@pw_cast_for_opmath
def _smooth_l1_loss(
    gradient: Tensor, x: Tensor, target: Tensor, reduction: int, beta: float
) -> Tensor:
    distance = x - target
    if reduction == Reduction.MEAN.value:
        gradient = gradient * (1.0 / x.numel())
    outside = torch.where(distance < 0, -gradient, gradient)
    return torch.where(distance.abs() >= beta, outside, gradient * distance / beta)


def _is_one_size(size: int | torch.SymInt) -> bool:
    """A number or a symbol: products of open sizes are left to operators."""
    return isinstance(size, int) or bool(size.node.expr.is_Symbol)


def _nll_loss(
    gradient: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Any:
    """At the class of each target, the gradient of its loss; the forward has checked targets."""
    if not all(_is_one_size(size) for size in (*x.shape, *target.shape)):
        return NotImplemented
    dim = min(x.dim() - 1, 1)
    classes = [1] * x.dim()
    classes[dim] = x.shape[dim]
    if reduction == Reduction.NONE.value:
        scale = -gradient.reshape(target.shape).unsqueeze(dim)
    elif reduction == Reduction.MEAN.value:
        scale = -(gradient / total_weight)
    else:
        scale = -gradient
    if weight is not None:
        scale = scale * weight.reshape(classes)
    target = target.reshape(x.shape[:dim] + x.shape[dim + 1 :]).unsqueeze(dim)
    number = torch.arange(x.shape[dim], dtype=target.dtype, device=x.device).reshape(classes)
    return torch.where((target == number) & (target != ignore_index), scale, 0.0)


def _batch_norm(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> Any:
    """By eager's formulas; with statistics that are given, nothing flows through them."""
    tensors = (gradient, x, weight, running_mean, running_var, save_mean, save_invstd)
    if any(tensor is not None and tensor.dtype != x.dtype for tensor in tensors):
        return NotImplemented
    if x.dtype not in _FLOATS or not some(x.shape):
        return NotImplemented
    channels = [1, x.shape[1], *[1] * (x.dim() - 2)]
    others = [dim for dim in range(x.dim()) if dim != 1]
    if train:
        assert save_mean is not None and save_invstd is not None
        mean, inverse = save_mean, save_invstd
    else:
        assert running_mean is not None and running_var is not None
        mean, inverse = running_mean, 1 / torch.sqrt(running_var + eps)
    distance = x - mean.reshape(channels)
    total = gradient.sum(others)
    product = (distance * gradient).sum(others)
    scale = inverse if weight is None else inverse * weight
    flow = gradient
    if train:
        count = x.numel() // x.shape[1]
        slope = product * inverse * inverse / count
        flow = flow - (total / count).reshape(channels) - distance * slope.reshape(channels)
    results = (flow * scale.reshape(channels), product * inverse, total)
    return tuple(
        result if wanted else None for result, wanted in zip(results, output_mask, strict=True)
    )


def _layer_norm(
    gradient: Tensor,
    x: Tensor,
    normalized_shape: Sequence[Any],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: Sequence[bool],
) -> Any:
    """By the formulas of eager's kernel, which on CUDA are those of the table.

    The two differ where terms cancel: of a row of one element, the gradients are eager's rounding
    errors.
    """
    own = x.device.type == "cpu" and some(x.shape) and x.dtype in _FLOATS
    first = x.dim() - len(normalized_shape)
    of_table = [False, False, output_mask[2]] if own else output_mask
    found = _OF_TABLE[aten.native_layer_norm_backward.default](
        gradient, x, normalized_shape, mean, rstd, weight, bias, of_table
    )
    if found is NotImplemented or not own:
        return found
    flow_to_x = flow_to_weight = None
    if output_mask[0]:
        row = list(range(first, x.dim()))
        product, total = gradient * x, gradient
        if weight is not None:
            product, total = product * weight, total * weight
        products, totals = product.sum(row, True), total.sum(row, True)
        scale = 1.0 / math.prod(x.shape[first:])
        slope = (totals * mean - products) * rstd * rstd * rstd * scale
        shift = -slope * mean - totals * rstd * scale
        flow_to_x = rstd * gradient
        if weight is not None:
            flow_to_x = flow_to_x * weight
        flow_to_x = flow_to_x + slope * x + shift
    if output_mask[1] and weight is not None:
        flow_to_weight = gradient * torch.addcmul(-rstd * mean, x, rstd)
        if first > 0:
            flow_to_weight = flow_to_weight.sum(list(range(first)))
    return flow_to_x, flow_to_weight, found[2]


BACKWARD_DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    **_OF_TABLE,
    aten.elu_backward.default: _elu,
    aten.hardswish_backward.default: _hardswish,
    aten.hardtanh_backward.default: _hardtanh,
    aten.native_batch_norm_backward.default: _batch_norm,
    aten.native_layer_norm_backward.default: _layer_norm,
    aten.nll_loss2d_backward.default: _nll_loss,
    aten.nll_loss_backward.default: _nll_loss,
    aten.smooth_l1_loss_backward.default: _smooth_l1_loss,
}
