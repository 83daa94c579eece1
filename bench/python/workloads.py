# SPDX-License-Identifier: Apache-2.0
"""The models of the benchmarks, each as a PyTorch module and as a formula for other arrays."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional


class Ops(Protocol):
    """What a formula needs of an array library that is not PyTorch.

    Arrays also have the operators `+`, `-`, `*` and `@`.
    """

    def relu(self, x: Any) -> Any: ...

    def tanh(self, x: Any) -> Any: ...

    def gelu(self, x: Any) -> Any:
        """Return the exact gelu, x * (1 + erf(x / sqrt(2))) / 2."""

    def layer_norm(self, x: Any) -> Any:
        """Normalise the last dim to mean 0 and variance 1, with epsilon 1e-5."""


# (ops, parameters by their name in the module's state_dict, inputs) -> output
Formula = Callable[..., Any]


@dataclass(frozen=True)
class Workload:
    """One model with example inputs. The arguments of a call are positional tensors.

    formula: what the peers run that are array libraries; None where only modules are compared.
    """

    name: str
    description: str
    make_module: Callable[[], nn.Module]
    make_inputs: Callable[[torch.Generator], tuple[Tensor, ...]]
    formula: Formula | None = None

    def module(self) -> nn.Module:
        """Return the module with the same parameters at every call, in evaluation mode."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.make_module().eval()

    def inputs(self, seed: int = 0) -> tuple[Tensor, ...]:
        return self.make_inputs(torch.Generator().manual_seed(seed))


class Pointwise(nn.Module):
    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return torch.relu(a + b) * c - a


def pointwise_formula(ops: Ops, _: Mapping[str, Any], a: Any, b: Any, c: Any) -> Any:
    return ops.relu(a + b) * c - a


class Policy(nn.Module):
    """A small control policy."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 64)
        self.second = nn.Linear(64, 64)
        self.last = nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        x = torch.tanh(self.second(x))
        return torch.tanh(self.last(x))


def policy_formula(ops: Ops, parameters: Mapping[str, Any], x: Any) -> Any:
    for layer in ("first", "second", "last"):
        x = ops.tanh(linear(parameters, layer, x))
    return x


class LayerNormMlp(nn.Module):
    """The feed-forward block of a transformer."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        update: Tensor = self.down(functional.gelu(self.up(self.norm(x))))
        return x + update


def layer_norm_mlp_formula(ops: Ops, parameters: Mapping[str, Any], x: Any) -> Any:
    normal = ops.layer_norm(x) * parameters["norm.weight"] + parameters["norm.bias"]
    return x + linear(parameters, "down", ops.gelu(linear(parameters, "up", normal)))


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16) / 4)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(32):
            x = torch.tanh(x @ self.weight)
        return x


def chain_formula(ops: Ops, parameters: Mapping[str, Any], x: Any) -> Any:
    for _ in range(32):
        x = ops.tanh(x @ parameters["weight"])
    return x


def linear(parameters: Mapping[str, Any], layer: str, x: Any) -> Any:
    return x @ parameters[f"{layer}.weight"].T + parameters[f"{layer}.bias"]


def normal(*shapes: tuple[int, ...]) -> Callable[[torch.Generator], tuple[Tensor, ...]]:
    """Return a maker of float32 inputs from the standard normal distribution."""
    return lambda generator: tuple(torch.randn(shape, generator=generator) for shape in shapes)


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "pointwise16",
            "relu(a + b) * c - a on 16 floats",
            Pointwise,
            normal((16,), (16,), (16,)),
            pointwise_formula,
        ),
        Workload(
            "policy_b1",
            "Linear 32-64-64-8, tanh after each, batch 1",
            Policy,
            normal((1, 32)),
            policy_formula,
        ),
        Workload(
            "lnmlp_b1",
            "x + Linear(gelu(Linear(LayerNorm(x)))), 64-256-64, batch 1",
            lambda: LayerNormMlp(64, 256),
            normal((1, 64)),
            layer_norm_mlp_formula,
        ),
        Workload(
            "chain32",
            "32 times tanh(x @ w), one 16x16 w, batch 1",
            Chain,
            normal((1, 16)),
            chain_formula,
        ),
        Workload(
            "pointwise1M",
            "relu(a + b) * c - a on 2**20 floats",
            Pointwise,
            normal((2**20,), (2**20,), (2**20,)),
            pointwise_formula,
        ),
        Workload(
            "lnmlp_b512",
            "x + Linear(gelu(Linear(LayerNorm(x)))), 256-1024-256, batch 512",
            lambda: LayerNormMlp(256, 1024),
            normal((512, 256)),
            layer_norm_mlp_formula,
        ),
    )
}
