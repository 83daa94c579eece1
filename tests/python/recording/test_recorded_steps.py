# SPDX-License-Identifier: Apache-2.0
"""Recorded steps of optimizers, however they are called, and code that reads their numbers."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from no_warnings import no_warnings
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit

Optimizer = torch.optim.Optimizer
Step = Callable[[Optimizer], Callable[[], Any]]


def _replaced(optimizer: Optimizer) -> Callable[[], Any]:
    plain = optimizer.step
    optimizer.step = lambda: plain()  # type: ignore[method-assign, assignment]
    return lambda: optimizer.step()


def _with_hooks(optimizer: Optimizer) -> Callable[[], Any]:
    weight = optimizer.param_groups[0]["params"][0]

    def clip(*_: Any) -> None:
        weight.grad.clamp_(-0.5, 0.5)

    def decay(*_: Any) -> None:
        weight.data.mul_(0.99)

    optimizer.register_step_pre_hook(clip)
    optimizer.register_step_post_hook(decay)
    return lambda: optimizer.step()


def _clipped(optimizer: Optimizer) -> Callable[[], Any]:
    def step() -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        nn.utils.clip_grad_norm_(parameters, 0.1)
        for group in optimizer.param_groups:
            nn.utils.clip_grad_value_(group["params"], 0.05)
        assert len(optimizer.param_groups[0]["params"]) == 2
        optimizer.step()

    return step


def _twice(optimizer: Optimizer) -> Callable[[], Any]:
    def step() -> None:
        optimizer.step()
        optimizer.step()

    return step


_CALLS: dict[str, Step] = {
    "attribute": lambda optimizer: lambda: optimizer.step(),
    "method": lambda optimizer: optimizer.step,
    "function": lambda optimizer: lambda: type(optimizer).step(optimizer),
    "partial": lambda optimizer: functools.partial(optimizer.step),
    "compiled": lambda optimizer: hostjit.compile(optimizer.step),
    "replaced": _replaced,
    "hooks": _with_hooks,
    "twice": _twice,
    "clipped": _clipped,
}
_KINDS: list[Callable[[Any], Optimizer]] = [
    lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
]
_COMPILERS = [hostjit.capture, hostjit.compile]


class _Pair:
    """Two models, the second of which is trained by what `compile` makes of the step."""

    def __init__(self, make: Callable[[Any], Optimizer]) -> None:
        torch.manual_seed(0)
        self.models = [nn.Linear(3, 2) for _ in range(2)]
        self.models[1].load_state_dict(self.models[0].state_dict())
        self.optimizers = [make(model.parameters()) for model in self.models]

    def train(self, steps: list[Any], set_rate: bool = True) -> None:
        for number in range(7):
            x = torch.randn(4, 3)
            if set_rate:
                for optimizer in self.optimizers:
                    optimizer.param_groups[0]["lr"] = 0.1 / (number + 1)
                    optimizer.param_groups[0]["scale"] = 0.01 * number
            assert_close(steps[1](x), steps[0](x))
            assert_close(self.models[1].state_dict(), self.models[0].state_dict())
            first, second = (optimizer.state_dict() for optimizer in self.optimizers)
            assert_close(second["state"], first["state"])
            assert second["param_groups"] == first["param_groups"]


@pytest.mark.parametrize("compile", _COMPILERS)
@pytest.mark.parametrize("make", _KINDS)
@pytest.mark.parametrize("name", list(_CALLS))
def test_schedules_are_followed(
    name: str, make: Callable[[Any], Optimizer], compile: Callable[..., Any]
) -> None:
    def training(model: nn.Module, optimizer: Optimizer) -> Callable[..., Any]:
        make_step = _CALLS[name]
        if name == "compiled" and optimizer is pair.optimizers[0]:
            make_step = _CALLS["attribute"]
        update = make_step(optimizer)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            update()
            return loss.detach()

        return step

    pair = _Pair(make)
    steps = [*map(training, pair.models, pair.optimizers)]
    steps[1] = compile(steps[1])
    with no_warnings():
        pair.train(steps)
    assert len(steps[1].specializations) == 1


def test_recordings_in_several_threads() -> None:
    """Of what one replaces for the time of a recording the others see nothing."""
    barrier = threading.Barrier(4)
    failures: list[BaseException] = []

    def train() -> None:
        weights = [nn.Parameter(torch.ones(3)) for _ in range(2)]
        optimizers = [torch.optim.AdamW([weight], lr=0.1) for weight in weights]

        def training(weight: Tensor, optimizer: Optimizer) -> Callable[..., Any]:
            update = optimizer.step

            def step(x: Tensor) -> Tensor:
                optimizer.zero_grad()
                loss = (weight * x).square().mean()
                loss.backward()
                update()
                return loss.detach()

            return step

        steps = [*map(training, weights, optimizers)]
        fast = hostjit.capture(steps[1], fallback=False)
        try:
            for number in range(6):
                barrier.wait(timeout=60)
                for optimizer in optimizers:
                    optimizer.param_groups[0]["lr"] = 0.1 / (number + 1)
                x = torch.arange(3.0) + number
                assert_close(fast(x), steps[0](x))
                assert_close(weights[1], weights[0])
            assert len(fast.specializations) == 1
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=train) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("make", _KINDS)
def test_closures(make: Callable[[Any], Optimizer]) -> None:
    def training(model: nn.Module, optimizer: Optimizer) -> Callable[..., Any]:
        def step(x: torch.Tensor, by_name: bool = False) -> torch.Tensor:
            def closure() -> torch.Tensor:
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                return loss

            loss = optimizer.step(closure=closure) if by_name else optimizer.step(closure)
            return loss.detach()

        return step

    pair = _Pair(make)
    steps = [*map(training, pair.models, pair.optimizers)]
    steps[1] = hostjit.capture(steps[1])
    pair.train(steps)
    assert len(steps[1].specializations) == 1
    pair.train([functools.partial(step, by_name=True) for step in steps])


def _by_hand(model: nn.Module, optimizer: Optimizer) -> None:
    with torch.no_grad():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.sub_(group["lr"] * parameter.grad)


def _by_hand_of_a_group(model: nn.Module, optimizer: Optimizer) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(model.group["lr"] * parameter.grad)  # type: ignore[operator, index]


def _by_another_key(model: nn.Module, optimizer: Optimizer) -> None:
    with torch.no_grad():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.sub_(group["scale"] * parameter.grad)


def _given_to_a_function(model: nn.Module, optimizer: Optimizer) -> None:
    def update(group: dict[str, Any]) -> None:
        numbers = dict(group)
        for parameter in group["params"]:
            parameter.sub_(numbers["".join("lr")] * parameter.grad)

    with torch.no_grad():
        for group in optimizer.param_groups:
            update(group)


def _read_besides(model: nn.Module, optimizer: Optimizer) -> None:
    optimizer.step()
    with torch.no_grad():
        model.bias.mul_(1 - optimizer.param_groups[0]["lr"])  # type: ignore[operator]


def _through_the_state(model: nn.Module, optimizer: Optimizer) -> None:
    optimizer.step()
    with torch.no_grad():
        model.bias.mul_(1 - optimizer.state_dict()["param_groups"][0]["lr"])  # type: ignore[operator]


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("compile", _COMPILERS)
@pytest.mark.parametrize(
    "update",
    [
        _by_hand,
        _by_hand_of_a_group,
        _by_another_key,
        _given_to_a_function,
        _read_besides,
        _through_the_state,
    ],
)
def test_code_that_reads_the_rate(
    update: Callable[[nn.Module, Optimizer], None], compile: Callable[..., Any]
) -> None:
    def training(model: nn.Module, optimizer: Optimizer) -> Callable[..., Any]:
        model.group = optimizer.param_groups[0]  # type: ignore[assignment]

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            update(model, optimizer)
            return loss.detach()

        return step

    pair = _Pair(_KINDS[0])
    steps = [*map(training, pair.models, pair.optimizers)]
    steps[1] = compile(steps[1])
    pair.train(steps)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("compile", _COMPILERS)
def test_code_that_sets_the_rate(compile: Callable[..., Any]) -> None:
    def training(model: nn.Module, optimizer: Optimizer) -> Callable[..., Any]:
        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.param_groups[0]["lr"] *= 0.5
            return loss.detach()

        return step

    pair = _Pair(_KINDS[0])
    steps = [*map(training, pair.models, pair.optimizers)]
    steps[1] = compile(steps[1])
    pair.train(steps, set_rate=False)


def test_what_runs_besides_is_as_it_was() -> None:
    plain = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    definition = torch.optim.SGD.step.__wrapped__  # type: ignore[attr-defined]

    def contents() -> Any:
        cells: Any = torch.optim.SGD.step.__closure__
        return [cell.cell_contents for cell in cells]

    before = contents()
    assert definition in before

    @hostjit.capture
    def step(x: torch.Tensor) -> torch.Tensor:
        plain.param_groups[0]["params"][0].grad = x
        plain.step()
        raise ValueError

    for _ in range(3):
        with pytest.raises(ValueError):
            step(torch.ones(2))
    assert contents() == before
