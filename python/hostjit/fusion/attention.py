# SPDX-License-Identifier: Apache-2.0
"""Attention on the device that its operands are on; captured with the graph."""

from __future__ import annotations

import torch

__all__ = ["attention", "attention_backward"]

_Tensors = tuple[torch.Tensor, ...]


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> _Tensors:
    """Return the output, the logarithms of sums, and the seed and offset of random numbers."""
    if query.device.type == "cpu":
        pair = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, dropout_p, is_causal, scale=scale
        )
        seed = torch.zeros(2, dtype=torch.uint64)
        return pair[0], pair[1], seed, torch.zeros((), dtype=torch.uint64)
    found = torch.ops.aten._scaled_dot_product_flash_attention(
        query, key, value, dropout_p, is_causal, scale=scale
    )
    return found[0], found[1], found[6], found[7]


def attention_backward(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    output: torch.Tensor,
    logsumexp: torch.Tensor,
    seed: torch.Tensor,
    offset: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> _Tensors:
    """Return the gradients of query, key and value."""
    tensors = (gradient, query, key, value, output, logsumexp)
    if query.device.type == "cpu":
        found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            *tensors, dropout_p, is_causal, scale=scale
        )
    else:
        found = torch.ops.aten._scaled_dot_product_flash_attention_backward(
            *tensors, None, None, query.shape[-2], key.shape[-2], dropout_p, is_causal, seed,
            offset, scale=scale,
        )  # fmt: skip
    return found[0], found[1], found[2]
