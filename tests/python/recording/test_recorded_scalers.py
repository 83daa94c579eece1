# SPDX-License-Identifier: Apache-2.0
"""Training steps with a `torch.amp.GradScaler`, some of whose gradients are infinite."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit

Step = Callable[[Tensor], Any]


class _Shrinking(torch.optim.SGD):
    """Its steps are not those of the class that it is derived from."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.mul_(0.99)


_OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "fused sgd": lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "fused adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1, fused=True),
    "rate in a tensor": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
    "without a rule": lambda p: _Shrinking(p, lr=0.1),
}


class _Trainer:
    def __init__(self, optimizer: str = "adamw", with_schedule: bool = False) -> None:
        torch.manual_seed(0)
        layers = [nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 1)]
        self.model = nn.Sequential(*layers)
        self.optimizer = _OPTIMIZERS[optimizer](self.model.parameters())
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
        self.schedule: Any = None
        if with_schedule:
            self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)

    def backward(self, x: Tensor) -> Tensor:
        loss = self.model(x).square().mean()
        self.scaler.scale(loss).backward()
        return loss.detach()

    def state(self) -> Any:
        states = self.optimizer.state_dict()["state"].values()
        tensors = [{k: v for k, v in state.items() if v is not None} for state in states]
        parameters = list(self.model.parameters())
        gradients = [parameter.grad for parameter in parameters]
        return self.scaler.state_dict(), parameters, gradients, tensors


def plain(trainer: _Trainer, x: Tensor) -> Tensor:
    trainer.optimizer.zero_grad()
    loss = trainer.backward(x)
    trainer.scaler.step(trainer.optimizer)
    trainer.scaler.update()
    return loss


def clipped(trainer: _Trainer, x: Tensor) -> Tensor:
    trainer.optimizer.zero_grad()
    trainer.backward(x)
    trainer.scaler.unscale_(trainer.optimizer)
    norm = nn.utils.clip_grad_norm_(trainer.model.parameters(), 0.1)
    trainer.scaler.step(trainer.optimizer)
    trainer.scaler.update()
    return norm


def with_another_scale(trainer: _Trainer, x: Tensor) -> Tensor:
    loss = plain(trainer, x)
    trainer.scaler.update(32.0)
    return loss


def accumulated(trainer: _Trainer, x: Tensor) -> Tensor:
    trainer.optimizer.zero_grad(set_to_none=False)
    loss = trainer.backward(x) + trainer.backward(x * 2)
    trainer.scaler.step(trainer.optimizer)
    trainer.scaler.update()
    return loss


def compare(
    trainers: tuple[_Trainer, _Trainer],
    step: Callable[[_Trainer, Tensor], Any],
    *,
    infinite: Sequence[int] = (3, 4, 9),
    recordings: int | None = 1,
    make: Callable[[Step], Any] = hostjit.capture,
    calls: int = 12,
) -> Any:
    """Train both; `recordings`: how many there have to be, None where a step runs eagerly."""

    def bound(trainer: _Trainer) -> Step:
        return lambda x: step(trainer, x)

    fast = make(bound(trainers[0]))
    for number in range(calls):
        found = []
        for run, trainer in zip((fast, bound(trainers[1])), trainers, strict=True):
            torch.manual_seed(number)
            x = torch.randn(5, 3) * (torch.inf if number in infinite else 1)
            found.append((run(x), trainer.state()))
            if trainer.schedule is not None:
                trainer.schedule.step()
        assert_close(*found, equal_nan=True)
    if make is hostjit.capture:
        assert (fast.captured is None) == (recordings is None)
        assert recordings is None or len(fast.specializations) == recordings
    return fast


@pytest.mark.parametrize("optimizer", list(_OPTIMIZERS))
@pytest.mark.parametrize("step", [plain, clipped])
def test_steps_are_left_out_where_gradients_are_infinite(
    step: Callable[[_Trainer, Tensor], Any], optimizer: str
) -> None:
    trainers = _Trainer(optimizer), _Trainer(optimizer)
    # Where the optimizer has no form of tensors, what the scaler reads chooses the recording.
    compare(trainers, step, recordings=2 if optimizer == "without a rule" else 1)


@pytest.mark.parametrize("step", [with_another_scale, accumulated])
def test_ways_to_use_a_scaler(step: Callable[[_Trainer, Tensor], Any]) -> None:
    compare((_Trainer(), _Trainer()), step)


def test_the_evaluator_and_functions_that_are_compiled() -> None:
    for make in (
        lambda step: hostjit.capture(step, runtime="evaluator"),
        hostjit.compile,
    ):
        compare((_Trainer(), _Trainer()), plain, make=make)


def test_a_schedule() -> None:
    compare((_Trainer(with_schedule=True), _Trainer(with_schedule=True)), plain)


@pytest.mark.filterwarnings("ignore:Detected call of")
def test_a_schedule_that_waits_for_the_first_step() -> None:
    trainers = _Trainer(with_schedule=True), _Trainer(with_schedule=True)
    compare(trainers, plain, infinite=(0, 1, 2, 7), recordings=None, calls=2)
    compare(trainers, plain, infinite=(), calls=4)


def test_hooks_of_the_optimizer_run_where_there_is_a_step() -> None:
    def halve(optimizer: Any, *_: Any) -> None:
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.data.mul_(0.5)

    trainers = _Trainer(), _Trainer()
    for trainer in trainers:
        trainer.optimizer.register_step_post_hook(halve)
    compare(trainers, plain, recordings=2)


class _Scaler(torch.amp.GradScaler):
    def _maybe_opt_step(self, *args: Any, **kwargs: Any) -> Any:
        return super()._maybe_opt_step(*args, **kwargs)


def test_a_scaler_of_another_class() -> None:
    trainers = _Trainer(), _Trainer()
    for trainer in trainers:
        trainer.scaler = _Scaler("cpu", init_scale=64.0, growth_interval=3)
    compare(trainers, plain)


def test_two_optimizers() -> None:
    trainers = _Trainer("sgd"), _Trainer("sgd")
    others = [torch.optim.AdamW(trainer.model[3].parameters(), lr=0.01) for trainer in trainers]

    def step(trainer: _Trainer, x: Tensor) -> Tensor:
        other = others[trainers.index(trainer)]
        trainer.optimizer.zero_grad()
        loss = trainer.backward(x)
        trainer.scaler.unscale_(other)
        trainer.scaler.step(other)
        trainer.scaler.update()
        return loss

    compare(trainers, step)


def test_eager_steps_between_replays() -> None:
    trainers = _Trainer(), _Trainer()
    fast = compare(trainers, plain)
    for number in range(6):
        found = []
        for run, trainer in zip((fast, None), trainers, strict=True):
            torch.manual_seed(number)
            x = torch.randn(5, 3)
            is_eager = number % 2 == 0 or run is None
            found.append((plain(trainer, x) if is_eager else run(x), trainer.state()))
        assert_close(*found)
    assert len(fast.specializations) == 1


@pytest.mark.filterwarnings("ignore:hostjit")
def test_a_step_in_two_functions_runs_eagerly() -> None:
    trainers = _Trainer(), _Trainer()
    prepare = hostjit.capture(lambda: trainers[0].scaler.unscale_(trainers[0].optimizer))
    finish = hostjit.capture(lambda: trainers[0].scaler.step(trainers[0].optimizer))
    for number in range(5):
        found = []
        for trainer in trainers:
            is_fast = trainer is trainers[0]
            torch.manual_seed(number)
            trainer.optimizer.zero_grad()
            trainer.backward(torch.randn(5, 3))
            prepare() if is_fast else trainer.scaler.unscale_(trainer.optimizer)
            finish() if is_fast else trainer.scaler.step(trainer.optimizer)
            trainer.scaler.update()
            found.append(trainer.state())
        assert_close(*found)
    assert prepare.captured is None
    assert finish.captured is None


def test_errors_of_a_scaler() -> None:
    trainer = _Trainer()

    def twice(x: Tensor) -> None:
        trainer.backward(x)
        trainer.scaler.step(trainer.optimizer)
        trainer.scaler.step(trainer.optimizer)

    fast = hostjit.capture(twice)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            with pytest.raises(RuntimeError, match="already been called"):
                fast(torch.randn(5, 3))
            trainer.scaler.update()
