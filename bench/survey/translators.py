# SPDX-License-Identifier: Apache-2.0
"""Models that make one text of another."""

from __future__ import annotations

from cases import ModelCase
from transformers_models import V, text, tokens

CASES: dict[str, ModelCase] = {}


def seq2seq(batch, length):
    return {"input_ids": tokens(batch, length), "decoder_input_ids": tokens(batch, length // 2)}


SEQ = {
    "vocab_size": V,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}

text(
    CASES,
    "bart",
    "BartForConditionalGeneration",
    "BartConfig",
    seq2seq,
    generates=True,
    common=SEQ,
)

text(
    CASES,
    "pegasus",
    "PegasusForConditionalGeneration",
    "PegasusConfig",
    seq2seq,
    generates=True,
    common=SEQ,
)

text(
    CASES,
    "mbart",
    "MBartForConditionalGeneration",
    "MBartConfig",
    seq2seq,
    generates=True,
    common=SEQ,
)

text(CASES, "marian", "MarianMTModel", "MarianConfig", seq2seq, generates=True, common=SEQ)

text(
    CASES,
    "m2m100",
    "M2M100ForConditionalGeneration",
    "M2M100Config",
    seq2seq,
    generates=True,
    common=SEQ,
)

text(
    CASES,
    "blenderbot",
    "BlenderbotForConditionalGeneration",
    "BlenderbotConfig",
    seq2seq,
    generates=True,
    common=SEQ,
)

text(
    CASES,
    "prophetnet",
    "ProphetNetForConditionalGeneration",
    "ProphetNetConfig",
    seq2seq,
    common=dict(
        {k: v for k, v in SEQ.items() if k[:8] not in ("d_model", "encoder_", "decoder_")},
        decoder_start_token_id=2,
        hidden_size=32,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_encoder_layers=2,
        num_decoder_layers=2,
        num_encoder_attention_heads=4,
        num_decoder_attention_heads=4,
        disable_ngram_loss=True,
    ),
)

text(
    CASES,
    "led",
    "LEDForConditionalGeneration",
    "LEDConfig",
    seq2seq,
    common=dict(
        SEQ,
        attention_window=[4, 4],
        max_encoder_position_embeddings=64,
        max_decoder_position_embeddings=64,
    ),
)

text(
    CASES,
    "switch_transformers",
    "SwitchTransformersForConditionalGeneration",
    "SwitchTransformersConfig",
    seq2seq,
    common={
        "vocab_size": V,
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 64,
        "num_layers": 2,
        "num_sparse_encoder_layers": 1,
        "num_decoder_layers": 2,
        "num_sparse_decoder_layers": 1,
        "num_heads": 4,
        "num_experts": 4,
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
        "router_jitter_noise": 0.0,
    },
)

text(
    CASES,
    "mt5",
    "MT5ForConditionalGeneration",
    "MT5Config",
    seq2seq,
    generates=True,
    common={
        "vocab_size": V,
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 64,
        "num_layers": 2,
        "num_heads": 4,
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
    },
)

text(
    CASES,
    "umt5",
    "UMT5ForConditionalGeneration",
    "UMT5Config",
    seq2seq,
    common={
        "vocab_size": V,
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 64,
        "num_layers": 2,
        "num_heads": 4,
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
    },
)
