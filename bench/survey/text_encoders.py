# SPDX-License-Identifier: Apache-2.0
"""Models that read a text."""

from __future__ import annotations

import torch
from cases import ModelCase
from transformers_models import V, ids, masked, text, tokens

CASES: dict[str, ModelCase] = {}

text(CASES, "roberta", "RobertaForMaskedLM", "RobertaConfig", masked)

text(CASES, "xlm_roberta", "XLMRobertaForMaskedLM", "XLMRobertaConfig", masked)

text(CASES, "camembert", "CamembertForMaskedLM", "CamembertConfig", masked)

text(
    CASES,
    "deberta",
    "DebertaForMaskedLM",
    "DebertaConfig",
    masked,
    relative_attention=True,
    pos_att_type=["p2c", "c2p"],
)

text(
    CASES,
    "deberta_v2",
    "DebertaV2ForMaskedLM",
    "DebertaV2Config",
    masked,
    relative_attention=True,
    pos_att_type=["p2c", "c2p"],
    position_buckets=8,
)

text(CASES, "albert", "AlbertForMaskedLM", "AlbertConfig", masked, embedding_size=16)

text(CASES, "electra", "ElectraForMaskedLM", "ElectraConfig", masked, embedding_size=16)

text(
    CASES,
    "distilbert",
    "DistilBertForMaskedLM",
    "DistilBertConfig",
    masked,
    dim=32,
    hidden_dim=64,
    n_layers=2,
    n_heads=4,
)

text(
    CASES,
    "modernbert",
    "ModernBertForMaskedLM",
    "ModernBertConfig",
    masked,
    local_attention=8,
    cls_token_id=1,
    sep_token_id=2,
)

text(CASES, "mpnet", "MPNetForMaskedLM", "MPNetConfig", masked)

text(
    CASES,
    "funnel",
    "FunnelForMaskedLM",
    "FunnelConfig",
    masked,
    num_hidden_layers=None,
    block_sizes=[1, 1],
    d_model=32,
    n_head=4,
    d_head=8,
    d_inner=64,
    num_decoder_layers=1,
)

text(CASES, "squeezebert", "SqueezeBertForMaskedLM", "SqueezeBertConfig", masked, embedding_size=32)

text(CASES, "convbert", "ConvBertForMaskedLM", "ConvBertConfig", masked, embedding_size=32)

text(CASES, "fnet", "FNetForMaskedLM", "FNetConfig")

text(
    CASES,
    "nystromformer",
    "NystromformerForMaskedLM",
    "NystromformerConfig",
    ids,
    num_landmarks=4,
    segment_means_seq_len=8,
    sizes=((1, 8), (2, 8), (3, 8)),
)

text(CASES, "yoso", "YosoForMaskedLM", "YosoConfig", masked, use_expectation=True)

text(
    CASES,
    "xlnet",
    "XLNetLMHeadModel",
    "XLNetConfig",
    masked,
    max_position_embeddings=None,
    d_model=32,
    n_layer=2,
    n_head=4,
    d_inner=64,
)

text(
    CASES,
    "xlm",
    "XLMWithLMHeadModel",
    "XLMConfig",
    masked,
    emb_dim=32,
    n_layers=2,
    n_heads=4,
    n_words=V,
)

text(
    CASES,
    "longformer",
    "LongformerForMaskedLM",
    "LongformerConfig",
    masked,
    attention_window=[4, 4],
)

text(
    CASES,
    "bigbird",
    "BigBirdForMaskedLM",
    "BigBirdConfig",
    masked,
    block_size=4,
    num_random_blocks=1,
    sizes=((1, 32), (2, 40), (3, 48)),
)

text(
    CASES,
    "reformer",
    "ReformerModelWithLMHead",
    "ReformerConfig",
    attention_head_size=8,
    attn_layers=["local", "lsh"],
    axial_pos_shape=[8, 8],
    axial_pos_embds_dim=[16, 16],
    feed_forward_size=64,
    local_attn_chunk_length=4,
    lsh_attn_chunk_length=4,
    is_decoder=True,
    num_buckets=2,
    hash_seed=0,
)


def layout(batch, length):
    box = torch.randint(0, 100, (batch, length, 4)).sort(-1).values
    return {"input_ids": tokens(batch, length), "bbox": box[..., [0, 1, 2, 3]]}


text(
    CASES,
    "layoutlm",
    "LayoutLMForMaskedLM",
    "LayoutLMConfig",
    layout,
    max_2d_position_embeddings=128,
)


def tapas(batch, length):
    kinds = torch.stack([torch.randint(0, 2, (batch, length)) for _ in range(7)], -1)
    return {
        "input_ids": tokens(batch, length),
        "token_type_ids": kinds,
        "attention_mask": torch.ones(batch, length, dtype=torch.long),
    }


text(
    CASES,
    "tapas",
    "TapasModel",
    "TapasConfig",
    tapas,
    labels=False,
    type_vocab_sizes=[3, 8, 8, 2, 8, 8, 8],
)


def perceiver(batch, length):
    return {"inputs": torch.randn(batch, length, 32)}


text(
    CASES,
    "perceiver",
    "PerceiverModel",
    "PerceiverConfig",
    perceiver,
    labels=False,
    d_model=32,
    d_latents=32,
    num_latents=4,
    num_blocks=1,
    num_self_attends_per_block=2,
    num_self_attention_heads=4,
    num_cross_attention_heads=4,
)

text(
    CASES,
    "canine",
    "CanineModel",
    "CanineConfig",
    masked,
    labels=False,
    num_hash_buckets=32,
    local_transformer_stride=4,
    upsampling_kernel_size=2,
    downsampling_rate=2,
)
