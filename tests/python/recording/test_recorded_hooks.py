# SPDX-License-Identifier: Apache-2.0
"""Hooks of backward passes that come and go after a recording, and modes of these passes."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit", "ignore:Full backward hook")

MAKERS = [hostjit.capture, hostjit.compile]


class Trainer:
    """A model whose gradients a loop accumulates, twice at each call."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        self.seen: list[float] = []

    def step(self, x: Tensor) -> Tensor:
        total = torch.zeros(())
        for _ in range(2):
            loss = self.model(x).square().mean()
            loss.backward()
            total = total + loss.detach()
        return total

    def gradients(self) -> list[Tensor | None]:
        return [parameter.grad for parameter in self.model.parameters()]

    def clear(self) -> None:
        for parameter in self.model.parameters():
            parameter.grad = None


class Twins:
    """Two trainers: the step of one is made fast."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.trainers = Trainer(), Trainer()
        self.steps = make(self.trainers[0].step), self.trainers[1].step

    def train(self, calls: int = 3, value: float = 1.0) -> None:
        for _ in range(calls):
            x = torch.randn(5, 3) * value
            results = [step(x) for step in self.steps]
            assert_close(*results, equal_nan=True)
            found = [trainer.gradients() for trainer in self.trainers]
            assert_close(*found, equal_nan=True)
            # Sums of float32, in which numbers cancel.
            assert self.trainers[0].seen == pytest.approx(self.trainers[1].seen, abs=1e-6)
            for trainer in self.trainers:
                trainer.clear()


def tripled(trainer: Trainer) -> Any:
    return trainer.model[0].weight.register_hook(lambda gradient: gradient * 3)


def noted(trainer: Trainer) -> Any:
    return trainer.model[0].weight.register_hook(
        lambda gradient: trainer.seen.append(gradient.sum().item())
    )


def doubled_when_accumulated(trainer: Trainer) -> Any:
    def double(parameter: Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.mul_(2)

    return trainer.model[2].weight.register_post_accumulate_grad_hook(double)


def of_the_module(trainer: Trainer) -> Any:
    return trainer.model[0].register_full_backward_hook(
        lambda module, gradients, outputs: tuple(
            None if gradient is None else gradient * 2 for gradient in gradients
        )
    )


@pytest.mark.parametrize("hook", [tripled, noted, doubled_when_accumulated, of_the_module])
@pytest.mark.parametrize("make", MAKERS)
def test_hooks_come_and_go(make: Callable[..., Any], hook: Callable[[Trainer], Any]) -> None:
    twins = Twins(make)
    twins.train()
    for _ in range(2):
        handles = list(map(hook, twins.trainers))
        twins.train()
        more = list(map(tripled, twins.trainers))
        twins.train(2)
        for handle in (*handles, *more):
            handle.remove()
        twins.train()


@pytest.mark.parametrize("make", MAKERS)
def test_hooks_of_an_argument(make: Callable[..., Any]) -> None:
    def step(x: Tensor) -> Tensor:
        for _ in range(2):
            x.square().sum().backward()
        return x.detach() * 2

    fast = make(step)
    for number in range(6):
        gradients = []
        for run in (fast, step):
            x = torch.arange(3.0, requires_grad=True)
            if number > 3:
                x.register_hook(lambda gradient: gradient * 5)
            assert_close(run(x), torch.arange(3.0) * 2)
            gradients.append(x.grad)
        assert_close(*gradients)


@contextlib.contextmanager
def saving_noted(trainer: Trainer) -> Iterator[None]:
    def pack(tensor: Tensor) -> Tensor:
        trainer.seen.append(tensor.sum().item())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor * 2):
        yield


@pytest.mark.parametrize("make", MAKERS)
def test_hooks_on_saved_tensors(make: Callable[..., Any]) -> None:
    twins = Twins(make)
    fast, slow = twins.steps
    twins.train()

    def under_hooks(x: Tensor) -> Tensor:
        with saving_noted(twins.trainers[0]):
            return fast(x)

    def beside(x: Tensor) -> Tensor:
        with saving_noted(twins.trainers[1]):
            return slow(x)

    twins.steps = under_hooks, beside
    twins.train()
    twins.steps = fast, slow
    twins.train()


@pytest.mark.parametrize("make", MAKERS)
def test_anomalies_are_detected(make: Callable[..., Any]) -> None:
    trainer = Trainer()
    fast = make(trainer.step)
    for _ in range(4):
        fast(torch.randn(5, 3))
    wrong = torch.full((5, 3), torch.nan)
    fast(wrong)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            with (
                torch.autograd.set_detect_anomaly(True),
                pytest.raises(RuntimeError, match="returned nan values"),
            ):
                fast(wrong)
    assert fast(wrong).isnan()


def test_without_hooks_and_backward_passes_all_is_recorded() -> None:
    weight = nn.Parameter(torch.ones(3))
    fast = hostjit.capture(lambda x: x * weight)
    weight.register_hook(lambda gradient: gradient * 2)
    for _ in range(3):
        x = torch.randn(3)
        with torch.no_grad():
            assert_close(fast(x), x * weight)
    assert len(fast.specializations) == 1
