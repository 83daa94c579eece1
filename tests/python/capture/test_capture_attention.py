# SPDX-License-Identifier: Apache-2.0
"""Attention modules give what eager gives: values, NaN, strides, and None for absent weights."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from eager_comparison import check
from torch import nn

from hostjit.capturing.capture import capture

PADDING = torch.tensor([[False, False, False, True, True], [True] * 5])
LATER = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)

CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "weights of each head": {"average_attn_weights": False},
    "padding": {"key_padding_mask": PADDING},
    "mask": {"attn_mask": LATER},
    "causal": {"attn_mask": LATER, "is_causal": True},
    "mask of minus infinity": {"attn_mask": torch.zeros(5, 5).masked_fill(LATER, -math.inf)},
    "mask of numbers": {"attn_mask": torch.linspace(-1, 1, 25).view(5, 5)},
    "mask for each head": {"attn_mask": LATER.expand(8, 5, 5)},
    "mask and padding": {"attn_mask": LATER, "key_padding_mask": PADDING},
}


@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask")
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_self_attention(name: str, need_weights: bool) -> None:
    model = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    check(model, x, x, x, need_weights=need_weights, **CALLS[name])


MODELS: dict[str, nn.Module] = {
    "batch second": nn.MultiheadAttention(16, 4).eval(),
    "training": nn.MultiheadAttention(16, 4, batch_first=True),
    "odd heads": nn.MultiheadAttention(15, 3, batch_first=True).eval(),
    "no bias": nn.MultiheadAttention(16, 4, bias=False, batch_first=True).eval(),
    "extra keys": nn.MultiheadAttention(16, 4, add_bias_kv=True, batch_first=True).eval(),
    "double": nn.MultiheadAttention(16, 4, batch_first=True, dtype=torch.float64).eval(),
}


@pytest.mark.parametrize("name", MODELS)
def test_modules_on_either_path(name: str) -> None:
    model = MODELS[name]
    weight = next(model.parameters())
    x = torch.randn(2, 5, weight.shape[1], dtype=weight.dtype)
    check(model, x, x, x)


def test_attention_to_another_tensor_and_without_a_batch() -> None:
    model = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x, y = torch.randn(2, 5, 16), torch.randn(2, 3, 16)
    check(model, x, y, y)
    check(model, x[0], x[0], x[0])


def test_the_fast_path_switched_off() -> None:
    model = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        check(model, x, x, x)
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def test_a_caller_sees_that_there_are_no_weights() -> None:
    model = nn.MultiheadAttention(16, 4, batch_first=True).eval()

    def attend(x: torch.Tensor) -> torch.Tensor:
        result, weights = model(x, x, x, need_weights=False)
        return result if weights is None else result + 1

    check(attend, torch.randn(2, 5, 16))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_encoder_layer(training: bool, norm_first: bool) -> None:
    model = nn.TransformerEncoderLayer(
        16, 4, 32, batch_first=True, dropout=0.1, norm_first=norm_first
    )
    check(model.train(training), torch.randn(2, 5, 16))


def test_attention_needs_no_check_at_every_call() -> None:
    x = torch.randn(2, 5, 16)
    attention = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    with torch.no_grad():
        assert not capture(attention, (x, x, x)).guards.unwatchable
        assert not capture(layer, (x,)).guards.unwatchable
