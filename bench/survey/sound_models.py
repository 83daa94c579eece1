# SPDX-License-Identifier: Apache-2.0
"""Models of sounds."""

from __future__ import annotations

import torch
from cases import ModelCase
from transformers_models import V, add, tokens

CASES: dict[str, ModelCase] = {}


SOUNDS = ((1, 800), (2, 1000), (3, 1200))


def sound(b, s):
    return {"input_values": torch.randn(b, s)}


W2V = {
    "vocab_size": 32,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "conv_dim": (16, 16),
    "conv_kernel": (10, 3),
    "conv_stride": (5, 2),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
    "mask_time_prob": 0.0,
    "mask_feature_prob": 0.0,
    "layerdrop": 0.0,
}

add(CASES, "wav2vec2", "Wav2Vec2ForCTC", "Wav2Vec2Config", sound, SOUNDS, **W2V)

add(CASES, "hubert", "HubertForCTC", "HubertConfig", sound, SOUNDS, **W2V)

add(CASES, "wavlm", "WavLMForCTC", "WavLMConfig", sound, SOUNDS, **W2V)

add(
    CASES,
    "data2vec_audio",
    "Data2VecAudioForCTC",
    "Data2VecAudioConfig",
    sound,
    SOUNDS,
    **{**W2V, "num_conv_pos_embeddings": 5, "conv_pos_kernel_size": 5},
)

add(CASES, "sew", "SEWForCTC", "SEWConfig", sound, SOUNDS, **{**W2V, "squeeze_factor": 2})

add(
    CASES,
    "wav2vec2_spec_augment",
    "Wav2Vec2ForCTC",
    "Wav2Vec2Config",
    sound,
    SOUNDS,
    **{**W2V, "mask_time_prob": 0.3, "mask_time_length": 4, "layerdrop": 0.2},
)

add(
    CASES,
    "wav2vec2_conformer",
    "Wav2Vec2ConformerForCTC",
    "Wav2Vec2ConformerConfig",
    sound,
    SOUNDS,
    **W2V,
)

add(
    CASES,
    "encodec",
    "EncodecModel",
    "EncodecConfig",
    lambda b, s: {"input_values": torch.randn(b, 1, s)},
    SOUNDS,
    num_filters=4,
    upsampling_ratios=[4, 2],
    hidden_size=16,
    codebook_size=16,
    codebook_dim=16,
    num_lstm_layers=1,
    sampling_rate=800,
    target_bandwidths=[1.0],
)

add(
    CASES,
    "dac",
    "DacModel",
    "DacConfig",
    lambda b, s: {"input_values": torch.randn(b, 1, s // 8 * 8)},
    SOUNDS,
    encoder_hidden_size=8,
    downsampling_ratios=[2, 4],
    decoder_hidden_size=32,
    upsampling_ratios=[4, 2],
    n_codebooks=2,
    codebook_size=16,
    codebook_dim=4,
    hidden_size=32,
)

add(
    CASES,
    "mimi",
    "MimiModel",
    "MimiConfig",
    lambda b, s: {"input_values": torch.randn(b, 1, s)},
    SOUNDS,
    hidden_size=32,
    num_filters=4,
    upsampling_ratios=[4, 2],
    codebook_size=16,
    codebook_dim=16,
    vector_quantization_hidden_dimension=16,
    num_quantizers=4,
    num_hidden_layers=1,
    intermediate_size=64,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_dim=8,
    upsample_groups=32,
    sliding_window=16,
    num_semantic_quantizers=1,
)

add(
    CASES,
    "vits",
    "VitsModel",
    "VitsConfig",
    lambda b, s: {"input_ids": tokens(b, s)},
    ((1, 8), (2, 10), (3, 12)),
    vocab_size=V,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    ffn_dim=16,
    flow_size=16,
    spectrogram_bins=17,
    prior_encoder_num_flows=2,
    prior_encoder_num_wavenet_layers=2,
    posterior_encoder_num_wavenet_layers=2,
    upsample_initial_channel=16,
    upsample_rates=[2, 2],
    upsample_kernel_sizes=[4, 4],
    resblock_kernel_sizes=[3],
    resblock_dilation_sizes=[[1, 3]],
    duration_predictor_num_flows=2,
    depth_separable_num_layers=1,
    duration_predictor_flow_bins=4,
    noise_scale=0.0,
    noise_scale_duration=0.0,
)

add(
    CASES,
    "speech_to_text",
    "Speech2TextForConditionalGeneration",
    "Speech2TextConfig",
    lambda b, s: {"input_features": torch.randn(b, s, 8), "decoder_input_ids": tokens(b, 6)},
    ((1, 32), (2, 40), (3, 48)),
    vocab_size=V,
    d_model=32,
    encoder_layers=1,
    decoder_layers=1,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
    input_feat_per_channel=8,
    num_conv_layers=2,
    conv_channels=16,
    max_source_positions=64,
    max_target_positions=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=2,
)

add(
    CASES,
    "speecht5",
    "SpeechT5ForSpeechToText",
    "SpeechT5Config",
    lambda b, s: {"input_values": torch.randn(b, s), "decoder_input_ids": tokens(b, 6)},
    SOUNDS,
    vocab_size=V,
    hidden_size=32,
    encoder_layers=1,
    decoder_layers=1,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
    conv_dim=(16, 16),
    conv_kernel=(10, 3),
    conv_stride=(5, 2),
    num_conv_pos_embeddings=8,
    num_conv_pos_embedding_groups=4,
    apply_spec_augment=False,
    encoder_layerdrop=0.0,
    decoder_layerdrop=0.0,
)

add(
    CASES,
    "clap",
    "ClapAudioModel",
    "ClapAudioConfig",
    lambda b, s: {
        "input_features": torch.randn(b, 1, 64, 16),
        "is_longer": torch.zeros(b, 1, dtype=torch.bool),
    },
    window_size=4,
    num_mel_bins=16,
    spec_size=64,
    patch_size=4,
    patch_stride=[4, 4],
    hidden_size=32,
    patch_embeds_hidden_size=8,
    depths=[1, 1],
    num_attention_heads=[2, 2],
    enable_fusion=False,
)

add(
    CASES,
    "audio_spectrogram_transformer",
    "ASTForAudioClassification",
    "ASTConfig",
    lambda b, s: {"input_values": torch.randn(b, 32, 16)},
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    patch_size=8,
    max_length=32,
    num_mel_bins=16,
    num_labels=5,
    frequency_stride=4,
    time_stride=4,
)

add(
    CASES,
    "musicgen_decoder",
    "MusicgenForCausalLM",
    "MusicgenDecoderConfig",
    lambda b, s: {"input_ids": torch.randint(3, V - 1, (b * 2, s))},
    ((1, 8), (2, 12), (3, 16)),
    vocab_size=V,
    hidden_size=32,
    ffn_dim=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_codebooks=2,
    max_position_embeddings=64,
    layerdrop=0.0,
)


add(
    CASES,
    "univnet",
    "UnivNetModel",
    "UnivNetConfig",
    lambda b, s: {"input_features": torch.randn(b, s, 8), "noise_sequence": torch.randn(b, s, 8)},
    ((1, 8), (2, 10), (3, 12)),
    model_in_channels=8,
    model_hidden_channels=8,
    num_mel_bins=8,
    resblock_kernel_sizes=[3],
    resblock_stride_sizes=[2],
    resblock_dilation_sizes=[[1, 3]],
    kernel_predictor_num_blocks=1,
    kernel_predictor_hidden_channels=8,
)
