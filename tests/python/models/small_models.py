# SPDX-License-Identifier: Apache-2.0
"""Seven models of two layers with random weights, made from their configurations, and inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers

__all__ = ["MODELS", "make_model"]

Inputs = dict[str, torch.Tensor]
VOCABULARY = 128


def tokens(count: int) -> torch.Tensor:
    # From 3 on: the first numbers stand for padding, beginnings and ends.
    return torch.randint(3, VOCABULARY, (1, count))


def gpt2() -> tuple[Any, Inputs]:
    configuration = transformers.GPT2Config(
        n_layer=2,
        n_embd=64,
        n_head=4,
        n_positions=64,
        vocab_size=VOCABULARY,
        bos_token_id=1,
        eos_token_id=2,
        loss_type="ForCausalLM",
    )
    return transformers.GPT2LMHeadModel(configuration), {"input_ids": tokens(16)}


def llama() -> tuple[Any, Inputs]:
    configuration = transformers.LlamaConfig(
        num_hidden_layers=2,
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        vocab_size=VOCABULARY,
    )
    return transformers.LlamaForCausalLM(configuration), {"input_ids": tokens(16)}


def bert() -> tuple[Any, Inputs]:
    configuration = transformers.BertConfig(
        num_hidden_layers=2,
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=4,
        max_position_embeddings=64,
        vocab_size=VOCABULARY,
    )
    padded = torch.tensor([[1] * 12 + [0] * 4])
    inputs = {"input_ids": tokens(16), "attention_mask": padded}
    return transformers.BertForMaskedLM(configuration), inputs


def t5() -> tuple[Any, Inputs]:
    configuration = transformers.T5Config(
        num_layers=2,
        d_model=64,
        d_ff=128,
        d_kv=16,
        num_heads=4,
        vocab_size=VOCABULARY,
        decoder_start_token_id=0,
    )
    inputs = {"input_ids": tokens(16), "decoder_input_ids": tokens(8)}
    return transformers.T5ForConditionalGeneration(configuration), inputs


def vit() -> tuple[Any, Inputs]:
    configuration = transformers.ViTConfig(
        num_hidden_layers=2,
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
        num_labels=10,
        problem_type="single_label_classification",
    )
    inputs = {"pixel_values": torch.randn(1, 3, 32, 32)}
    return transformers.ViTForImageClassification(configuration), inputs


def whisper() -> tuple[Any, Inputs]:
    configuration = transformers.WhisperConfig(
        encoder_layers=2,
        decoder_layers=2,
        d_model=64,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        num_mel_bins=16,
        max_source_positions=32,
        max_target_positions=32,
        vocab_size=VOCABULARY,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    inputs = {"input_features": torch.randn(1, 16, 64), "decoder_input_ids": tokens(8)}
    return transformers.WhisperForConditionalGeneration(configuration), inputs


def mamba() -> tuple[Any, Inputs]:
    configuration = transformers.MambaConfig(
        num_hidden_layers=2,
        hidden_size=64,
        intermediate_size=128,
        state_size=8,
        time_step_rank=4,
        vocab_size=VOCABULARY,
    )
    return transformers.MambaForCausalLM(configuration), {"input_ids": tokens(16)}


MODELS: dict[str, Callable[[], tuple[Any, Inputs]]] = {
    "gpt2": gpt2,
    "llama": llama,
    "bert": bert,
    "t5": t5,
    "vit": vit,
    "whisper": whisper,
    "mamba": mamba,
}


def make_model(name: str) -> tuple[Any, Inputs]:
    """Return a model in evaluation mode and the keyword arguments of a call: always the same."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    return model.eval(), inputs
