# SPDX-License-Identifier: Apache-2.0
"""Models of pictures."""

from __future__ import annotations

import torch
import transformers as hf
from cases import ModelCase
from transformers_models import add, images

CASES: dict[str, ModelCase] = {}

VIT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
    "num_labels": 5,
}

add(CASES, "deit", "DeiTForImageClassification", "DeiTConfig", images, **VIT)

add(CASES, "beit", "BeitForImageClassification", "BeitConfig", images, **VIT)

add(CASES, "dinov2", "Dinov2ForImageClassification", "Dinov2Config", images, **VIT)

add(CASES, "dinov3_vit", "DINOv3ViTModel", "DINOv3ViTConfig", images, **VIT)

for _kind in ("Swin", "Swinv2"):
    add(
        CASES,
        _kind.lower(),
        f"{_kind}ForImageClassification",
        f"{_kind}Config",
        images,
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        num_labels=5,
    )

for _kind in ("ConvNext", "ConvNextV2"):
    add(
        CASES,
        _kind.lower(),
        f"{_kind}ForImageClassification",
        f"{_kind}Config",
        images,
        num_stages=2,
        hidden_sizes=[16, 32],
        depths=[1, 1],
        num_labels=5,
    )

add(
    CASES,
    "resnet",
    "ResNetForImageClassification",
    "ResNetConfig",
    images,
    embedding_size=8,
    hidden_sizes=[8, 16],
    depths=[1, 1],
    layer_type="basic",
    num_labels=5,
)

add(
    CASES,
    "regnet",
    "RegNetForImageClassification",
    "RegNetConfig",
    images,
    embedding_size=8,
    hidden_sizes=[8, 16],
    depths=[1, 1],
    groups_width=4,
    num_labels=5,
)

add(
    CASES,
    "mobilevit",
    "MobileViTForImageClassification",
    "MobileViTConfig",
    images,
    image_size=32,
    hidden_sizes=[16, 16, 16],
    neck_hidden_sizes=[8, 8, 8, 8, 8, 8, 16],
    num_attention_heads=2,
    num_labels=5,
)

add(
    CASES,
    "mobilevitv2",
    "MobileViTV2ForImageClassification",
    "MobileViTV2Config",
    lambda b, s: images(b, 64),
    image_size=64,
    num_labels=5,
    width_multiplier=0.125,
)

add(
    CASES,
    "mobilenet_v2",
    "MobileNetV2ForImageClassification",
    "MobileNetV2Config",
    images,
    depth_multiplier=0.25,
    num_labels=5,
)

add(
    CASES,
    "efficientnet",
    "EfficientNetForImageClassification",
    "EfficientNetConfig",
    images,
    image_size=32,
    kernel_sizes=[3, 3],
    in_channels=[32, 8],
    out_channels=[8, 8],
    strides=[1, 2],
    num_block_repeats=[1, 1],
    expand_ratios=[1, 4],
    depthwise_padding=[],
    hidden_dim=1280,
    width_coefficient=1.0,
    depth_coefficient=1.0,
    num_labels=5,
)

add(
    CASES,
    "levit",
    "LevitForImageClassification",
    "LevitConfig",
    lambda b, s: images(b, 64),
    image_size=64,
    hidden_sizes=[16, 32, 48],
    num_attention_heads=[2, 2, 2],
    depths=[1, 1, 1],
    key_dim=[8, 8, 8],
    mlp_ratio=[2, 2, 2],
    attention_ratio=[2, 2, 2],
    num_labels=5,
)

add(
    CASES,
    "poolformer",
    "PoolFormerForImageClassification",
    "PoolFormerConfig",
    images,
    hidden_sizes=[8, 16],
    depths=[1, 1],
    num_encoder_blocks=2,
    patch_sizes=[7, 3],
    strides=[4, 2],
    padding=[2, 1],
    num_labels=5,
)

add(
    CASES,
    "pvt",
    "PvtForImageClassification",
    "PvtConfig",
    lambda b, s: images(b, 64),
    image_size=64,
    hidden_sizes=[8, 8, 16, 16],
    depths=[1, 1, 1, 1],
    num_attention_heads=[1, 1, 2, 2],
    num_labels=5,
)

add(
    CASES,
    "focalnet",
    "FocalNetForImageClassification",
    "FocalNetConfig",
    images,
    image_size=32,
    patch_size=2,
    embed_dim=8,
    depths=[1, 1],
    focal_levels=[2, 2],
    focal_windows=[3, 3],
    hidden_sizes=[8, 16],
    num_labels=5,
)

add(
    CASES,
    "segformer",
    "SegformerForSemanticSegmentation",
    "SegformerConfig",
    lambda b, s: images(b, s),
    sizes=((1, 64), (2, 64), (3, 64)),
    hidden_sizes=[8, 16, 16, 32],
    depths=[1, 1, 1, 1],
    num_attention_heads=[1, 2, 2, 4],
    decoder_hidden_size=16,
    num_labels=5,
)

add(
    CASES,
    "vit_mae",
    "ViTMAEForPreTraining",
    "ViTMAEConfig",
    lambda b, s: {**images(b, s), "noise": torch.rand(b, 16)},
    **VIT,
    decoder_hidden_size=32,
    decoder_num_hidden_layers=1,
    decoder_num_attention_heads=4,
    decoder_intermediate_size=64,
)

add(
    CASES,
    "yolos",
    "YolosForObjectDetection",
    "YolosConfig",
    images,
    **{**VIT, "image_size": [32, 32]},
    num_detection_tokens=4,
)

add(
    CASES,
    "dpt",
    "DPTForDepthEstimation",
    "DPTConfig",
    images,
    **{**VIT, "num_hidden_layers": 4},
    backbone_out_indices=[0, 1, 2, 3],
    fusion_hidden_size=16,
    neck_hidden_sizes=[8, 8, 8, 8],
    reassemble_factors=[4, 2, 1, 0.5],
)

add(
    CASES,
    "vitpose",
    "VitPoseForPoseEstimation",
    lambda: hf.VitPoseConfig(
        backbone_config=hf.VitPoseBackboneConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=[32, 32],
            patch_size=[8, 8],
            out_indices=[2],
        ),
        num_labels=5,
    ),
    images,
)

add(
    CASES,
    "detr",
    "DetrForObjectDetection",
    lambda: hf.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=hf.ResNetConfig(
            embedding_size=8,
            hidden_sizes=[8, 16],
            depths=[1, 1],
            layer_type="basic",
            out_features=["stage2"],
        ),
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_queries=4,
        num_labels=5,
    ),
    lambda b, s: images(b, 64),
)

add(
    CASES,
    "rt_detr",
    "RTDetrForObjectDetection",
    lambda: hf.RTDetrConfig(
        backbone_config=hf.RTDetrResNetConfig(
            embedding_size=8,
            hidden_sizes=[8, 16, 16, 32],
            depths=[1, 1, 1, 1],
            layer_type="basic",
            out_features=["stage2", "stage3", "stage4"],
        ),
        encoder_hidden_dim=16,
        encoder_in_channels=[16, 16, 32],
        encoder_ffn_dim=32,
        encoder_attention_heads=2,
        d_model=16,
        num_queries=6,
        decoder_in_channels=[16, 16, 16],
        decoder_ffn_dim=32,
        decoder_attention_heads=2,
        decoder_layers=1,
        num_labels=5,
        num_denoising=0,
        feat_strides=[8, 16, 32],
    ),
    lambda b, s: images(b, 64),
)

add(
    CASES,
    "superpoint",
    "SuperPointForKeypointDetection",
    "SuperPointConfig",
    lambda b, s: images(b, 64),
    encoder_hidden_sizes=[8, 8, 8, 8],
    decoder_hidden_size=8,
    keypoint_decoder_dim=65,
    descriptor_decoder_dim=8,
)

add(
    CASES,
    "swin2sr",
    "Swin2SRForImageSuperResolution",
    "Swin2SRConfig",
    images,
    image_size=32,
    patch_size=1,
    embed_dim=16,
    depths=[1, 1],
    num_heads=[2, 2],
    window_size=4,
    upscale=2,
)
