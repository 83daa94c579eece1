# SPDX-License-Identifier: Apache-2.0
"""Gradients of parameters that are keys of a dict: others at each call."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close


class Momentum:
    """An optimizer as users write them."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.state: dict[nn.Parameter, dict[str, Tensor]] = {}

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for parameter in self.parameters:
            if parameter not in self.state:
                self.state[parameter] = {"m": torch.zeros_like(parameter)}
            kept = self.state[parameter]["m"]
            assert parameter.grad is not None
            kept.mul_(0.9).add_(parameter.grad)
            parameter.sub_(kept * rate)
            parameter.grad = None


@pytest.mark.parametrize("shape", [(), (3,)])
def test_one_program_for_all_gradients(shape: tuple[int, ...]) -> None:
    torch._dynamo.reset()
    mine, eagers = (nn.Parameter(torch.full(shape, 0.5)) for _ in range(2))
    optimizer, other = Momentum([mine]), Momentum([eagers])
    step = torch.compile(optimizer.step, backend="hostjit")
    graphs = torch._dynamo.utils.counters["stats"]
    before = graphs["unique_graphs"]
    for _ in range(8):
        for parameter in (mine, eagers):
            parameter.square().sum().backward()
        step(0.1)
        other.step(0.1)
        assert_close(mine, eagers)
    assert graphs["unique_graphs"] - before <= 2  # without state, and with it
