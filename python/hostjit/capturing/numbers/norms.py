# SPDX-License-Identifier: Apache-2.0
"""Norms whose `eps` or `momentum` is an open number; see `parameters`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from hostjit.capturing.numbers.parameter_function import NumberFunction, is_exact

__all__ = ["NORMS"]

_FLOATS = (torch.float32, torch.float64)


def _layer_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    dims = tuple(range(-len(normalized_shape), 0))
    variance, mean = torch.var_mean(input, dims, correction=0, keepdim=True)
    result = (input - mean) * torch.rsqrt(variance + eps)
    if weight is not None:
        result = result * weight
    return result if bias is None else result + bias


def _rms_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    assert eps is not None
    dims = tuple(range(-len(normalized_shape), 0))
    result = input * torch.rsqrt(input.square().mean(dims, keepdim=True) + eps)
    return result if weight is None else result * weight


def _of_channels(vector: Tensor, like: Tensor) -> Tensor:
    """A vector of one element per channel, which broadcasts over a tensor of any more dims."""
    return vector.view(1, -1, *[1] * (like.dim() - 2))


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        x = x * _of_channels(weight, x)
    return x if bias is None else x + _of_channels(bias, x)


def _group_norm(
    input: Tensor,  # noqa: A002
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    groups = input.reshape(input.shape[0], num_groups, -1)
    variance, mean = torch.var_mean(groups, 2, correction=0, keepdim=True)
    result = (groups - mean) * torch.rsqrt(variance + eps)
    return _scaled(result.view(input.shape), weight, bias)


def _groups(given: Mapping[str, Any]) -> bool:
    """Whether the input is contiguous, and PyTorch's own code takes it."""
    x, groups = given["input"], given["num_groups"]
    if not is_exact("input", "weight", "bias")(given) or x.dim() < 2:
        return False
    if not given["eps"] >= 0.0:  # there is NaN in gradients otherwise, not everywhere in eager's
        return False
    is_whole = isinstance(groups, int) and groups > 0 and x.shape[1] % groups == 0
    return is_whole and _is_full(x) and bool(x.numel() > x.shape[0] * groups)


def _is_full(x: Tensor) -> bool:
    return bool(x.numel() > 0) and x.is_contiguous()


def _instance_norm(
    input: Tensor,  # noqa: A002
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    size = input[0, 0].numel()
    instances = input.reshape(input.shape[0], input.shape[1], -1)
    variance, mean = torch.var_mean(instances, 2, correction=0, keepdim=True)
    if running_mean is not None and running_var is not None:
        found = (mean.mean((0, 2)), variance.mean((0, 2)) * (size / (size - 1)))
        for average, new in zip((running_mean, running_var), found, strict=True):
            average.copy_(_moved(average, new, momentum))
    result = (instances - mean) * torch.rsqrt(variance + eps)
    return _scaled(result.view(input.shape), weight, bias)


def _normalises_instances(given: Mapping[str, Any]) -> bool:
    x, names = given["input"], ("running_mean", "running_var")
    return (
        is_exact("input", "weight", "bias", *names)(given)
        and given["use_input_stats"] is True
        and (given[names[0]] is None) == (given[names[1]] is None)
        and x.dim() > 2
        and _is_full(x)
        and bool(x.numel() > x.shape[0] * x.shape[1])
    )


def _batch_norm_of_momentum(
    input: Tensor,  # noqa: A002
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not training or running_mean is None or running_var is None:
        return functional.batch_norm(
            input, running_mean, running_var, weight, bias, training, 0.1, eps
        )
    mean, variance = torch.zeros_like(running_mean), torch.zeros_like(running_var)
    result = functional.batch_norm(input, mean, variance, weight, bias, True, 1.0, eps)
    _update((running_mean, running_var), (mean, variance), momentum)
    return result


def _update(averages: Sequence[Tensor], found: Sequence[Tensor], momentum: float) -> None:
    """Update the averages of a batch norm. Eager hides that from autograd."""
    for average, new in zip(averages, found, strict=True):
        average.data.copy_(_moved(average, new, momentum))


def _moved(average: Tensor, new: Tensor, momentum: float) -> Tensor:
    """A new average, in the precision in which eager computes it; no gradients flow into it."""
    return new.detach().double() * momentum + average.double() * (1.0 - momentum)


def _has_momentum(given: Mapping[str, Any]) -> bool:
    """Whether both averages are there or none, and of one type."""
    averages = [given["running_mean"], given["running_var"]]
    return all(isinstance(a, Tensor) and a.dtype in _FLOATS for a in averages) or all(
        average is None for average in averages
    )


def _batch_norm_of_eps(
    input: Tensor,  # noqa: A002
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if training:
        dims = [0, *range(2, input.dim())]
        variance, mean = torch.var_mean(input, dims, correction=0)
        if running_mean is not None and running_var is not None:
            count = input.numel() // input.shape[1]
            found = (mean, variance * (count / (count - 1)))
            _update((running_mean, running_var), found, momentum)
    else:
        assert running_mean is not None and running_var is not None
        mean, variance = running_mean, running_var
    result = (input - _of_channels(mean, input)) * torch.rsqrt(_of_channels(variance, input) + eps)
    return _scaled(result, weight, bias)


def _has_eps(given: Mapping[str, Any]) -> bool:
    x = given["input"]
    if not given["eps"] > 0.0:
        return False
    names = ("input", "running_mean", "running_var", "weight", "bias")
    if not (is_exact(*names)(given) and _has_momentum(given)) or x.dim() < 2:
        return False
    if not given["training"]:
        return given["running_mean"] is not None
    return isinstance(given["training"], bool) and bool(x.numel() > x.shape[1]) and _is_full(x)


_Rules = tuple[NumberFunction, ...]
NORMS: dict[Callable[..., Any], _Rules] = {
    functional.batch_norm: (
        NumberFunction(("eps",), _batch_norm_of_eps, _has_eps),
        NumberFunction(("momentum",), _batch_norm_of_momentum, _has_momentum),
    ),
    functional.group_norm: (NumberFunction(("eps",), _group_norm, _groups),),
    functional.instance_norm: (
        NumberFunction(("momentum", "eps"), _instance_norm, _normalises_instances),
    ),
    functional.layer_norm: (NumberFunction(("eps",), _layer_norm, is_exact("input")),),
    torch.rms_norm: (NumberFunction(("eps",), _rms_norm, is_exact("input")),),
}
