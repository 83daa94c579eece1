# SPDX-License-Identifier: Apache-2.0
"""Whole steps of training as one compiled function, beside eager ones."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from same_state import check_same_state
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, AdamW, Optimizer, RMSprop
from torch.utils.checkpoint import checkpoint

import hostjit
from hostjit.capturing.dynamo.breaks import resumable

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

Step = Callable[[Tensor, Tensor], Any]
NOWHERE = io.StringIO()


class Trainer:
    """Two equal models with optimizers: the step of one is compiled."""

    def __init__(self, make: Callable[..., Step], kind: type[Optimizer], **arguments: Any) -> None:
        self.models = [nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Dropout(), nn.Linear(5, 2))]
        self.models.append(copy.deepcopy(self.models[0]))
        self.optimizers = [kind(model.parameters(), **arguments) for model in self.models]
        pairs = zip(self.models, self.optimizers, strict=True)
        compiled, self.eager = (make(model, optimizer) for model, optimizer in pairs)
        self.compiled = hostjit.compile(compiled)

    def train(self, steps: int = 4) -> None:
        for number in range(steps):
            x, y = torch.randn(3, 4), torch.randn(3, 2)
            results = []
            for step in (self.compiled, self.eager):
                torch.manual_seed(number)
                results.append(step(x, y))
            # Numbers are read of float32 tensors, and compared as such.
            torch.testing.assert_close(*results, rtol=1.3e-6, atol=1e-5)
        self.check()

    def check(self) -> None:
        check_same_state(self.models, self.optimizers)
        for ours, eager in zip(*(model.parameters() for model in self.models), strict=True):
            torch.testing.assert_close(ours.grad, eager.grad)


def plain(model: nn.Module, optimizer: Optimizer) -> Step:
    def step(x: Tensor, y: Tensor) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def printing(model: nn.Module, optimizer: Optimizer) -> Step:
    def step(x: Tensor, y: Tensor) -> Any:
        print("step", file=NOWHERE)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print("done", file=NOWHERE)
        return loss

    return step


def with_an_item(model: nn.Module, optimizer: Optimizer) -> Step:
    def step(x: Tensor, y: Tensor) -> Any:
        loss = nn.functional.mse_loss(model(x), y)
        print(f"loss {loss.item()}", file=NOWHERE)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return {"loss": loss.detach(), "value": loss.item()}

    return step


def clipped(model: nn.Module, optimizer: Optimizer) -> Step:
    def step(x: Tensor, y: Tensor) -> Any:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss, norm

    return step


def accumulated(model: nn.Module, optimizer: Optimizer) -> Step:
    def step(x: Tensor, y: Tensor) -> Any:
        for rows, targets in zip(x.split(1), y.split(1), strict=True):
            nn.functional.mse_loss(model(rows), targets).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def twice(model: nn.Module, optimizer: Optimizer) -> Step:
    def step(x: Tensor, y: Tensor) -> Any:
        losses = []
        for _ in range(2):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses

    return step


def by_grad(model: nn.Module, optimizer: Optimizer) -> Step:
    def step(x: Tensor, y: Tensor) -> Any:
        loss = nn.functional.mse_loss(model(x), y)
        parameters = list(model.parameters())
        gradients = torch.autograd.grad(loss, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient * 2
        optimizer.step()
        return loss

    return step


def with_a_closure(model: nn.Module, optimizer: Optimizer) -> Step:
    def step(x: Tensor, y: Tensor) -> Any:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model[0](x)[:, :2], y)
            loss.backward()
            return loss

        return optimizer.step(closure)

    return step


@pytest.mark.parametrize(
    "make", [plain, printing, with_an_item, clipped, accumulated, twice, by_grad]
)
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [(AdamW, {}), (SGD, {"lr": 0.1, "momentum": 0.9}), (RMSprop, {})],
)
def test_steps(make: Callable[..., Step], kind: type[Optimizer], arguments: Any) -> None:
    Trainer(make, kind, **arguments).train()


@pytest.mark.parametrize(("kind", "arguments"), [(LBFGS, {"max_iter": 4}), (SGD, {"lr": 0.1})])
def test_closures(kind: type[Optimizer], arguments: Any) -> None:
    trainer = Trainer(with_a_closure, kind, **arguments)
    trainer.train(3)


@pytest.mark.skipif(
    not resumable(), reason="what stands behind a break is not known before it is reached"
)
def test_the_step_of_the_optimizer_is_compiled() -> None:
    trainer = Trainer(with_an_item, AdamW)
    trainer.train(6)
    steps = list(compiled_steps(trainer.compiled))
    assert any(found.program is not None for step in steps for found in step.specializations)


def compiled_steps(function: Any) -> Iterator[Any]:
    parts = function.owner._parts
    yield from parts._steps.values()
    for part in parts._functions.values():
        yield from compiled_steps(part)


def test_schedules() -> None:
    trainer = Trainer(plain, AdamW, lr=0.1)
    trainer.train(2)
    schedulers = [
        torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5) for optimizer in trainer.optimizers
    ]
    for _ in range(3):
        trainer.train(1)
        for scheduler in schedulers:
            scheduler.step()


def test_a_replaced_step() -> None:
    trainer = Trainer(plain, AdamW, lr=0.1)
    trainer.train(3)
    for optimizer in trainer.optimizers:
        optimizer.step = lambda: None  # type: ignore[method-assign, assignment]
    before = copy.deepcopy(trainer.models[0].state_dict())
    trainer.train(2)
    torch.testing.assert_close(trainer.models[0].state_dict(), before)
    for optimizer in trainer.optimizers:
        del optimizer.step
    trainer.train(2)


def test_hooks_of_the_optimizer() -> None:
    trainer = Trainer(plain, SGD, lr=0.1)
    trainer.train(2)
    for optimizer, model in zip(trainer.optimizers, trainer.models, strict=True):
        bias = model[0].bias

        def zero(*_: Any, bias: Any = bias) -> None:
            with torch.no_grad():
                bias.zero_()

        optimizer.register_step_post_hook(zero)
    trainer.train(3)


def test_the_optimizer_as_an_argument() -> None:
    def step(model: nn.Module, optimizer: Optimizer, x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    fast = hostjit.compile(step)
    for kind in (AdamW, SGD):
        models = [nn.Linear(4, 2)]
        models.append(copy.deepcopy(models[0]))
        optimizers = [kind(model.parameters()) for model in models]
        for _ in range(3):
            x = torch.randn(3, 4)
            found = fast(models[0], optimizers[0], x)
            torch.testing.assert_close(found, step(models[1], optimizers[1], x))
        torch.testing.assert_close(models[0].state_dict(), models[1].state_dict())


@pytest.mark.skipif(
    not resumable(), reason="what stands behind a break is not known before it is reached"
)
def test_what_recordings_of_the_whole_were_given_up_for_is_not_tried_in_each_part() -> None:
    def two_optimizers(model: nn.Module, optimizer: Optimizer) -> Step:
        first, other = optimizer, AdamW([model[0].weight])

        def step(x: Tensor, y: Tensor) -> Any:
            first.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            first.step()
            loss = model(x).square().mean()
            other.zero_grad()
            loss.backward()
            other.step()
            return loss.detach()

        return step

    trainer = Trainer(two_optimizers, SGD, lr=0.1)
    programs = []
    for number in range(9):
        x, y = torch.randn(3 + number % 3, 4), torch.randn(3 + number % 3, 2)
        results = []
        for step in (trainer.compiled, trainer.eager):
            torch.manual_seed(number)
            results.append(step(x, y))
        torch.testing.assert_close(*results)
        functions = list(parts_of(trainer.compiled))
        programs.append(sum(len(function.specializations) for function in functions))
    trainer.check()
    assert programs[4:] == programs[4:5] * 5
    assert all(function.owner._recorded is None for function in functions)


def parts_of(function: Any) -> Iterator[Any]:
    yield function
    for part in function.owner._parts._functions.values():
        yield from parts_of(part)


def test_checkpoints_around_parts() -> None:
    """What is run a second time saves as many tensors as the first time, in each call."""
    layer = nn.Linear(4, 4)

    def function(x: Tensor) -> Tensor:
        y = layer(x).tanh()
        if y.sum() > -1e9:
            y = y * 2
        return y

    fast = hostjit.compile(function)
    for rows in [2, 3, 4] * 14:
        x = torch.randn(rows, 4, requires_grad=True)
        y = checkpoint(fast, x, use_reentrant=False)
        found = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(found, torch.autograd.grad(function(x).sum(), x))
