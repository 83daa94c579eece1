# SPDX-License-Identifier: Apache-2.0
"""Training and control code that counts its calls, whose counter decides or computes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit
from hostjit.recording.recordings import Recordings

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


class Learner:
    """What all of these have: a network, a copy of it, an optimizer and a counter."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        self.target = copy.deepcopy(self.net)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 1e-2)
        self.buffer = torch.zeros(16, 4)
        self.count = 0
        self.weight = 0.0

    def learn(self, x: Tensor, y: Tensor) -> Tensor:
        loss: Tensor = (self.net(x) - self.target(x).detach() - y).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def delayed(self, x: Tensor, y: Tensor) -> Tensor:
        self.count += 1
        loss = self.learn(x, y)
        if self.count % 2 == 0:
            with torch.no_grad():
                for new, old in zip(self.net.parameters(), self.target.parameters(), strict=True):
                    old.mul_(0.9).add_(0.1 * new)
        return loss

    def averaged(self, x: Tensor, y: Tensor) -> Tensor:
        loss = self.learn(x, y)
        self.count += 1
        decay = min(0.99, (1 + self.count) / (10 + self.count))
        with torch.no_grad():
            for new, old in zip(self.net.parameters(), self.target.parameters(), strict=True):
                old.mul_(decay).add_(new, alpha=1 - decay)
        return loss

    def scheduled(self, x: Tensor, y: Tensor) -> Tensor:
        self.count += 1
        for group in self.optimizer.param_groups:
            group["lr"] = 1e-2 * min(1.0, self.count / 10)
        return self.learn(x, y)

    def accumulated(self, x: Tensor, y: Tensor) -> Tensor:
        self.count += 1
        loss: Tensor = (self.net(x) - y).square().mean() / 4
        loss.backward()
        if self.count % 4 == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.detach()

    def stored(self, x: Tensor, y: Tensor) -> Tensor:
        self.buffer[self.count] = x[0]
        self.count = (self.count + 1) % len(self.buffer)
        return self.learn(self.buffer, y[:1])

    def copied(self, x: Tensor, y: Tensor) -> Tensor:
        loss = self.learn(x, y)
        self.count += 1
        if self.count % 10 == 0:
            self.target.load_state_dict(self.net.state_dict())
        return loss

    def weighted(self, x: Tensor, y: Tensor) -> Tensor:
        """Read a number that the loop around it changes."""
        return self.learn(x, y * self.weight)

    def copied_by_loop(self, x: Tensor, y: Tensor) -> Tensor:
        """Read a counter that the loop around it changes."""
        if self.count % 10 == 9:
            self.target.load_state_dict(self.net.state_dict())
        return self.learn(x, y)

    def state(self) -> list[Any]:
        tensors = [*self.net.parameters(), *self.target.parameters(), self.buffer]
        gradients = [parameter.grad for parameter in self.net.parameters()]
        rates = [group["lr"] for group in self.optimizer.param_groups]
        return [[x.detach().clone() for x in tensors], gradients, rates, self.count]


def _beside_eager(name: str, make: Callable[..., Any], calls: int, step: int = 0) -> Any:
    """Call a method many times, compiled and eagerly; return the compiled one."""
    fast, eager = Learner(), Learner()
    compiled = make(getattr(fast, name))
    for number in range(calls):
        torch.manual_seed(number)
        x, y = torch.randn(8, 4), torch.randn(8, 2)
        found, expected = compiled(x, y), getattr(eager, name)(x, y)
        assert_close(found, expected, rtol=1e-4, atol=1e-5)
        assert_close(fast.state(), eager.state(), rtol=1e-4, atol=1e-5)
        for learner in (fast, eager):
            learner.count += step
            learner.weight = min(1.0, learner.weight + 0.05 * step)
    return compiled


COUNTING = ("delayed", "averaged", "scheduled", "accumulated", "stored", "copied")
READING = ("weighted", "copied_by_loop")


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of functions that were recorded, one for each recording."""
    found: list[str] = []
    record = Recordings._record

    def noted(self: Recordings, *args: Any) -> Any:
        found.append(self.name)
        return record(self, *args)

    monkeypatch.setattr(Recordings, "_record", noted)
    return found


@pytest.mark.parametrize("name", [*COUNTING, *READING])
def test_a_counter_ends_recordings(name: str, recordings: list[str]) -> None:
    _beside_eager(name, hostjit.compile, 25, step=name in READING)
    # One shows that the call changes the number, one that it reads that; the next have it open.
    assert 2 <= recordings.count(f"Learner.{name}") <= (5 if name in READING else 6)
    # A part that meets the number has few recordings; Dynamo calls several parts by one name.
    assert len(recordings) <= 12


@pytest.mark.parametrize("name", ["averaged", "accumulated", "weighted", "copied_by_loop"])
def test_capture_answers_as_eager_does(name: str) -> None:
    _beside_eager(name, hostjit.capture, 25, step=name in READING)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop])
def test_a_rate_that_code_sets_is_all_that_changes_in_groups(kind: Any) -> None:
    fast, eager = Learner(), Learner()
    for learner in (fast, eager):
        learner.optimizer = kind(learner.net.parameters(), 1e-2)

    def step(learner: Learner, x: Tensor, y: Tensor) -> Tensor:
        for group in learner.optimizer.param_groups:
            group["lr"] = 1e-2 * min(1.0, learner.count / 5)
        loss: Tensor = (learner.net(x) - y).square().mean()
        learner.optimizer.zero_grad()
        loss.backward()
        learner.optimizer.step()
        return loss.detach()

    compiled = hostjit.compile(step)
    for number in range(12):
        torch.manual_seed(number)
        x, y = torch.randn(8, 4), torch.randn(8, 2)
        for learner in (fast, eager):
            learner.count += 1
        assert_close(compiled(fast, x, y), step(eager, x, y), rtol=1e-4, atol=1e-5)
        assert_close(fast.state(), eager.state(), rtol=1e-4, atol=1e-5)
    found, expected = (
        {key: value for key, value in x.optimizer.param_groups[0].items() if key != "params"}
        for x in (fast, eager)
    )
    assert found == expected


@pytest.mark.parametrize("name", ["averaged", "stored"])
def test_what_counts_is_compiled_by_capture(name: str) -> None:
    learner = Learner()
    captured = hostjit.capture(getattr(learner, name))
    x, y = torch.randn(8, 4), torch.randn(8, 2)
    with pytest.warns(UserWarning, match="hostjit.compile answers all calls from now on"):  # noqa: PT031
        for _ in range(8):
            captured(x, y)
    (specialization,) = captured.specializations
    assert isinstance(specialization.describe()["route"], hostjit._C.CompiledFunction)


def test_refused_where_that_was_asked_for() -> None:
    learner = Learner()
    captured = hostjit.capture(learner.averaged, fallback=False)
    x, y = torch.randn(8, 4), torch.randn(8, 2)
    with pytest.raises(hostjit.CaptureError, match=r"it changes .*count"):  # noqa: PT012
        for _ in range(8):
            captured(x, y)


def test_a_float_is_open_in_recordings_of_capture(recordings: list[str]) -> None:
    _beside_eager("weighted", hostjit.capture, 12, step=1)
    # Two values, the third, which is not the last, and any.
    assert recordings.count("Learner.weighted") == 4


def test_numbers_of_two_values_are_recorded(recordings: list[str]) -> None:
    learner = Learner()
    compiled = hostjit.compile(learner.weighted)
    x, y = torch.randn(8, 4), torch.randn(8, 2)
    for number in range(12):
        learner.weight = float(number % 2)
        compiled(x, y)
    assert recordings == ["Learner.weighted"] * 2
