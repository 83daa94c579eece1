# SPDX-License-Identifier: Apache-2.0
"""Modules with example arguments on a device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["MODULES", "make_module"]


class Block(nn.Module):
    """A transformer's block, in one class so that a test sees every part of it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(
            width, 3 * width, bias=False
        )  # that of keys has noise for gradient
        self.out = nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, steps, width = x.shape
        split = self.project(self.norm(x)).view(batch, steps, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, steps, width))
        update: Tensor = self.feed(x)
        return x + update


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, num_layers=2, batch_first=True)
        self.gru = nn.GRU(16, 8, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.gru(self.lstm(x)[0])[0]
        return y


class Tokens(nn.Module):
    """An embedding, a block and logits; the argument is of integers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 32)
        self.block = Block(32, 4)
        self.head = nn.Linear(32, 32, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.block(self.embedding(x.abs().long() % 32)))
        return y


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),  # its gradient would be noise
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=2),
        nn.GroupNorm(2, 8),
        nn.SiLU(),
        nn.Flatten(),
        nn.Linear(72, 5),
    )


def policy() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8), nn.Tanh())


# How to make each, and the shape of its argument.
MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "policy": (policy, (1, 32)),
    "block": (lambda: Block(32, 4), (2, 9, 32)),
    "tokens": (Tokens, (2, 9)),
    "convolutional": (convolutional, (2, 3, 10, 10)),
    "recurrent": (Recurrent, (2, 5, 8)),
}


def make_module(name: str, device: str) -> tuple[nn.Module, Tensor]:
    """Return a module, the same at every call, and its argument."""
    make, shape = MODULES[name]
    torch.manual_seed(0)
    return make().to(device), torch.randn(shape).mul(8).round().div(4).to(device)
