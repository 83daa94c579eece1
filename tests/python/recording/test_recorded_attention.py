# SPDX-License-Identifier: Apache-2.0
"""Recordings of modules that eager runs as one operator, with and without masks of padding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit

PADDING = torch.arange(5) >= torch.tensor([5, 2, 0])[:, None]
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "without weights": {"need_weights": False},
    "weights of all heads": {"average_attn_weights": False},
    "padding": {"key_padding_mask": PADDING},
    "padding, without weights": {"key_padding_mask": PADDING, "need_weights": False},
    "a mask": {"attn_mask": torch.ones(5, 5, dtype=torch.bool).triu(1)},
}


def same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, equal_nan=True)
    for a, b in zip(found, expected, strict=True):
        assert a is b is None or a.stride() == b.stride()


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("case", CASES)
def test_attention(case: str, runtime: str) -> None:
    """A sequence of nothing but padding is NaN, as it is in eager mode."""
    torch.manual_seed(0)
    model = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    def attend(x: Tensor) -> tuple[Tensor, Tensor | None]:
        return model(x, x, x, **CASES[case])

    recorded = hostjit.capture(attend, runtime=runtime, fallback=False)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(3, 5, 8)
            same(recorded(x), attend(x))
    assert len(recorded.specializations) == 1


@pytest.mark.parametrize("mask", [None, PADDING])
def test_encoder_layer(mask: Tensor | None) -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True).eval()
    recorded = hostjit.capture(model, fallback=False)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(3, 5, 8)
            same(*(call(x, src_key_padding_mask=mask) for call in (recorded, model)))
    assert len(recorded.specializations) == 1


@pytest.mark.filterwarnings("ignore:hostjit")
def test_encoder() -> None:
    """Which it leaves out, it decides by the mask."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    recorded = hostjit.capture(model)
    with torch.no_grad():
        for mask in (PADDING, PADDING, PADDING.flip(1), PADDING.flip(0), PADDING):
            x = torch.randn(3, 5, 8)
            same(*(call(x, src_key_padding_mask=mask) for call in (recorded, model)))
