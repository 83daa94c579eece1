# SPDX-License-Identifier: Apache-2.0
"""Tensors in attributes that calls replace: a replay takes what there is, and replaces it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit


def randn(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


class Planner:
    """Improves what it has planned, call after call."""

    def __init__(self) -> None:
        self.plan, self.last, self.momentum = torch.zeros(4), torch.ones(4), torch.zeros(4)
        self.hidden: Tensor | None = None
        self.row = torch.ones(4)

    def gradient(self, x: Tensor) -> Tensor:
        plan = self.plan.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(((plan - x).square() + plan.sin()).sum(), plan)
        return gradient

    def improve(self, x: Tensor) -> Any:
        gradient = self.gradient(x)
        self.momentum.mul_(0.5).add_(gradient)
        self.plan = self.plan - 0.1 * self.momentum
        return self.plan.sum()

    def looks(self, x: Tensor) -> Any:
        return self.gradient(x) * 2

    def shifts(self, x: Tensor) -> Any:
        gradient = self.gradient(x)
        self.last, self.plan = self.plan, self.plan - 0.1 * gradient
        return self.last * 2

    def returns(self, x: Tensor) -> Any:
        self.plan = self.plan - 0.1 * self.gradient(x)
        return self.plan

    def returns_what_was(self, x: Tensor) -> Any:
        before, self.plan = self.plan, self.plan - 0.1 * self.gradient(x)
        return before

    def writes_what_was(self, x: Tensor) -> Any:
        gradient = self.gradient(x)
        self.plan.mul_(0.9)
        self.plan = self.plan - gradient * self.row
        return gradient

    def may_replace(self, x: Tensor) -> Any:
        gradient = self.gradient(x)
        if gradient.norm() > 2.0:
            self.plan = self.plan - 0.2 * gradient
        return gradient

    def begins_with_none(self, x: Tensor) -> Any:
        gradient = self.gradient(x)
        if self.hidden is None:
            self.hidden = torch.zeros(4)
        self.hidden = (self.hidden + gradient).tanh()
        return self.hidden * 2

    def asks_which(self, x: Tensor) -> Any:
        gradient = self.gradient(x)
        again = self.plan is self.last
        self.plan = self.plan - 0.1 * gradient
        return gradient * (2 if again else 1)


METHODS = [
    *("improve", "looks", "shifts", "returns", "returns_what_was", "writes_what_was"),
    *("may_replace", "begins_with_none", "asks_which"),
]


def nothing(planner: Planner, call: int) -> None:
    """Leave it to the calls."""


def others(planner: Planner, call: int) -> None:
    """Bring others now and then."""
    if call % 3 == 2:
        planner.plan = randn(4, seed=call)


def more_than_tensors(planner: Planner, call: int) -> None:
    """Bring what a program does not take."""
    if call == 6:
        planner.plan = planner.plan.double()
    elif call == 8:
        planner.plan = planner.plan.float()
    elif call == 9:
        planner.plan = torch.nn.Parameter(planner.plan.detach().clone(), requires_grad=False)
    elif call == 11:
        planner.plan = planner.plan.detach().clone()
        planner.hidden = None
    elif call == 12:
        planner.plan = randn(8, seed=call)[::2]


def one_in_two_places(planner: Planner, call: int) -> None:
    """Bring what is elsewhere, too, or a part of it."""
    if call % 4 == 1:
        planner.last = planner.plan
    elif call % 4 == 2:
        planner.plan = planner.momentum
    elif call % 4 == 3:
        memory = randn(2, 4, seed=call)
        planner.plan, planner.row = memory[0], memory[0]


def state(planner: Planner) -> dict[str, Any]:
    found = dict(vars(planner))
    tensors = [value for value in found.values() if isinstance(value, Tensor)]
    found["same"] = [[a is b for a in tensors] for b in tensors]
    return found


CHANGES = [nothing, others, more_than_tensors, one_in_two_places]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("wrap", [hostjit.capture, hostjit.compile], ids=["capture", "compile"])
@pytest.mark.filterwarnings("ignore")
def test_calls_do_as_eager_ones(
    wrap: Callable[..., Any], method: str, change: Callable[[Planner, int], None]
) -> None:
    ours, eagers = Planner(), Planner()
    run = wrap(getattr(ours, method))
    for call in range(16):
        for planner in (ours, eagers):
            change(planner, call)
        x = randn(4, seed=100 + call)
        of_plan = call % 5 == 4
        found = run(ours.plan.detach() if of_plan else x)
        expected = getattr(eagers, method)(eagers.plan.detach() if of_plan else x)
        torch.testing.assert_close(found, expected)
        now, then = state(ours), state(eagers)
        assert now.pop("same") == then.pop("same")
        assert (found is ours.plan, found is ours.last) == (
            expected is eagers.plan,
            expected is eagers.last,
        )
        torch.testing.assert_close(now, then)


@pytest.mark.filterwarnings("ignore")
def test_an_argument_may_be_in_the_attribute() -> None:
    ours, eagers = Planner(), Planner()
    run = hostjit.capture(ours.writes_what_was)
    for call in range(12):
        xs = [p.plan if call % 3 == 2 else randn(4, seed=call) for p in (ours, eagers)]
        torch.testing.assert_close(run(xs[0]), eagers.writes_what_was(xs[1]))
        torch.testing.assert_close(xs[0], xs[1])
        torch.testing.assert_close(ours.plan, eagers.plan)


@pytest.mark.filterwarnings("ignore:hostjit")
def test_results_with_gradients_are_not_left_to_eager_mode() -> None:
    class Scaled:
        scale = torch.ones(3)

        def of(self, x: Tensor) -> Tensor:
            return (x * self.scale).sin()

    ours, eagers = Scaled(), Scaled()
    run = hostjit.capture(ours.of)
    for call in range(12):
        ours.scale = eagers.scale = randn(3, seed=call)
        xs = [randn(3, seed=50 + call).requires_grad_() for _ in range(2)]
        found, expected = run(xs[0]), eagers.of(xs[1])
        for each in (found, expected):
            each.sum().backward()
        torch.testing.assert_close((found, xs[0].grad), (expected, xs[1].grad))
    assert run.captured is not None


@pytest.mark.parametrize("method", ["improve", "looks", "shifts", "returns"])
def test_one_recording_does(method: str) -> None:
    planner = Planner()
    run = hostjit.capture(getattr(planner, method))
    for call in range(12):
        others(planner, call)
        run(randn(4, seed=call))
    assert len(run.specializations) <= 2 and run.captured is not None
    before = run.specializations
    for call in range(12, 24):
        others(planner, call)
        run(randn(4, seed=call))
    assert run.specializations == before


def test_nothing_keeps_what_was_replaced() -> None:
    planner = Planner()
    run = hostjit.capture(planner.improve)
    for call in range(8):
        run(randn(4, seed=call))
    was = planner.plan
    run(randn(4))
    assert planner.plan is not was
    assert sys.getrefcount(was) == 2
