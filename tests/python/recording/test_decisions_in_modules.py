# SPDX-License-Identifier: Apache-2.0
"""Modules that choose by values, in modules that a recorded call runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


class Gate(nn.Module):
    """Its sides call modules, and read a parameter and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.scale = nn.Parameter(torch.full((4,), 1.5))
        self.register_buffer("shift", torch.full((4,), 0.5))
        self.limit = 0.0

    def forward(self, x: Tensor) -> Tensor:
        y = x - 1
        if x.mean() > self.limit:  # noqa: SIM108
            y = self.first(x) * self.scale
        else:
            y = y + self.second(x) + self.shift
        return y


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Gate(), Gate()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).tanh())


class InASequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(Gate(), nn.ReLU(), Gate())

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layers(x)
        return found - 1


class InALoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Gate(), Gate(), Gate()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class ByIndex(InALoop):
    def forward(self, x: Tensor) -> Tensor:
        return applied(self.layers[1], self.layers[0](x))


def applied(layer: nn.Module, x: Tensor) -> Tensor:
    assert isinstance(layer, Gate)
    found: Tensor = layer(x)
    return found * layer.scale


class Derived(Gate):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.tanh()) + 1


class Halts(nn.Module):
    """Layers until the halting unit says that it is enough."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.halt = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(5):
            x = torch.tanh(self.layer(x)) + 0.3 * x
            if torch.sigmoid(self.halt(x)).item() > 0.55:
                break
        return x


KINDS = (Gate, Nested, InASequence, InALoop)


def calls(count: int = 24) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(4, generator=generator) for _ in range(count)]


def made(kind: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind()


@pytest.mark.parametrize("through", [hostjit.capture, hostjit.compile])
@pytest.mark.parametrize("kind", [*KINDS, ByIndex, Halts, Derived])
def test_modules_that_choose(kind: type[nn.Module], through: Callable[..., Any]) -> None:
    module = made(kind)
    run = through(module)
    with torch.no_grad():
        for x in calls():
            assert_close(run(x), module(x))


@pytest.mark.parametrize("kind", KINDS)
def test_one_recording_is_for_all_calls(kind: type[nn.Module]) -> None:
    run = hostjit.capture(made(kind))
    with torch.no_grad():
        for x in calls():
            run(x)
    assert len(run.specializations) == 1
    assert run.captured is not None


@pytest.mark.filterwarnings("error:hostjit")  # it would say that it runs in parts
@pytest.mark.parametrize("kind", [Gate, Nested, InASequence])
def test_compiled_modules_are_recorded(kind: type[nn.Module]) -> None:
    module = made(kind)
    run = hostjit.compile(module)
    with torch.no_grad():
        for x in calls():
            assert_close(run(x), module(x))


def test_what_is_added_to_a_module_later() -> None:
    """A hook, and another `forward`: the recording is of neither."""
    module: Any = made(Nested)
    run = hostjit.capture(module)
    with torch.no_grad():
        for x in calls():
            run(x)
        handle = module.second.register_forward_hook(
            lambda _, given, result: result * 10 + given[0]
        )
        for x in calls(6):
            assert_close(run(x), module(x))
        handle.remove()
        module.first.forward = lambda x: x * 3
        for x in calls(6):
            assert_close(run(x), module(x))
        del module.first.forward
        module.first.limit = 0.5
        for x in calls(6):
            assert_close(run(x), module(x))


class Draws(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.drop, self.norm = nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        if x.mean() > 0:  # noqa: SIM108
            y = self.drop(x)
        else:
            y = self.norm(torch.stack([y, x.sin()]))[0]
        found: Tensor = self.layer(y)
        return found


def test_sides_that_draw_and_write() -> None:
    """What a side that is not gone would draw, or count, is not."""
    module, beside = made(Draws), made(Draws)
    run = hostjit.capture(module)
    with torch.no_grad():
        for number, x in enumerate(calls()):
            torch.manual_seed(number)
            found = run(x)
            torch.manual_seed(number)
            assert_close(found, beside(x))
    assert_close(module.state_dict(), beside.state_dict())


def test_training_through_modules_that_choose() -> None:
    """Gradients go through the side that is gone."""
    module, beside = made(Nested), made(Nested)

    def step(x: Tensor) -> Tensor:
        loss = module(x).square().sum()
        loss.backward()
        return loss.detach()

    run = hostjit.capture(step)
    for x in calls():
        for each in (module, beside):
            each.zero_grad()
        found = run(x)
        loss = beside(x).square().sum()
        loss.backward()
        assert_close(found, loss.detach())
        for mine, other in zip(module.parameters(), beside.parameters(), strict=True):
            assert (mine.grad is None) == (other.grad is None)
            assert mine.grad is None or other.grad is None or torch.allclose(mine.grad, other.grad)
