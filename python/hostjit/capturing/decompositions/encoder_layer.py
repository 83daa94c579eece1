# SPDX-License-Identifier: Apache-2.0
"""The encoder layer of transformers as attention, linear layers and norms."""

from __future__ import annotations

from typing import Any

import torch

from hostjit.capturing.decompositions.attention import native_attention
from hostjit.capturing.open_sizes import some

__all__ = ["encoder_layer"]

Tensor = torch.Tensor

_FLOATS = (torch.float32, torch.float64)


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Any:
    """The fast path of nn.TransformerEncoderLayer."""
    if src.dtype not in _FLOATS or src.dim() != 3 or not some(src.shape):
        return NotImplemented
    activation = torch.nn.functional.gelu if use_gelu else torch.relu

    qkv, projection = (qkv_weight, qkv_bias), (proj_weight, proj_bias)

    def attend(x: Tensor) -> Tensor:
        weights = (embed_dim, num_heads, *qkv, *projection)
        return native_attention(x, x, x, *weights, mask, need_weights=False, mask_type=mask_type)[0]

    def feed_forward(x: Tensor) -> Tensor:
        hidden = activation(torch.nn.functional.linear(x, ffn_weight_1, ffn_bias_1))
        return torch.nn.functional.linear(hidden, ffn_weight_2, ffn_bias_2)

    def norm_1(x: Tensor) -> Tensor:
        return torch.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def norm_2(x: Tensor) -> Tensor:
        return torch.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attend(norm_1(src))
        return x + feed_forward(norm_2(x))
    x = norm_1(src + attend(src))
    return norm_2(x + feed_forward(x))
