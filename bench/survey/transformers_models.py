# SPDX-License-Identifier: Apache-2.0
"""How small models of transformers are made, and what they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from cases import ModelCase

V = 128
SIZES = ((1, 8), (2, 12), (3, 16))
BATCHES = ((1, 32), (2, 32), (3, 32))
COMMON = {
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def add(
    cases: dict[str, ModelCase],
    name: str,
    kind: str,
    config: str | Callable[[], Any],
    inputs: Callable[..., dict[str, Any]],
    sizes: tuple[tuple[int, int], ...] = BATCHES,
    labels: bool = False,
    generates: bool = False,
    **options: Any,
) -> None:
    """Add a model: its class, and the class of its configuration, or what makes that."""

    def make() -> Any:
        torch.manual_seed(0)
        made = getattr(hf, config)(**options) if isinstance(config, str) else config()
        return getattr(hf, kind)(made)

    cases[name] = ModelCase(make, inputs, sizes, labels, generates)


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(3, V, (batch, length))


def ids(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {"input_ids": tokens(batch, length)}


def masked(batch: int, length: int) -> dict[str, torch.Tensor]:
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, -3:] = 0
    return {"input_ids": tokens(batch, length), "attention_mask": mask}


def images(batch: int, size: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(batch, 3, size, size)}


def text(
    cases: dict[str, ModelCase],
    name: str,
    kind: str,
    config: str,
    inputs: Callable[..., dict[str, Any]] = ids,
    common: dict[str, Any] = COMMON,
    sizes: tuple[tuple[int, int], ...] = SIZES,
    labels: bool = True,
    generates: bool = False,
    **more: Any,
) -> None:
    """Add a model of texts; options that are None are left out."""
    options = {key: value for key, value in {**common, **more}.items() if value is not None}
    add(cases, name, kind, config, inputs, sizes, labels, generates, **options)
