# SPDX-License-Identifier: Apache-2.0
"""Training steps with functions of `torch.autograd` that save what they return, as in its docs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (result,) = ctx.saved_tensors
        return gradient * result


class Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        one, other = x.sigmoid(), x.tanh()
        ctx.save_for_backward(one, x, other)
        return one, other

    @staticmethod
    def backward(ctx: Any, of_one: Tensor, of_other: Tensor) -> Tensor:  # type: ignore[override]
        one, _, other = ctx.saved_tensors
        return of_one * one * (1 - one) + of_other * (1 - other * other)


def exponent(x: Tensor) -> Tensor:
    result: Tensor = Exp.apply(x)
    return result


def both(x: Tensor) -> Tensor:
    one, other = Split.apply(x)
    result: Tensor = one * 2 + other
    return result


@pytest.mark.filterwarnings("error:hostjit")  # it would say that it runs in parts
@pytest.mark.parametrize("activation", [exponent, both])
@pytest.mark.parametrize("record", [hostjit.capture, hostjit.compile])
def test_a_training_step_is_one_recording(activation: Any, record: Any) -> None:
    nets = [nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    steps = []
    for net in nets:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)

        def step(x: Tensor, net: Any = net, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss = (net[1](activation(net[0](x))) - 1).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        steps.append(step)
    fast = record(steps[1])
    for _ in range(6):
        x = torch.randn(3, 4)
        assert_close(fast(x), steps[0](x))
    for expected, found in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert_close(found, expected)
