# SPDX-License-Identifier: Apache-2.0
"""The models of the GPU tables: those of bench/python on another device, and larger blocks."""

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from workloads import WORKLOADS, Ops, Workload, linear, normal


class AttentionOps(Ops, Protocol):
    """What the formulas of the blocks need beside `Ops`."""

    def self_attention(self, projected: Any, heads: int, causal: bool) -> Any:
        """Attend over [batch, steps, 3 * width] of queries, keys and values."""


class PointwiseChain(nn.Module):
    """A hundred pointwise operations on one small tensor."""

    def forward(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        for _ in range(25):
            x = torch.tanh(x * scale + shift) - shift
        return x


def pointwise_chain_formula(ops: Ops, _: Any, x: Any, scale: Any, shift: Any) -> Any:
    for _ in range(25):
        x = ops.tanh(x * scale + shift) - shift
    return x


class ProductChain(nn.Module):
    """A hundred kernels of which no two neighbours are one: small products and functions."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16) / 4)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(50):
            x = torch.tanh(x @ self.weight)
        return x


def product_chain_formula(ops: Ops, parameters: Any, x: Any) -> Any:
    for _ in range(50):
        x = ops.tanh(x @ parameters["weight"])
    return x


class TransformerBlock(nn.Module):
    """Attention and a feed-forward block, each behind a norm and beside a residual."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.second_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(
        self, x: Tensor, keys: Tensor | None = None, values: Tensor | None = None
    ) -> Tensor:
        """Attend also over the keys and values of earlier tokens, where they are given."""
        batch, steps, width = x.shape
        split = self.project(self.norm(x)).view(batch, steps, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        if keys is not None and values is not None:
            key, value = torch.cat((keys, key), dim=2), torch.cat((values, value), dim=2)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, steps, width))
        update: Tensor = self.down(functional.gelu(self.up(self.second_norm(x))))
        return x + update


def transformer_block_formula(heads: int, causal: bool) -> Any:
    def formula(ops: AttentionOps, parameters: Any, x: Any) -> Any:
        def norm(name: str, x: Any) -> Any:
            normal = ops.layer_norm(x)
            return normal * parameters[f"{name}.weight"] + parameters[f"{name}.bias"]

        projected = linear(parameters, "project", norm("norm", x))
        mixed = ops.self_attention(projected, heads, causal)
        x = x + linear(parameters, "out", mixed)
        inner = ops.gelu(linear(parameters, "up", norm("second_norm", x)))
        return x + linear(parameters, "down", inner)

    return formula


def uniform(*shapes: tuple[int, ...]) -> Callable[[torch.Generator], tuple[Tensor, ...]]:
    """Return a maker of float32 inputs between 0 and 1: a chain makes no error larger."""
    return lambda generator: tuple(torch.rand(shape, generator=generator) for shape in shapes)


def triton_chain() -> nn.Module:
    module: nn.Module = importlib.import_module("triton_chain").TritonChain()  # needs Triton
    return module


NEW = (
    Workload(
        "pointwise100",
        "25 times tanh(x * scale + shift) - shift on 1024 floats",
        PointwiseChain,
        uniform((1024,), (1024,), (1024,)),
        pointwise_chain_formula,
    ),
    Workload(
        "launches100",
        "50 times tanh(x @ w), one 16x16 w, batch 16: 100 kernels that do not fuse",
        ProductChain,
        normal((16, 16)),
        product_chain_formula,
    ),
    Workload(
        "triton100",
        "100 launches of a user's Triton kernel that adds 1 to 128 floats",
        triton_chain,
        normal((128,)),
    ),
    Workload(
        "block_token",
        "a transformer block of width 256 and 4 heads, one token after 64, batch 1",
        lambda: TransformerBlock(256, 4, causal=False),
        normal((1, 1, 256), (1, 4, 64, 64), (1, 4, 64, 64)),
    ),
    Workload(
        "block_b1",
        "the same block for 64 tokens, batch 1",
        lambda: TransformerBlock(256, 4, causal=False),
        normal((1, 64, 256)),
        transformer_block_formula(4, causal=False),
    ),
    Workload(
        "gpt2_block",
        "a causal block of width 768 and 12 heads, 128 tokens, batch 1",
        lambda: TransformerBlock(768, 12, causal=True),
        normal((1, 128, 768)),
        transformer_block_formula(12, causal=True),
    ),
)

MODELS = {workload.name: workload for workload in (*WORKLOADS.values(), *NEW)}


def on_device(workload: Workload, device: str) -> Workload:
    """Return the workload with its parameters and inputs, of the same values, on a device."""
    return replace(
        workload,
        make_module=lambda: workload.make_module().to(device),
        make_inputs=lambda generator: tuple(x.to(device) for x in workload.make_inputs(generator)),
    )
