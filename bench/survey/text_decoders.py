# SPDX-License-Identifier: Apache-2.0
"""Models that go on with a text."""

from __future__ import annotations

from typing import Any

from cases import ModelCase
from transformers_models import ids, text

CASES: dict[str, ModelCase] = {}

KV = {"num_key_value_heads": 2}


def decoder(name: str, prefix: str, config: str | None = None, **more: Any) -> None:
    kind = f"{prefix}ForCausalLM"
    text(CASES, name, kind, config or f"{prefix}Config", ids, generates=True, **more)


decoder("mistral", "Mistral", **KV, sliding_window=8)

decoder("mixtral", "Mixtral", **KV, num_local_experts=4, num_experts_per_tok=2)

decoder("qwen2", "Qwen2", **KV)

decoder(
    "qwen2_moe",
    "Qwen2Moe",
    **KV,
    num_experts=4,
    num_experts_per_tok=2,
    moe_intermediate_size=32,
    shared_expert_intermediate_size=32,
)

decoder("qwen3", "Qwen3", **KV, head_dim=8)

decoder(
    "qwen3_moe",
    "Qwen3Moe",
    **KV,
    head_dim=8,
    num_experts=4,
    num_experts_per_tok=2,
    moe_intermediate_size=32,
)

decoder("gemma", "Gemma", **KV, head_dim=8)

decoder("gemma2", "Gemma2", **KV, head_dim=8, sliding_window=8)

decoder("gemma3", "Gemma3", config="Gemma3TextConfig", **KV, head_dim=8, sliding_window=8)

decoder("phi", "Phi", **KV)

decoder("phi3", "Phi3", **KV)

decoder("falcon", "Falcon")

decoder("bloom", "Bloom", n_layer=2, n_head=4)

decoder("opt", "OPT", ffn_dim=64, word_embed_proj_dim=32)

decoder("gpt_neox", "GPTNeoX")

decoder(
    "gpt_neo",
    "GPTNeo",
    num_layers=2,
    num_heads=4,
    attention_types=[[["global", "local"], 1]],
    window_size=4,
)

decoder("gptj", "GPTJ", n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4, n_inner=64)

decoder("gpt_bigcode", "GPTBigCode", n_embd=32, n_layer=2, n_head=4, n_positions=64, n_inner=64)

decoder(
    "mamba2", "Mamba2", num_heads=8, head_dim=8, state_size=8, n_groups=2, chunk_size=8, expand=2
)

decoder("rwkv", "Rwkv", attention_hidden_size=32, context_length=64)

decoder(
    "recurrent_gemma",
    "RecurrentGemma",
    num_key_value_heads=1,
    lru_width=32,
    attention_window_size=16,
    num_hidden_layers=3,
)

decoder(
    "jamba",
    "Jamba",
    **KV,
    num_experts=4,
    num_experts_per_tok=2,
    mamba_d_state=8,
    mamba_dt_rank=4,
    attn_layer_period=2,
    attn_layer_offset=1,
    expert_layer_period=2,
    expert_layer_offset=1,
    use_mamba_kernels=False,
)

decoder(
    "deepseek_v3",
    "DeepseekV3",
    q_lora_rank=16,
    kv_lora_rank=16,
    qk_rope_head_dim=8,
    qk_nope_head_dim=8,
    v_head_dim=8,
    n_routed_experts=4,
    n_shared_experts=1,
    num_experts_per_tok=2,
    n_group=2,
    topk_group=1,
    moe_intermediate_size=32,
    first_k_dense_replace=1,
)

decoder("cohere", "Cohere", **KV)

decoder("cohere2", "Cohere2", **KV, sliding_window=8)

decoder("olmo", "Olmo")

decoder("olmo2", "Olmo2")

decoder("stablelm", "StableLm", num_key_value_heads=4)

decoder("granite", "Granite", **KV)

decoder("starcoder2", "Starcoder2", **KV)

decoder("persimmon", "Persimmon")

decoder("mpt", "Mpt", d_model=32, n_heads=4, n_layers=2, max_seq_len=64)

decoder("xglm", "XGLM", d_model=32, ffn_dim=64, num_layers=2, attention_heads=4)

decoder("smollm3", "SmolLM3", **KV)

decoder(
    "gpt_oss",
    "GptOss",
    **KV,
    head_dim=8,
    num_local_experts=4,
    num_experts_per_tok=2,
    sliding_window=8,
)

decoder("lfm2", "Lfm2", **KV, layer_types=["conv", "full_attention"])

text(
    CASES,
    "ctrl",
    "CTRLLMHeadModel",
    "CTRLConfig",
    ids,
    generates=True,
    n_embd=32,
    dff=64,
    n_layer=2,
    n_head=4,
    n_positions=64,
)

text(
    CASES,
    "openai_gpt",
    "OpenAIGPTLMHeadModel",
    "OpenAIGPTConfig",
    ids,
    generates=True,
    n_embd=32,
    n_layer=2,
    n_head=4,
    n_positions=64,
)
