# SPDX-License-Identifier: Apache-2.0
"""Functions that the recorded one calls choose by values, and leave loops by them, as it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from calls_that_leave import kinds_of, rows
from torch import Tensor

import hostjit


def clipped(x: Tensor, most: float = 2.0) -> Tensor:
    norm = x.norm()
    if norm > most:
        x = x / norm
    return x


def shrunk(x: Tensor) -> tuple[Tensor, int]:
    for i in range(5):
        x = x * 0.7
        if x.norm() < 1.0:
            return x, i
    return x, 5


def cost(x: Tensor) -> float:
    return x.square().sum().item()


def converged(x: Tensor) -> bool:
    small = False
    if x.norm() < 2.0:
        small = True
    return small


def settled(x: Tensor) -> tuple[Tensor, bool]:
    for _ in range(4):
        x = x * 0.8 + 0.05
        if x.norm() < 4.0:
            return x, True
    return x, False


def one_after_the_other(x: Tensor) -> Tensor:
    return clipped(clipped(x.sin(), 0.5) + x, most=3.0) * 2


def in_a_loop(x: Tensor) -> Tensor:
    x = x + 0.01
    for _ in range(4):
        x = clipped(x) * 1.1 + 0.1
    return x


def returns_a_count(x: Tensor) -> tuple[Tensor, int]:
    y, n = shrunk(x + 0.01)
    return y * 2, n + 1


def compares_costs(x: Tensor) -> tuple[Tensor, float]:
    best, kept = cost(x), x * 1.0
    for _ in range(4):
        x = x - 0.3 * x.sin()
        now = cost(x)
        if now < best:
            best, kept = now, x.clone()
    return kept, best


def asks_for_a_flag(x: Tensor) -> Tensor:
    return x * 3 if converged(x) else x - 1


def asks_for_one_of_two(x: Tensor) -> tuple[Tensor, bool]:
    y, done = settled(x + 0.01)
    if done:
        y = y + 10
    return y.cos(), done


def leaves_by_a_function(x: Tensor) -> Tensor:
    for _ in range(5):
        x = x * 0.8 + 0.01
        if cost(x) < 5.0:
            break
    return x + 1


def deeper(x: Tensor) -> Tensor:
    def twice(y: Tensor) -> Tensor:
        return clipped(clipped(y) + y.cos())

    return twice(x) + one_after_the_other(x)


def again_and_again(x: Tensor, depth: int = 3) -> Tensor:
    """The loops of one function, one in the other."""
    x = x + 0.01
    for _ in range(2):
        x = x * 0.8
        if x.norm() < 1.5:
            break
        if depth:
            x = again_and_again(x, depth - 1)
    return x + 0.1


@torch.no_grad()
def without_gradients(x: Tensor) -> tuple[Tensor, int]:
    for i in range(4):
        x = x * 0.8 + 0.05
        if x.norm() < 1.5:
            return x.cos(), i
    return clipped(x, 5.0), -1


def calls_a_decorated_function(x: Tensor) -> tuple[Tensor, int]:
    y, n = without_gradients(x)
    if n < 0:
        y = y + 1
    return y * 2, n


@torch.autocast("cpu", enabled=False)
def decorated(x: Tensor) -> tuple[Tensor, int]:
    y, n = without_gradients(x + 0.01)
    return clipped(y), n


class Agent:
    gain = 0.9

    def __init__(self) -> None:
        self.target = torch.linspace(-1, 1, 4)
        self.calls = 0
        self.history: list[float] = []

    def improved(self, plan: Tensor, rate: float) -> tuple[Tensor, float]:
        best, kept = float("inf"), plan
        for _ in range(4):
            plan = plan - rate * (plan - self.target)
            now = self.cost(plan)
            if now < best:
                best, kept = now, plan.clone()
            if now < 1.0:
                break
        return kept, best

    @torch.no_grad()
    def look_ahead(self, x: Tensor) -> tuple[Tensor, float]:
        return self.improved(x + 0.01, 0.4)

    def act_ahead(self, x: Tensor) -> tuple[Tensor, float]:
        plan, best = self.look_ahead(self.limited(x))
        return plan * self.gain, best + 1

    def cost(self, plan: Tensor) -> float:
        return (plan - self.target).square().sum().item()

    @staticmethod
    def limited(x: Tensor) -> Tensor:
        if x.abs().max() > 3:
            x = x * 0.5
        return x

    def act(self, x: Tensor) -> tuple[Tensor, float]:
        plan, best = self.improved(self.limited(x + 0.01), 0.3)
        return self.gain * plan, best

    def act_and_count(self, x: Tensor) -> tuple[Tensor, float]:
        self.calls += 1
        return self.act(x)

    def act_and_keep(self, x: Tensor) -> Tensor:
        plan, best = self.improved(x + 0.01, 0.3)
        self.history.append(best)
        return plan


FUNCTIONS = [
    *(one_after_the_other, in_a_loop, returns_a_count, compares_costs, asks_for_a_flag),
    *(asks_for_one_of_two, leaves_by_a_function, deeper),
    *(calls_a_decorated_function, decorated, without_gradients),
]


def check(recorded: Callable[..., Any], eager: Callable[..., Any], times: int = 2) -> None:
    for x in rows(-1.0, -4.0) * times:
        given, expected_given = x.clone(), x.clone()
        expected, found = eager(expected_given), recorded(given)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        assert kinds_of(found) == kinds_of(expected)
        torch.testing.assert_close(given, expected_given)


@pytest.mark.parametrize("program", FUNCTIONS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_one_recording_does(program: Callable[..., Any], runtime: Any) -> None:
    recorded = hostjit.capture(program, runtime=runtime)
    check(recorded, program)
    assert len(recorded.specializations) == 1 and recorded.captured is not None


def test_recursion() -> None:
    check(hostjit.capture(again_and_again), again_and_again)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize(
    "method", ["act", "act_ahead", "look_ahead", "act_and_count", "act_and_keep"]
)
def test_methods(method: str) -> None:
    mine, eager = Agent(), Agent()
    recorded = hostjit.capture(getattr(mine, method))
    check(recorded, getattr(eager, method))
    assert mine.calls == eager.calls
    torch.testing.assert_close(mine.history, eager.history)
    if method != "act_and_keep":
        assert len(recorded.specializations) == 1
