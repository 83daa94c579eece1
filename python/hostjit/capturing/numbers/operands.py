# SPDX-License-Identifier: Apache-2.0
"""More functions with a parameter that is an open number; see `parameters`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from hostjit.capturing.numbers.open_dropout import DROPOUT
from hostjit.capturing.numbers.parameter_function import is_exact

__all__ = [
    "adaptive_avg_pool1d",
    "attention",
    "cdist",
    "celu",
    "clamps",
    "compares",
    "cosine_similarity",
    "float_power",
    "has_cosine",
    "has_distances",
    "has_quantile",
    "is_leaky",
    "isclose",
    "logit",
    "nan_to_num",
    "pad",
    "pads_with_number",
    "pools",
    "quantile",
    "replaces_floats",
    "rrelu",
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

    And whether not all weights are dropped, of heads and without a mask. On CUDA attention draws
    its numbers in kernels of its own.
    """
    query, key, scale, p = (given[name] for name in ("query", "key", "scale", "dropout_p"))
    if not isinstance(query, Tensor) or query.dtype not in _FLOATS:
        return False
    if scale is not None and not scale > 0.0:
        return False
    if isinstance(p, (int, float)) and p == 0.0:
        return True
    if query.is_cuda:
        return False
    is_plain = isinstance(key, Tensor) and query.shape[:-2] == key.shape[:-2]
    has_mask = given["attn_mask"] is not None  # which may leave nothing of a row
    return bool(0.0 < p < 1.0) and is_plain and not has_mask and not given["enable_gqa"]


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


def cdist(
    x1: Tensor,
    x2: Tensor,
    p: float = 2.0,
    compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:
    """`cdist` of any order."""
    result: Tensor = torch.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)
    return result


def has_distances(given: Mapping[str, Any]) -> bool:
    """Whether there are rows of one exact dtype, and the order is none that PyTorch refuses."""
    x, y = given["x1"], given["x2"]
    return (
        is_exact("x1", "x2")(given)
        and x.dtype is y.dtype
        and x.dim() >= 2
        and y.dim() >= 2
        and bool(x.numel() > 0)
        and bool(y.numel() > 0)
        and bool(given["p"] > 0.0)
    )


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """`cosine_similarity`: lengths are no less than `eps`, which their gradients do not know."""
    units: list[Tensor] = []
    for x in (x1, x2):
        length = torch.linalg.vector_norm(x, 2, dim, keepdim=True)
        more = (eps - length.detach()).clamp_min(0.0)
        units.append(x / (length + more))
    return (units[0] * units[1]).sum(dim)


def has_cosine(given: Mapping[str, Any]) -> bool:
    """Whether two tensors have one shape and one exact dtype."""
    x, y = given["x1"], given["x2"]
    fits = is_exact("x1", "x2")(given) and x.shape == y.shape and x.dtype == y.dtype
    return fits and bool(given["eps"] >= 0.0)


def float_power(input: Tensor, exponent: float) -> Tensor:  # noqa: A002
    """`float_power` of a tensor to a number."""
    result: Tensor = input.double() ** exponent
    return result


def isclose(
    input: Tensor,  # noqa: A002
    other: Tensor,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Tensor:
    """`isclose`."""
    distance = (input - other).abs()
    near = (distance <= atol + (rtol * other).abs()) & distance.isfinite()
    close = (input == other) | near
    result: Tensor = close | (input.isnan() & other.isnan()) if equal_nan else close
    return result


def compares(given: Mapping[str, Any]) -> bool:
    """Whether two tensors have one exact dtype, and the numbers are none that PyTorch refuses."""
    x, y = given["input"], given["other"]
    fits = is_exact("input", "other")(given) and x.dtype is y.dtype
    return fits and bool(given["rtol"] >= 0.0) and bool(given["atol"] >= 0.0)


def logit(input: Tensor, eps: float | None = None) -> Tensor:  # noqa: A002
    """`logit` of what lies between `eps` and its distance from 1."""
    assert eps is not None
    inside = input.clamp(eps, 1.0 - eps)
    return (inside / (1.0 - inside)).log()


def clamps(given: Mapping[str, Any]) -> bool:
    """Whether something lies there."""
    return is_exact("input")(given) and bool(given["eps"] > 0.0) and bool(given["eps"] < 0.5)


def quantile(
    input: Tensor,  # noqa: A002
    q: float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """`quantile`, by linear interpolation."""
    dims = input.dim()
    rows = input.reshape(-1) if dim is None else input.movedim(dim, -1)
    last = rows.shape[-1] - 1
    in_order = rows.sort(-1).values
    rank = torch.full((), q, dtype=input.dtype, device=input.device)
    # In the precision in which eager does, which is that of the tensor before torch 2.14.
    rank = (rank.double() if torch.__version__ >= "2.14" else rank) * last
    rank = torch.where(rows.isnan().any(-1, keepdim=True), last, rank)
    below = rank.floor()
    low = in_order.gather(-1, below.long())
    high = in_order.gather(-1, rank.ceil().long())
    found = low.lerp(high, (rank - below).to(input.dtype)).squeeze(-1)
    if not keepdim:
        return found
    return found.reshape([1] * dims) if dim is None else found.unsqueeze(dim)


def has_quantile(given: Mapping[str, Any]) -> bool:
    """Whether there is one: the number is none that PyTorch refuses, nor is the tensor."""
    x, q = given["input"], given["q"]
    return (
        is_exact("input")(given)
        and x.dim() > 0
        and given["interpolation"] == "linear"
        and bool(x.numel() > 0)
        and bool(q >= 0.0)
        and bool(q <= 1.0)
    )


def rrelu(
    input: Tensor,  # noqa: A002
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """`rrelu` in evaluation."""
    return functional.leaky_relu(input, (lower + upper) / 2)


def is_leaky(given: Mapping[str, Any]) -> bool:
    """Whether nothing is drawn, and the bounds are in order."""
    in_order = bool(given["lower"] <= given["upper"])
    return not given["training"] and not given["inplace"] and is_exact("input")(given) and in_order


def adaptive_avg_pool1d(input: Tensor, output_size: int) -> Tensor:  # noqa: A002
    """Pool rows of images of one row."""
    pooled = functional.adaptive_avg_pool2d(input.unsqueeze(-2), (1, output_size))
    return pooled.squeeze(-2)


def pools(given: Mapping[str, Any]) -> bool:
    """Whether there are rows, and something is left of them."""
    x = given["input"]
    return isinstance(x, Tensor) and x.dim() in (2, 3) and bool(given["output_size"] > 0)
