# SPDX-License-Identifier: Apache-2.0
"""Training steps that read their loss at the end: what comes before that is recorded."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hostjit


class Trainer:
    """A model with all that a training step needs."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        self.optimizer: Any = torch.optim.Adam(self.model.parameters(), 0.01)
        self.losses: list[Any] = []
        self.steps, self.best, self.seen = 0, math.inf, 0

    def return_item(self, x: Tensor, y: Tensor) -> Any:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def return_float(self, x: Tensor, y: Tensor) -> Any:
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return float(loss)

    def return_dict(self, x: Tensor, y: Tensor) -> Any:
        self.optimizer.zero_grad()
        logits = self.model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        right = (logits.argmax(1) == y).float().mean()
        return {"loss": loss.item(), "norm": norm.item(), "right": right.item()}

    def log(self, x: Tensor, y: Tensor) -> Any:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        self.steps += 1
        if self.steps % 3 == 0:
            self.best = min(self.best, *self.losses[-3:])

    def text(self, x: Tensor, y: Tensor) -> Any:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return f"{loss:.3f} of {len(x)}"

    def stop_early(self, x: Tensor, y: Tensor) -> Any:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        value = loss.item()
        if value < 1.0:
            return None
        self.best = value
        return value, self.best

    def arguments_again(self, x: Tensor, y: Tensor) -> Any:
        x = x * 2
        count = len(x)
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.seen += count
        return x, y, loss.item() * count

    def handle_errors(self, x: Tensor, y: Tensor) -> Any:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        try:
            return loss.tolist()[0]
        except TypeError:
            return loss.tolist()

    def items_of_many(self, x: Tensor, y: Tensor) -> Any:
        self.optimizer.zero_grad()
        losses = {
            "of rows": F.cross_entropy(self.model(x), y),
            "decay": self.model[0].weight.norm(),
        }
        sum(losses.values()).backward()  # type: ignore[union-attr]
        self.optimizer.step()
        return {name: value.item() for name, value in losses.items()}

    def under_autocast(self, x: Tensor, y: Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

    def gradients_inside(self, x: Tensor, y: Tensor) -> Any:
        with torch.enable_grad():
            loss = F.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def count(self, x: Tensor, y: Tensor) -> Any:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        return loss.detach()

    def keep_the_loss(self, x: Tensor, y: Tensor) -> Any:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.detach())
        return loss

    def raise_at_the_end(self, x: Tensor, y: Tensor) -> Any:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        if loss.item() < 1.0:
            raise ValueError("it learned")
        return loss.item()


class Reader(Trainer):
    """Steps of which the code cannot be taken apart at the end, or computes there."""

    def metrics_in_a_block(self, x: Tensor, y: Tensor) -> Any:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            right = (self.model(x).argmax(1) == y).float().mean().item()
        return loss.item(), right

    def read_first(self, x: Tensor, y: Tensor) -> Any:
        loss = F.cross_entropy(self.model(x), y)
        value = loss.item()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return value

    def read_on_a_condition(self, x: Tensor, y: Tensor) -> Any:
        loss = None
        if len(x) > 2:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
        return 0.0 if loss is None else loss.item()

    def loop(self, x: Tensor, y: Tensor) -> Any:
        total = 0.0
        for _ in range(2):
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total

    def variable_of_a_function(self, x: Tensor, y: Tensor) -> Any:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return (lambda: loss.item())()


SPLIT = [name for name, value in vars(Trainer).items() if callable(value) and name[0] != "_"]
WHOLE = [name for name, value in vars(Reader).items() if callable(value) and name[0] != "_"]


def outcome(step: Callable[..., Any], *given: Any) -> Any:
    try:
        return step(*given)
    except ValueError as error:
        return str(error)


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif expected is None or isinstance(expected, str):
        assert found == expected
    else:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def check_steps(trainer: Trainer, twin: Trainer, fast: Callable[..., Any], name: str) -> None:
    for number in range(12):
        size = 5 if number % 4 else 3
        x, y = torch.randn(size, 4), torch.randint(3, (size,))
        found, expected = outcome(fast, x, y), outcome(getattr(twin, name), x, y)
        assert_same(found, expected)
        ours, theirs = trainer.model.state_dict(), twin.model.state_dict()
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        numbers = (trainer.steps, trainer.seen, trainer.best, trainer.losses)
        torch.testing.assert_close(
            numbers, (twin.steps, twin.seen, twin.best, twin.losses), rtol=1e-4, atol=1e-5
        )


@pytest.mark.filterwarnings("error:hostjit")
@pytest.mark.parametrize("name", SPLIT)
def test_steps(name: str) -> None:
    trainer = Trainer()
    twin = copy.deepcopy(trainer)
    check_steps(trainer, twin, hostjit.compile(getattr(trainer, name)), name)


@pytest.mark.filterwarnings("error:hostjit")
def test_a_step_that_is_called_without_gradients() -> None:
    trainer = Trainer()
    twin = copy.deepcopy(trainer)
    with torch.no_grad():
        fast = hostjit.compile(trainer.gradients_inside)
        check_steps(trainer, twin, fast, "gradients_inside")


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("name", WHOLE)
def test_steps_that_are_not_split(name: str) -> None:
    trainer = Reader()
    twin = copy.deepcopy(trainer)
    check_steps(trainer, twin, hostjit.compile(getattr(trainer, name)), name)


@pytest.mark.filterwarnings("error:hostjit")
def test_a_method_of_a_class() -> None:
    class Compiled(Trainer):
        @hostjit.compile
        def learn(self, x: Tensor, y: Tensor, *, scale: float = 2.0) -> Any:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x) * scale, y)
            loss.backward()
            self.optimizer.step()
            return loss.item() * scale

    trainer, twin = Compiled(), Compiled()
    learn = Compiled.learn.__wrapped__
    for number in range(8):
        x, y = torch.randn(5, 4), torch.randint(3, (5,))
        given = {"scale": 0.5} if number % 3 == 0 else {}
        assert trainer.learn(x, y, **given) == pytest.approx(learn(twin, x, y, **given), rel=1e-4)


@pytest.mark.filterwarnings("ignore:hostjit")
def test_a_step_that_cannot_be_recorded_runs_in_parts() -> None:
    trainer = Trainer()
    twin = copy.deepcopy(trainer)

    def make_step(trainer: Trainer) -> Callable[..., Any]:
        def step(x: Tensor, y: Tensor) -> Any:
            trainer.optimizer.zero_grad()
            loss = F.cross_entropy(trainer.model(x), y)
            trainer.losses = [*trainer.losses, 1.0]
            loss.backward()
            trainer.optimizer.step()
            return loss.item()

        return step

    fast, plain = hostjit.compile(make_step(trainer)), make_step(twin)
    for _ in range(8):
        x, y = torch.randn(5, 4), torch.randint(3, (5,))
        assert fast(x, y) == pytest.approx(plain(x, y), rel=1e-4)
        assert trainer.losses == twin.losses
