# SPDX-License-Identifier: Apache-2.0
"""Models of series in time, and of decisions."""

from __future__ import annotations

import torch
from cases import ModelCase
from transformers_models import add

CASES: dict[str, ModelCase] = {}


def series(b, s):
    return {
        "past_values": torch.randn(b, 23).abs(),
        "past_time_features": torch.randn(b, 23, 2),
        "past_observed_mask": torch.ones(b, 23),
        "future_values": torch.randn(b, 8).abs(),
        "future_time_features": torch.randn(b, 8, 2),
    }


SER = {
    "prediction_length": 8,
    "context_length": 16,
    "lags_sequence": [1, 2, 7],
    "num_time_features": 2,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
}

add(
    CASES,
    "time_series_transformer",
    "TimeSeriesTransformerForPrediction",
    "TimeSeriesTransformerConfig",
    series,
    **SER,
)

add(CASES, "informer", "InformerForPrediction", "InformerConfig", series, **SER)

add(
    CASES,
    "autoformer",
    "AutoformerForPrediction",
    "AutoformerConfig",
    series,
    **SER,
    label_length=4,
    moving_average=5,
    autocorrelation_factor=1,
)

PATCHES = {
    "num_input_channels": 3,
    "context_length": 32,
    "patch_length": 8,
    "patch_stride": 8,
    "prediction_length": 4,
    "d_model": 16,
}


def patched(batch: int, _: int) -> dict[str, torch.Tensor]:
    past, future = torch.randn(batch, 32, 3), torch.randn(batch, 4, 3)
    return {"past_values": past, "future_values": future}


add(
    CASES,
    "patchtst",
    "PatchTSTForPrediction",
    "PatchTSTConfig",
    patched,
    **PATCHES,
    num_hidden_layers=2,
    num_attention_heads=2,
    ffn_dim=32,
)

add(
    CASES,
    "patchtsmixer",
    "PatchTSMixerForPrediction",
    "PatchTSMixerConfig",
    patched,
    **PATCHES,
    num_layers=2,
)

add(
    CASES,
    "timesfm",
    "TimesFmModelForPrediction",
    "TimesFmConfig",
    lambda b, s: {"past_values": [torch.randn(32) for _ in range(b)], "freq": [0] * b},
    patch_length=8,
    context_length=32,
    horizon_length=8,
    freq_size=3,
    num_hidden_layers=2,
    hidden_size=32,
    intermediate_size=32,
    head_dim=8,
    num_attention_heads=4,
)


def decisions(b, s):
    return {
        "states": torch.randn(b, s, 5),
        "actions": torch.randn(b, s, 2),
        "rewards": torch.randn(b, s, 1),
        "returns_to_go": torch.randn(b, s, 1),
        "timesteps": torch.arange(s).repeat(b, 1),
        "attention_mask": torch.ones(b, s),
    }


add(
    CASES,
    "decision_transformer",
    "DecisionTransformerModel",
    "DecisionTransformerConfig",
    decisions,
    ((1, 4), (2, 6), (3, 8)),
    state_dim=5,
    act_dim=2,
    hidden_size=32,
    max_ep_len=64,
    n_layer=2,
    n_head=4,
    n_positions=64,
)
