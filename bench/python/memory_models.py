# SPDX-License-Identifier: Apache-2.0
"""The models of memory.py: those of the other benchmarks, and larger ones."""

import itertools
from collections.abc import Callable

import torch
from blocks import BLOCKS
from torch import Tensor, nn
from torch.nn import functional
from workloads import WORKLOADS, Workload, normal


class ResidualConvolutions(nn.Module):
    """Three residual blocks of convolutions that halve the picture."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
                nn.BatchNorm2d(2 * width),
                nn.ReLU(),
                nn.Conv2d(2 * width, 2 * width, 3, padding=1),
                nn.BatchNorm2d(2 * width),
            )
            for width in (16, 32, 64)
        )
        self.shortcuts = nn.ModuleList(
            nn.Conv2d(width, 2 * width, 1, stride=2) for width in (16, 32, 64)
        )
        self.last = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        for block, shortcut in zip(self.blocks, self.shortcuts, strict=True):
            x = torch.relu(block(x) + shortcut(x))
        result: Tensor = self.last(x.mean((2, 3)))
        return result


class Recurrent(nn.Module):
    """The last output of a layer that returns outputs and states."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        last: Tensor = self.layer(x)[0][:, -1]
        return last


class Decoder(nn.Module):
    """A causal block as its operators: attention by hand, rotary positions, gated feed-forward."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.RMSNorm(hidden) for _ in range(2))
        self.project = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate = nn.Linear(hidden, 3 * hidden, bias=False)
        self.up = nn.Linear(hidden, 3 * hidden, bias=False)
        self.down = nn.Linear(3 * hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, steps, hidden = x.shape
        projected = self.project(self.norms[0](x)).view(batch, steps, 3, self.heads, -1)
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        scores = rotate(query) @ rotate(key).transpose(-1, -2) * query.shape[-1] ** -0.5
        later = torch.ones(steps, steps, dtype=torch.bool).triu(1)
        mixed = torch.softmax(scores.masked_fill(later, float("-inf")), -1) @ value
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, steps, hidden))
        normal = self.norms[1](x)
        update: Tensor = self.down(functional.silu(self.gate(normal)) * self.up(normal))
        return x + update


def rotate(x: Tensor) -> Tensor:
    """Turn each pair of elements by an angle that grows with the position."""
    half = x.shape[-1] // 2
    rates = 10000.0 ** -(torch.arange(half, dtype=torch.float32) / half)
    angles = torch.arange(x.shape[-2], dtype=torch.float32)[:, None] * rates
    first, second = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


def encoder(layers: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def perceptron() -> nn.Module:
    """Widths that differ, so that buffers don't fit by themselves."""
    widths = (48, 200, 72, 160, 24, 136, 10)
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.LayerNorm(after), nn.GELU()]
    return nn.Sequential(*layers)


LARGER: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "perceptron": (perceptron, (16, 48)),
    "encoder2": (lambda: encoder(2), (2, 10, 64)),
    "encoder12": (lambda: encoder(12), (2, 10, 64)),
    "decoder": (lambda: nn.Sequential(*(Decoder(64, 4) for _ in range(2))), (2, 12, 64)),
    "convolutions": (ResidualConvolutions, (2, 3, 32, 32)),
    "lstm2": (lambda: Recurrent(nn.LSTM(24, 40, 2, batch_first=True)), (3, 12, 24)),
    "gru2": (lambda: Recurrent(nn.GRU(24, 40, 2, batch_first=True)), (3, 12, 24)),
}

MODELS = {
    **WORKLOADS,
    **{
        workload.name: workload
        for block in BLOCKS.values()
        for workload in (block.workload(32, 1), block.workload(64, 4), block.workload(256, 32))
    },
    **{name: Workload(name, "", make, normal(shape)) for name, (make, shape) in LARGER.items()},
}
