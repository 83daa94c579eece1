# SPDX-License-Identifier: Apache-2.0
"""Small scaled_dot_product_attention as two matrix products and a softmax."""

from __future__ import annotations

import math
from typing import Any

import torch

from hostjit.capturing.open_sizes import all_equal, is_open, known, some, typical

__all__ = ["scaled_dot_product_attention"]

Tensor = torch.Tensor

# Elements of the attention matrix, all heads together, up to which it is computed as such: 8 MiB of
# float32. There this is twice as fast as PyTorch's flash kernel with one thread and with two (1.7
# times where causal, because the kernel leaves out half), and 2.5 times at a sixteenth of it.
_MAX_SCORES = 1 << 21
# Of the operands that the flash kernel takes: torch 2.14 gives those without a batch one.
_FLASH_DIMS = (3, 4) if torch.__version__ >= "2.14" else (4,)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(query @ key^T * scale + mask) @ value, the formula in PyTorch's documentation.

    NotImplemented where the operator is better.
    """
    plain = (
        query.dtype in (torch.float32, torch.float64)
        and query.dtype == key.dtype == value.dtype
        and query.dim() == key.dim() >= 2
        and all_equal(key.shape[:-2], value.shape[:-2])
        and some((*query.shape, *key.shape, *value.shape))
        and not dropout_p
        and _is_plain_mask(attn_mask, query, is_causal)
    )
    heads = _heads_per_key(query, key, enable_gqa) if plain else 0
    num_scores = typical(math.prod(query.shape[:-1]) * key.shape[-2])
    if not heads or num_scores > _MAX_SCORES:
        return NotImplemented
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    shape = (*query.shape[:-1], key.shape[-2])
    # Heads that share a key are rows of one product.
    rows = (*key.shape[:-2], heads * query.shape[-2])
    grouped = query.reshape(*rows, query.shape[-1]) if heads > 1 else query
    scores = (torch.matmul(grouped, key.transpose(-2, -1)) * factor).view(shape)
    is_flash = _is_for_flash_kernel(query, key, value)
    if is_causal:
        row = torch.arange(shape[-2], device=query.device).unsqueeze(1)
        earlier = torch.arange(shape[-1], device=query.device) <= row
        if is_flash:
            scores = scores.masked_fill(~earlier, -math.inf)
        else:
            attn_mask = earlier
    if attn_mask is not None:
        scores = scores + _as_numbers(attn_mask, scores.dtype)
    weights = _weights(scores, overlooks_nan=is_flash and attn_mask is None)
    attended = torch.matmul(weights.view(*rows, shape[-1]), value)
    return attended.view(*query.shape[:-1], value.shape[-1])


def _is_for_flash_kernel(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether PyTorch takes its flash kernel, as far as results without a number differ."""
    return (
        query.dim() in _FLASH_DIMS
        and query.shape[-1] == value.shape[-1]
        and all(known(x.stride(-1) == 1) for x in (query, key, value))
    )


def _is_plain_mask(mask: Tensor | None, query: Tensor, is_causal: bool) -> bool:
    return mask is None or (
        not is_causal
        and mask.dtype in (torch.bool, query.dtype)
        and 2 <= mask.dim() <= query.dim()
        and some(mask.shape)
    )


def _heads_per_key(query: Tensor, key: Tensor, enable_gqa: bool) -> int:
    """How many heads of the query share one of the key; 0 where shapes are not that simple."""
    if all_equal(query.shape[:-2], key.shape[:-2]):
        return 1
    if not enable_gqa or query.dim() < 3 or not all_equal(query.shape[:-3], key.shape[:-3]):
        return 0
    if is_open(query.shape[-3]) or is_open(key.shape[-3]):
        return 0
    heads, rest = divmod(query.shape[-3], key.shape[-3])
    return 0 if rest else heads


def _as_numbers(mask: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.where(mask, 0.0, -math.inf).to(dtype) if mask.dtype == torch.bool else mask


def _weights(scores: Tensor, overlooks_nan: bool) -> Tensor:
    """The softmax of rows; zeros, not NaN, where the maximum is -inf.

    Where a row fills no vector, PyTorch's flash kernel compares its scores one by one, in an order
    of operands that overlooks NaN: then the maximum is -inf also of rows with nothing but NaN.
    """
    length = scores.shape[-1]
    vector_bytes = {"AVX512": 64, "AVX2": 32}.get(torch.backends.cpu.get_cpu_capability(), 16)
    is_empty = scores.amax(-1, keepdim=True) == -math.inf
    if overlooks_nan and not known(length * scores.itemsize >= vector_bytes):
        without_numbers = ~(scores > -math.inf).any(-1, keepdim=True)
        if is_open(length):
            is_short = torch.full((), length, device=scores.device) < vector_bytes / scores.itemsize
            without_numbers = without_numbers & is_short
        is_empty = is_empty | without_numbers
    return torch.softmax(scores, -1).masked_fill(is_empty, 0.0)
