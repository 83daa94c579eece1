# SPDX-License-Identifier: Apache-2.0
"""Three small models through `hostjit.compile`: what it makes of them and what a call costs."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import hostjit

__all__ = ["demo"]


class LayerNormMLP(nn.Module):
    """x + Linear(gelu(Linear(LayerNorm(x)))), 64-256-64."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.up = nn.Linear(64, 256)
        self.down = nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Takes and returns [batch, 64]."""
        hidden = nn.functional.gelu(self.up(self.norm(x)))
        return x + self.down(hidden)  # type: ignore[no-any-return]


def _models() -> dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]]:
    torch.manual_seed(0)
    policy = nn.Sequential(
        nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8), nn.Tanh()
    )
    block = nn.TransformerEncoderLayer(
        d_model=64, nhead=4, dim_feedforward=128, dropout=0.0, batch_first=True, norm_first=True
    )
    return {
        "control policy 32-64-64-8": (policy, (torch.randn(1, 32),)),
        "LayerNorm-MLP 64-256-64": (LayerNormMLP(), (torch.randn(1, 64),)),
        "transformer block, 16 x 64": (block, (torch.randn(1, 16, 64),)),
    }


def _microseconds(call: Callable[..., Any], args: tuple[torch.Tensor, ...]) -> float:
    """Median over 15 rounds of about 4 ms each."""
    start = time.perf_counter()
    for _ in range(20):
        call(*args)
    count = max(1, int(0.004 / ((time.perf_counter() - start) / 20)))
    rounds = []
    for _ in range(15):
        start = time.perf_counter()
        for _ in range(count):
            call(*args)
        rounds.append((time.perf_counter() - start) / count)
    return statistics.median(rounds) * 1e6


def demo() -> None:
    """Print the Host IR and memory plan of one model, and a table of all."""
    torch.set_num_threads(1)
    rows: list[tuple[str, float, float, float, float, float]] = []
    with torch.no_grad():
        for name, (model, args) in _models().items():
            model.eval()
            expected = model(*args)
            fast = hostjit.compile(model)
            start = time.perf_counter()
            found = fast(*args)
            first = time.perf_counter() - start
            if not rows:
                print(f"Host IR of the {name}:\n\n{_without_kernels(fast.host_ir())}")
                print(f"Its memory plan:\n\n{fast.memory_plan()}")
            gc.disable()
            eager = _microseconds(model, args)
            jit = _microseconds(fast, args)
            with hostjit.runtime("evaluator"):
                difference = max(_difference(expected, found), _difference(expected, fast(*args)))
                evaluator = _microseconds(fast, args)
            gc.enable()
            rows.append((name, first, eager, evaluator, jit, difference))
    print("Microseconds per call (one thread, batch 1, medians):\n")
    print(f"{'':28}{'eager':>9}{'evaluator':>11}{'JIT':>9}{'speed-up':>10}"
          f"{'first call':>12}{'difference':>12}")  # fmt: skip
    for name, first, eager, evaluator, jit, difference in rows:
        print(f"{name:28}{eager:9.2f}{evaluator:11.2f}{jit:9.2f}{eager / jit:9.1f}x"
              f"{first:10.2f} s{difference:12.1e}")  # fmt: skip


def _difference(expected: torch.Tensor, found: torch.Tensor) -> float:
    torch.testing.assert_close(found, expected)
    return (expected - found).abs().max().item()


def _without_kernels(text: str) -> str:
    """The program alone; the LLVM IR of its kernels is longer."""
    return text.split("\nkernel @")[0].rstrip() + "\n"
