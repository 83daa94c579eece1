# SPDX-License-Identifier: Apache-2.0
"""The blocks of sweep.py: small models of any hidden size at any batch."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from workloads import LayerNormMlp, Workload, normal

# Steps of the recurrent models and tokens of the attention block.
STEPS = 8


@dataclass(frozen=True)
class Block:
    """A family of models. `input_shape(hidden)` is the shape of one example of the batch."""

    name: str
    description: str
    make_module: Callable[[int], nn.Module]
    input_shape: Callable[[int], tuple[int, ...]]

    def workload(self, hidden: int, batch: int) -> Workload:
        return Workload(
            f"{self.name}_h{hidden}_b{batch}",
            self.description,
            lambda: self.make_module(hidden),
            normal((batch, *self.input_shape(hidden))),
        )


class Attention(nn.Module):
    """Self-attention of a transformer: one product makes queries, keys and values of all heads."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.project = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.heads = hidden // max(16, min(64, hidden // 4))

    def forward(self, x: Tensor) -> Tensor:
        batch, steps, hidden = x.shape
        heads = self.project(x).view(batch, steps, 3, self.heads, hidden // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        update: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, steps, hidden))
        return x + update


class MaskedSoftmax(nn.Module):
    """Probabilities of the scores that a constant mask leaves over."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.scale = hidden**-0.5
        self.register_buffer("mask", torch.arange(hidden) % 4 == 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax((x * self.scale).masked_fill(self.mask, float("-inf")), dim=-1)


class Lstm(nn.Module):
    """The last output of a layer whose steps are one operator."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.layer = nn.LSTM(hidden, hidden, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        last: Tensor = self.layer(x)[0][:, -1]
        return last


class LstmCell(nn.Module):
    """The same layer as a loop over its steps."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        state = self.cell(x[:, 0])
        for step in range(1, STEPS):
            state = self.cell(x[:, step], state)
        last: Tensor = state[0]
        return last


def policy(hidden: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(hidden // 2, hidden),
        nn.Tanh(),
        nn.Linear(hidden, hidden),
        nn.Tanh(),
        nn.Linear(hidden, 8),
        nn.Tanh(),
    )


def conv1d(hidden: int) -> nn.Module:
    channels = hidden // 4
    return nn.Sequential(nn.Conv1d(channels, channels, 3, padding=1), nn.ReLU())


def conv2d(hidden: int) -> nn.Module:
    channels = hidden // 4
    return nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU())


BLOCKS = {
    block.name: block
    for block in (
        Block(
            "policy",
            "Linear hidden/2-hidden-hidden-8, tanh after each",
            policy,
            lambda hidden: (hidden // 2,),
        ),
        Block(
            "lnmlp",
            "x + Linear(gelu(Linear(LayerNorm(x)))), hidden-4*hidden-hidden",
            lambda hidden: LayerNormMlp(hidden, 4 * hidden),
            lambda hidden: (hidden,),
        ),
        Block(
            "attention",
            f"x + multi-head self-attention over {STEPS} tokens, heads of 16 to 64",
            Attention,
            lambda hidden: (STEPS, hidden),
        ),
        Block(
            "softmax",
            "softmax of scaled rows, every fourth element masked out",
            MaskedSoftmax,
            lambda hidden: (hidden,),
        ),
        Block(
            "lstm", f"nn.LSTM over {STEPS} steps, last output", Lstm, lambda hidden: (STEPS, hidden)
        ),
        Block(
            "lstm_cell",
            f"nn.LSTMCell called {STEPS} times",
            LstmCell,
            lambda hidden: (STEPS, hidden),
        ),
        Block(
            "conv1d",
            "Conv1d of hidden/4 channels and width 3 on 32 elements, relu",
            conv1d,
            lambda hidden: (hidden // 4, 32),
        ),
        Block(
            "conv2d",
            "Conv2d of hidden/4 channels and width 3x3 on 8x8 elements, relu",
            conv2d,
            lambda hidden: (hidden // 4, 8, 8),
        ),
    )
}
