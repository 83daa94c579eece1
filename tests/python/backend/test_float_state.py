# SPDX-License-Identifier: Apache-2.0
"""Floats that a call keeps, through torch.compile: one graph for any, and Python's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

import hostjit  # noqa: F401  # registers the backend


class Agent:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 4)
        self.rate, self.other = 1.0, -0.25


def decay(agent: Agent, x: Tensor) -> Tensor:
    agent.rate = agent.rate * 0.9
    return agent.layer(x)


def decay_and_use(agent: Agent, x: Tensor) -> Tensor:
    agent.rate *= 0.9
    return agent.layer(x) * agent.rate + agent.other


def keep_above(agent: Agent, x: Tensor) -> Tensor:
    agent.rate = max(0.5, agent.rate * 0.95)
    agent.other = min(agent.other + 0.125, 0.7)
    return agent.layer(x)


def compute_much(agent: Agent, x: Tensor) -> Tensor:
    agent.rate = (agent.rate * 0.9 * 1.1 - 0.3) / 7 + 0.1 + 0.2
    agent.other = -(3 - agent.rate) * 0.1 * agent.other
    return agent.layer(x) - agent.other


def interpolate(agent: Agent, x: Tensor) -> Tensor:
    agent.rate *= 0.9
    return torch.lerp(agent.layer(x), x, 1 - agent.rate)


def return_it(agent: Agent, x: Tensor) -> Any:
    agent.rate += 0.1
    return agent.layer(x) * agent.rate, agent.rate, agent.rate + 1


OPEN = [decay, decay_and_use, keep_above, compute_much, interpolate, return_it]


def divide_by_it(agent: Agent, x: Tensor) -> Any:
    agent.rate -= 0.25
    try:
        agent.other = 1 / agent.rate
    except ZeroDivisionError:
        agent.other = 100.0
    return agent.layer(x)


def decide(agent: Agent, x: Tensor) -> Any:
    agent.rate -= 0.25
    return agent.layer(x) if agent.rate > 0.1 else agent.layer(x) * agent.rate


def powers(agent: Agent, x: Tensor) -> Any:
    agent.rate = agent.rate**1.1 * 1.5
    return agent.layer(x) * agent.rate


@pytest.mark.parametrize("gradients", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    "function", [*OPEN, divide_by_it, decide, powers], ids=lambda function: function.__name__
)
def test_as_eager(function: Callable[..., Any], gradients: bool) -> None:
    torch._dynamo.reset()
    counters.clear()
    agent, twin = Agent(), Agent()
    fast = torch.compile(function, backend="hostjit")
    with torch.set_grad_enabled(gradients):
        for number in range(12):
            x = torch.randn(4)
            found, expected = fast(agent, x), function(twin, x)
            torch.testing.assert_close(found, expected)
            assert (agent.rate, agent.other) == (twin.rate, twin.other)
            if gradients:
                for result in (found, expected):
                    (result[0] if isinstance(result, tuple) else result).sum().backward()
                weights = (one.layer.weight.grad for one in (agent, twin))
                torch.testing.assert_close(*weights)
            if number == 8:
                agent.rate = twin.rate = -0.0
    # The derivative of an interpolation takes the number itself.
    if function in OPEN and not (function is interpolate and gradients):
        assert counters["stats"]["unique_graphs"] <= 3
