# SPDX-License-Identifier: Apache-2.0
"""Many batch and sequence sizes through one transformer block: compilations, and first calls.

A shape's first call makes a row: it is compared with the second call of the same shape. The same
calls once more, when every shape has its row, tell what of the difference is not the row's: eager's
call before the first has filled the caches.

    python bench/python/any_shape.py --width 768
    python bench/python/any_shape.py --train
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import hostjit


class Block(nn.Module):
    """One block of GPT-2, with a causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        parts = self.qkv(self.norm_1(x)).split(width, dim=2)
        q, k, v = (part.view(shape).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


Call = Callable[[Tensor], list[Tensor]]


def forward(function: Callable[[Tensor], Tensor], model: nn.Module) -> Call:
    """Calls without gradients."""

    def call(x: Tensor) -> list[Tensor]:
        with torch.no_grad():
            return [function(x)]

    return call


def training(function: Callable[[Tensor], Tensor], model: nn.Module) -> Call:
    """Calls with the backward pass of a mean of squares; the gradients are results too."""

    def call(x: Tensor) -> list[Tensor]:
        model.zero_grad()
        result = function(x)
        result.pow(2).mean().backward()
        return [result.detach(), *(parameter.grad for parameter in model.parameters())]

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=64, help="of the block, a multiple of 64")
    parser.add_argument("--shapes", type=int, default=200, help="how many (batch, length)")
    parser.add_argument("--longest", type=int, default=60, help="the greatest length")
    parser.add_argument("--automatic", action="store_true", help="find out which dims vary")
    parser.add_argument("--train", action="store_true", help="calls with their backward passes")
    options = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(1)
    model = Block(options.width, max(4, options.width // 64)).train(options.train)
    fast = hostjit.compile(model, dynamic=None if options.automatic else True)
    kind = training if options.train else forward
    call, eager = kind(fast, model), kind(model, model)
    every = [(b, n) for b in range(2, 12) for n in range(2, options.longest + 1)]
    inputs = [torch.randn(*s, options.width) for s in random.sample(every, options.shapes)]

    def round_of_calls() -> tuple[list[float], list[float]]:
        """How much longer each shape's first call takes than its second, and the second calls."""
        extra, seconds = [], []
        for x in inputs:
            expected = eager(x)
            times = []
            for _ in range(2):
                start = time.perf_counter()
                found = call(x)
                times.append(1e6 * (time.perf_counter() - start))
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
            extra.append(times[0] - times[1])
            seconds.append(times[1])
        # The first shapes compile; automatically, the second does so again.
        return sorted(extra[2:]), seconds[2:]

    extra, seconds = round_of_calls()
    known, _ = round_of_calls()
    print(
        f"width {options.width}: {len(fast.specializations)} compilations for {options.shapes} "
        f"shapes; a first call takes longer than the second by {statistics.median(extra):.0f} us "
        f"in the median, {extra[len(extra) * 9 // 10]:.0f} at the ninth decile, {extra[-1]:.0f} at "
        f"most; once all shapes are known the first of two calls still does by "
        f"{statistics.median(known):.0f} us, {known[len(known) * 9 // 10]:.0f} and "
        f"{known[-1]:.0f}; second calls take {statistics.median(seconds):.0f} us in the median"
    )


if __name__ == "__main__":
    main()
