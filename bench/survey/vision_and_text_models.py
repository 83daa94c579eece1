# SPDX-License-Identifier: Apache-2.0
"""Models of pictures and texts, of points in pictures, and of films."""

from __future__ import annotations

import torch
import transformers as hf
from cases import ModelCase
from transformers_models import V, add, images, tokens

CASES: dict[str, ModelCase] = {}


def clip(b, s):
    return {"input_ids": tokens(b, 8), **images(b, s)}


TXT = {
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}

VIS = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}

add(
    CASES,
    "clip",
    "CLIPModel",
    lambda: hf.CLIPConfig(text_config=dict(TXT), vision_config=dict(VIS), projection_dim=16),
    clip,
)

add(
    CASES,
    "siglip",
    "SiglipModel",
    lambda: hf.SiglipConfig(text_config=dict(TXT, projection_size=32), vision_config=dict(VIS)),
    clip,
)

add(
    CASES,
    "clipseg",
    "CLIPSegForImageSegmentation",
    lambda: hf.CLIPSegConfig(
        text_config=dict(TXT),
        vision_config=dict(VIS),
        projection_dim=16,
        extract_layers=[1, 1],
        reduce_dim=16,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=32,
    ),
    clip,
)

add(
    CASES,
    "owlvit",
    "OwlViTModel",
    lambda: hf.OwlViTConfig(text_config=dict(TXT), vision_config=dict(VIS), projection_dim=16),
    clip,
)

add(
    CASES,
    "blip",
    "BlipForConditionalGeneration",
    lambda: hf.BlipConfig(
        text_config=dict(TXT, projection_dim=16, encoder_hidden_size=32),
        vision_config=dict(VIS),
        projection_dim=16,
        image_text_hidden_size=16,
    ),
    clip,
)

add(
    CASES,
    "vilt",
    "ViltModel",
    "ViltConfig",
    clip,
    vocab_size=V,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    image_size=32,
    patch_size=8,
    max_image_length=-1,
)

add(
    CASES,
    "llava",
    "LlavaForConditionalGeneration",
    lambda: hf.LlavaConfig(
        text_config=hf.LlamaConfig(**TXT, num_key_value_heads=2),
        vision_config=hf.CLIPVisionConfig(**VIS),
        image_token_index=5,
        image_seq_length=16,
        vision_feature_layer=-1,
    ),
    lambda b, s: {
        "input_ids": torch.cat([torch.full((b, 16), 5), torch.randint(6, V, (b, 8))], 1),
        **images(b, s),
    },
)

add(
    CASES,
    "vision_encoder_decoder",
    "VisionEncoderDecoderModel",
    lambda: hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        hf.ViTConfig(**VIS),
        hf.GPT2Config(
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=64,
            vocab_size=V,
            is_decoder=True,
            add_cross_attention=True,
        ),
    ),
    lambda b, s: {**images(b, s), "decoder_input_ids": tokens(b, 8)},
)


def sam(b, s):
    return {
        **images(b, 32),
        "input_points": torch.rand(b, 1, 2, 2) * 32,
        "input_labels": torch.ones(b, 1, 2, dtype=torch.long),
    }


add(
    CASES,
    "sam",
    "SamModel",
    lambda: hf.SamConfig(
        vision_config={
            "hidden_size": 16,
            "output_channels": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 4,
            "window_size": 4,
            "global_attn_indexes": [1],
            "mlp_dim": 32,
            "num_pos_feats": 8,
        },
        prompt_encoder_config={
            "hidden_size": 16,
            "image_size": 32,
            "patch_size": 4,
            "mask_input_channels": 4,
        },
        mask_decoder_config={
            "hidden_size": 16,
            "mlp_dim": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "iou_head_hidden_dim": 16,
        },
    ),
    sam,
)


def video(b, s):
    return {"pixel_values": torch.randn(b, 4, 3, 16, 16)}


VID = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 16,
    "patch_size": 8,
    "num_frames": 4,
    "num_labels": 5,
}

add(CASES, "timesformer", "TimesformerForVideoClassification", "TimesformerConfig", video, **VID)

add(CASES, "videomae", "VideoMAEForVideoClassification", "VideoMAEConfig", video, **VID)

add(
    CASES,
    "vivit",
    "VivitForVideoClassification",
    "VivitConfig",
    video,
    **{**VID, "tubelet_size": [2, 8, 8]},
)
