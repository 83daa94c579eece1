# SPDX-License-Identifier: Apache-2.0
"""Functions that are decorated with a context of `contextlib.contextmanager`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit

factors = {"loss": 2.0}


@contextlib.contextmanager
def with_gradients(scale: float) -> Iterator[None]:
    with torch.set_grad_enabled(scale > 0):
        yield


@with_gradients(3.0)
def loss_of(net: nn.Module, x: Tensor) -> Tensor:
    return net(x).square().mean() * factors["loss"]


class Trainer:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05)

    def step(self, x: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = loss_of(self.net, x)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


@pytest.mark.filterwarnings("error:hostjit")
@pytest.mark.parametrize("record", [hostjit.capture, hostjit.compile])
def test_a_training_step_is_recorded(record: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    eager, recorded = Trainer(), Trainer()
    fast = record(recorded.step)
    for number in range(8):
        if number == 5:  # what the decorated function reads is looked at
            monkeypatch.setitem(factors, "loss", 3.0)
        x = torch.randn(3, 4)
        assert_close(fast(x), eager.step(x))


@contextlib.contextmanager
def counted() -> Iterator[float]:
    for number in range(1, 7):
        yield float(number)


@contextlib.contextmanager
def scaled(value: float) -> Iterator[float]:
    factors["loss"] = value
    yield value


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("record", [hostjit.capture, hostjit.compile])
@pytest.mark.parametrize("what", ["args", "generator"])
def test_what_is_asked_of_a_context_itself_is_followed(record: Any, what: str) -> None:
    def losses(make: Any) -> list[float]:
        trainer, given = Trainer(), scaled(2.0)
        numbers = counted()
        decorated = given(loss_of)

        def step(x: Tensor) -> Tensor:
            trainer.optimizer.zero_grad()
            loss = decorated(trainer.net, x)
            if what == "generator":
                loss = loss * next(numbers.gen)  # type: ignore[attr-defined]
            loss.backward()
            trainer.optimizer.step()
            return loss.detach()

        run, found = make(step), []
        for number in range(6):
            if what == "args" and number == 4:
                given.args = (5.0,)  # type: ignore[attr-defined]
            found.append(run(torch.ones(3, 4) * number).item())
        return found

    with_factor = factors["loss"]
    try:
        assert losses(record) == pytest.approx(losses(lambda step: step), rel=1e-4)
    finally:
        factors["loss"] = with_factor
