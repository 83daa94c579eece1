# SPDX-License-Identifier: Apache-2.0
"""More functions with a parameter that is an open number; see `number_parameters`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from hostjit.capturing.open_dropout import DROPOUT

__all__ = [
    "arange",
    "attention",
    "batch_norm",
    "batch_norm_applies",
    "celu",
    "is_range",
    "nan_to_num",
    "pad",
    "pads_with_number",
    "replaces_floats",
    "scales_or_drops",
]

_FLOATS = (torch.float32, torch.float64)
aten = torch.ops.aten


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`scaled_dot_product_attention`."""
    if scale is not None:
        query = query * (scale * math.sqrt(query.shape[-1]))
    if dropout_p == 0.0:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask, 0.0, is_causal, enable_gqa=enable_gqa
        )
    scores = (query * (1.0 / math.sqrt(query.shape[-1]))) @ key.transpose(-2, -1)
    if is_causal:
        before = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
        scores = scores.masked_fill(~before, -math.inf)
    result: Tensor = DROPOUT(scores.softmax(-1), dropout_p)[0] @ value
    return result


def scales_or_drops(given: Mapping[str, Any]) -> bool:
    """Whether a scale is positive: else PyTorch's kernels give NaN where scores are masked.

    And whether not all weights are dropped, of heads and without a mask.
    """
    query, key, scale, p = (given[name] for name in ("query", "key", "scale", "dropout_p"))
    if not isinstance(query, Tensor) or query.dtype not in _FLOATS:
        return False
    if scale is not None and not scale > 0.0:
        return False
    if isinstance(p, (int, float)) and p == 0.0:
        return True
    is_plain = isinstance(key, Tensor) and query.shape[:-2] == key.shape[:-2]
    has_mask = given["attn_mask"] is not None  # which may leave nothing of a row
    return bool(0.0 < p < 1.0) and is_plain and not has_mask and not given["enable_gqa"]


def batch_norm(
    input: Tensor,  # noqa: A002
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """`batch_norm`; averages are updated in the precision in which eager does."""
    if not training or running_mean is None or running_var is None:
        return functional.batch_norm(
            input, running_mean, running_var, weight, bias, training, 0.1, eps
        )
    mean, variance = torch.zeros_like(running_mean), torch.zeros_like(running_var)
    result = functional.batch_norm(input, mean, variance, weight, bias, True, 1.0, eps)
    for average, found in ((running_mean, mean), (running_var, variance)):
        average.copy_(found.double() * momentum + average.double() * (1.0 - momentum))
    return result


def batch_norm_applies(given: Mapping[str, Any]) -> bool:
    """Whether both averages are there or none, and of one type."""
    averages = [given["running_mean"], given["running_var"]]
    return all(isinstance(a, Tensor) and a.dtype in _FLOATS for a in averages) or all(
        average is None for average in averages
    )


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:  # noqa: A002
    """`celu`, which is an `elu` in eager, too."""
    result: Tensor = aten.elu(input, alpha, 1.0, 1.0 / alpha)
    return result


def pad(
    input: Tensor,  # noqa: A002
    pad: Sequence[int],
    mode: str = "constant",
    value: float | None = None,
) -> Tensor:
    """`pad` with a number."""
    assert value is not None
    inside = functional.pad(torch.ones_like(input, dtype=torch.bool), pad)
    return torch.where(inside, functional.pad(input, pad), value)


def pads_with_number(given: Mapping[str, Any]) -> bool:
    """Whether elements of a number are put around floats."""
    x = given["input"]
    return given["mode"] == "constant" and isinstance(x, Tensor) and x.is_floating_point()


def nan_to_num(
    input: Tensor,  # noqa: A002
    nan: float | None = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    """`nan_to_num` of floats."""
    limits = torch.finfo(input.dtype)
    result = torch.where(input == math.inf, limits.max if posinf is None else posinf, input)
    result = torch.where(input == -math.inf, limits.min if neginf is None else neginf, result)
    return torch.where(input != input, 0.0 if nan is None else nan, result)


def replaces_floats(given: Mapping[str, Any]) -> bool:
    """Whether a tensor is one of floats."""
    return isinstance(given["input"], Tensor) and given["input"].is_floating_point()


def arange(
    start: float,
    end: float | None = None,
    step: float = 1,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`arange` over floats: Python computes how many there are."""
    first, last = (0, start) if end is None else (start, end)
    count = math.ceil((last - first) / step)
    return (
        torch.arange(count, dtype=dtype or torch.get_default_dtype(), device=device) * step + first
    )


def is_range(given: Mapping[str, Any]) -> bool:
    """Whether it has elements, and is one of floats."""
    start, end, step, dtype = (given[name] for name in ("start", "end", "step", "dtype"))
    if given["requires_grad"] is not False or (dtype is not None and dtype not in _FLOATS):
        return False
    first, last = (0, start) if end is None else (start, end)
    numbers = (int, float, torch.SymInt, torch.SymFloat)
    if not all(isinstance(number, numbers) for number in (first, last, step)):
        return False
    return bool(last > first) and bool(step > 0.0)
