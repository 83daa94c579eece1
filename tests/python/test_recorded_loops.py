# SPDX-License-Identifier: Apache-2.0
"""Loops that Dynamo gives up on, and gradients computed inside of a call: recorded by compile."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

NOWHERE = io.StringIO()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


class Controller:
    """Plans actions by gradients of a cost through learned dynamics."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.dynamics = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
        self.limit = 1.0

    def cost(self, state: Tensor, actions: Tensor) -> Tensor:
        total = torch.zeros(())
        for action in actions:
            state = state + self.dynamics(torch.cat([state, action]))
            total = total + state.square().sum() + 0.1 * action.square().sum()
        return total

    def by_grad(self, state: Tensor, actions: Tensor) -> Tensor:
        for _ in range(3):
            actions = actions.detach().requires_grad_(True)
            (gradient,) = torch.autograd.grad(self.cost(state, actions), actions)
            actions = (actions - 0.05 * gradient).clamp(-self.limit, self.limit)
        return actions.detach()

    def by_backward(self, state: Tensor, actions: Tensor) -> Tensor:
        actions = actions.clone().requires_grad_(True)
        for _ in range(3):
            self.cost(state, actions).backward()
            with torch.no_grad():
                actions -= 0.05 * actions.grad  # type: ignore[operator]
                actions.grad.zero_()  # type: ignore[union-attr]
        return actions.detach()

    def by_adam(self, state: Tensor, actions: Tensor) -> Tensor:
        actions = actions.clone().requires_grad_(True)
        optimizer = torch.optim.Adam([actions], lr=0.05)
        for _ in range(3):
            optimizer.zero_grad()
            self.cost(state, actions).backward()
            optimizer.step()
        return actions.detach()

    def until_it_settles(self, state: Tensor, actions: Tensor) -> Tensor:
        with torch.no_grad():
            for _ in range(10):
                change = 0.5 * (state[:2].tanh() - actions)
                actions = actions + change
                if (change.abs() < 1e-2).all():
                    break
        return actions

    def exploring(self, state: Tensor, actions: Tensor) -> Tensor:
        for _ in range(2):
            actions = actions.detach().requires_grad_(True)
            noisy = actions + 0.1 * torch.randn_like(actions)
            (gradient,) = torch.autograd.grad(self.cost(state, noisy), actions)
            actions = actions - 0.05 * gradient
        return actions.detach()

    def printing(self, state: Tensor, actions: Tensor) -> Tensor:
        for number in range(2):
            print(number, file=NOWHERE)
            actions = self.by_grad(state, actions)
        return actions

    def of_the_gradient(self, state: Tensor, actions: Tensor) -> Tensor:
        inner = actions.detach().requires_grad_(True)
        for _ in range(2):
            cost = (inner * state[:2]).exp().sum()
            (gradient,) = torch.autograd.grad(cost, inner, create_graph=True)
            inner = inner - 0.05 * gradient
        return self.dynamics(torch.cat([state, inner[0]])).sum()


WAYS = [name for name, value in vars(Controller).items() if callable(value) and name[0] != "_"]
WAYS.remove("cost")
RECORDED = ["by_grad", "by_backward", "by_adam", "until_it_settles", "exploring"]


def draw() -> tuple[Tensor, Tensor]:
    return torch.randn(3), torch.randn(4, 2)


def gradients(module: nn.Module) -> list[Tensor | None]:
    return [parameter.grad for parameter in module.parameters()]


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_loops_answer_as_eager_does(way: str, frozen: bool) -> None:
    ours, eager = Controller(), Controller()
    for controller in (ours, eager):
        controller.dynamics.requires_grad_(not frozen)
    fast = hostjit.compile(getattr(ours, way))
    for number in range(7):
        args = draw()
        if number == 5:
            ours.limit = eager.limit = 0.2
        results = []
        for call in (fast, getattr(eager, way)):
            torch.manual_seed(number)
            results.append(call(*copy.deepcopy(args)))
        assert_close(*results)
        assert results[0].requires_grad == results[1].requires_grad
        assert_close(gradients(ours.dynamics), gradients(eager.dynamics))
        if results[0].requires_grad:
            for result in results:
                result.backward()
            assert_close(gradients(ours.dynamics), gradients(eager.dynamics))


@pytest.mark.parametrize("way", RECORDED)
def test_one_program_answers(way: str) -> None:
    controller = Controller()
    fast = hostjit.compile(getattr(controller, way))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="hostjit")
        for _ in range(4):
            fast(*draw())
    assert "program @" in fast.host_ir()
    state, actions = torch.zeros(3), torch.zeros(4, 2)
    fast(state, actions)
    assert fast.owner._recorded.match(state, actions) is not None


def test_what_is_no_recording_runs_in_parts() -> None:
    fast = hostjit.compile(Controller().printing)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            fast(*draw())
    said = [str(warning.message) for warning in caught if "hostjit" in str(warning.message)]
    assert len(said) == 1
    assert "runs in parts" in said[0]
    assert fast.owner._recorded is None


@pytest.mark.parametrize("calls", ["sizes", "floats", "ints"])
def test_what_differs_at_every_call_ends_recordings(calls: str) -> None:
    ours, eager = Controller(), Controller()

    def step(controller: Controller) -> Callable[..., Tensor]:
        def run(state: Tensor, actions: Tensor, rate: float) -> Tensor:
            for _ in range(2):
                controller.cost(state, actions * rate).backward()
            return torch.mul(state, rate)  # which is given a number

        return run

    fast, slow = hostjit.compile(step(ours)), step(eager)
    last = 66 if calls == "sizes" else 4  # sizes that never come again are not recorded
    for number in range(last + 4):
        length = 2 + number if calls == "sizes" else 3
        rate: Any = {"sizes": 0.5, "floats": 0.5 + number / 7, "ints": 2 + number}[calls]
        args = torch.randn(3) / 8, torch.randn(length, 2) / 8, rate
        assert_close(fast(*args), slow(*args))
        assert_close(gradients(ours.dynamics), gradients(eager.dynamics))
        if number == last:
            assert fast.owner._recorded is None


@pytest.mark.parametrize("repeats", [False, True])
def test_found_sizes_that_no_later_call_has_end_recordings(repeats: bool) -> None:
    def largest(rows: Tensor) -> Tensor:
        total = torch.zeros(rows.shape[1])
        for level in (0.2, 0.5, 0.8):
            found = rows[rows[:, 0] > level]
            if len(found) > 0:
                total = total + found.exp().mean(0)
        return total

    fast = hostjit.compile(largest)
    ramp = torch.linspace(0, 1, 30).view(-1, 1).repeat(1, 4)
    batches = [ramp * (1 - number / 20) for number in range(6)]
    for rows in [batches[0], *(rows for rows in batches for _ in range(1 + repeats))]:
        assert_close(fast(rows), largest(rows))
    assert (fast.owner._recorded is not None) == repeats


def test_refused_where_that_was_asked_for() -> None:
    fast = hostjit.compile(Controller().by_grad, fallback=False)
    for _ in range(3):
        with pytest.raises(hostjit.CaptureError, match="graph break"):
            fast(*draw())


def test_modes_have_recordings_of_their_own() -> None:
    def step(x: Tensor) -> Tensor:
        for _ in range(3):
            if x.sum() > 0:
                x = x - 1
        return x * weight

    weight = nn.Parameter(torch.ones(3))
    fast = hostjit.compile(step)
    for number in range(9):
        x = torch.randn(3) + 1
        with torch.set_grad_enabled(number % 3 > 0):
            found, expected = fast(x), step(x)
        assert_close(found, expected)
        assert found.requires_grad == expected.requires_grad
        if found.requires_grad:
            ours, eager = (torch.autograd.grad(y.sum(), weight) for y in (found, expected))
            assert_close(ours, eager)


def test_errors_are_those_of_eager() -> None:
    def step(x: Tensor, index: Tensor) -> Tensor:
        for _ in range(2):
            leaf = x.detach().requires_grad_(True)
            (gradient,) = torch.autograd.grad(leaf[index].square().sum(), leaf)
            x = x - gradient
        return x

    fast = hostjit.compile(step)
    good, bad = torch.tensor([0, 2]), torch.tensor([0, 5])
    for index in (good, good, good, bad, good, bad):
        if index is bad:
            with pytest.raises(IndexError, match="out of bounds"):
                fast(torch.ones(3), index)
        else:
            assert_close(fast(torch.ones(3), index), step(torch.ones(3), index))
    with pytest.raises(TypeError):
        fast(torch.ones(3))


@pytest.mark.filterwarnings("ignore:hostjit")
def test_a_variable_that_one_way_deletes() -> None:
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)

    def learn(turn: int, x: torch.Tensor) -> float:
        known = 3.0
        if turn % 2:
            del known
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        if turn % 2:
            return loss.item()
        return known

    compiled = hostjit.compile(learn)
    for turn in range(8):
        found = compiled(turn, torch.ones(6, 4))
        assert found == 3.0 if turn % 2 == 0 else 0 < found < 3.0
