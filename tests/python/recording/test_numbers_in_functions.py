# SPDX-License-Identifier: Apache-2.0
"""Numbers that differ from call to call, in functions that recorded code gives them to."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit
from hostjit.recording.replays.read_guard import VALUE_READ, ReadGuard

KEPT: list[Any] = []


def gradient(x: Tensor, loss: Callable[[Tensor], Tensor]) -> Tensor:
    x = x.detach().requires_grad_()
    (found,) = torch.autograd.grad(loss(x), x)
    return found


def scaled(x: Tensor, rate: float) -> Tensor:
    return x * rate + rate


def scaled_twice(x: Tensor, rate: float) -> Tensor:
    return scaled(scaled(x, rate), 2 * rate)


def returned(x: Tensor, rate: float) -> tuple[Tensor, float]:
    return x * rate, rate


def kept(x: Tensor, rate: float) -> Tensor:
    KEPT.append(rate)
    return x * rate


def asked(x: Tensor, rate: float) -> Tensor:
    return x * 2 if isinstance(rate, float) else x


def of_math(x: Tensor, rate: float) -> Tensor:
    return x * math.sin(rate)


def of_torch(x: Tensor, rate: float) -> Tensor:
    return torch.add(x, x, alpha=rate) + torch.full((3,), rate)


def decides(x: Tensor, rate: float) -> Tensor:
    return x * rate if rate > 0.5 else x - rate


def optional(x: Tensor, rate: float | None = None) -> Tensor:
    return x if rate is None else x / rate


def yields(x: Tensor, rate: float) -> Iterator[Tensor]:
    yield x * rate


def recursive(x: Tensor, rate: float, depth: int = 3) -> Tensor:
    return recursive(x * rate, rate, depth - 1) if depth else x


def any_number(x: Tensor, *rates: float) -> Tensor:
    return x * rates[0]


@functools.wraps(scaled)
def wrapped(*args: Any) -> Tensor:
    return scaled(*args)


class Rate:
    def __init__(self, rate: float) -> None:
        self.rate = rate


def steps(x: Tensor, rate: float) -> Tensor:
    (g,) = torch.autograd.grad(scaled_twice(x, rate).square().sum(), x)
    return x.detach() - 0.1 * g


def calls_one(x: Tensor, rate: float) -> Any:
    return gradient(x, torch.sum) + scaled(x, rate)


def calls_several(x: Tensor, rate: float) -> Any:
    return gradient(x, torch.sum) + scaled_twice(x, rate)


def calls_what_returns(x: Tensor, rate: float) -> Any:
    y, same = returned(x, rate)
    return gradient(x, torch.sum) + y, same


def calls_what_keeps(x: Tensor, rate: float) -> Any:
    return gradient(x, torch.sum) + kept(x, rate)


def calls_what_asks(x: Tensor, rate: float) -> Any:
    return gradient(x, torch.sum) + asked(x, rate)


def calls_math(x: Tensor, rate: float) -> Any:
    return gradient(x, torch.sum) + of_math(x, rate)


def calls_torch(x: Tensor, rate: float) -> Any:
    return gradient(x, torch.sum) + of_torch(x, rate)


def calls_what_decides(x: Tensor, rate: float) -> Any:
    return gradient(x, torch.sum) + decides(x, rate)


def calls_by_keyword(x: Tensor, rate: float) -> Any:
    return gradient(x, torch.sum) + scaled(x, rate=rate)


def calls_what_takes_none(x: Tensor, rate: float) -> Any:
    return gradient(x, torch.sum) + optional(x, rate) + optional(x)


def calls_a_generator(x: Tensor, rate: float) -> Any:
    return gradient(x, torch.sum) + next(yields(x, rate))


def calls_what_calls_itself(x: Tensor, rate: float) -> Any:
    return gradient(x, torch.sum) + recursive(x, rate)


def calls_what_takes_any(x: Tensor, rate: float) -> Any:
    return gradient(x, torch.sum) + any_number(x, rate)


def calls_what_is_wrapped(x: Tensor, rate: float) -> Any:
    return gradient(x, torch.sum) + wrapped(x, rate)


def calls_a_class(x: Tensor, rate: float) -> Any:
    return gradient(x, torch.sum) + x * Rate(rate).rate


def calls_a_local_one(x: Tensor, rate: float) -> Any:
    def local(y: Tensor) -> Tensor:
        return y * rate

    return gradient(x, torch.sum) + local(x)


def reads_and_calls(x: Tensor, rate: float) -> Any:
    total = x.sum().item()
    return gradient(x, torch.sum) + scaled(x, total) + scaled(x, total * rate)


PROGRAMS = [
    *(calls_one, calls_several, calls_what_returns, calls_what_keeps, calls_what_asks, calls_math),
    *(calls_torch, calls_what_decides, calls_by_keyword, calls_what_takes_none, calls_a_generator),
    *(calls_what_calls_itself, calls_what_takes_any, calls_what_is_wrapped, calls_a_class),
    *(calls_a_local_one, reads_and_calls, steps),
]


def call_both(run: Callable[..., Any], program: Callable[..., Any], number: int) -> None:
    generator = torch.Generator().manual_seed(number)
    x, rate = torch.randn(3, generator=generator), 0.1 + 0.07 * number
    if program is steps:
        x.requires_grad_()
    KEPT.clear()
    found, seen = run(x, rate), [*KEPT]
    KEPT.clear()
    torch.testing.assert_close(found, program(x, rate), rtol=1e-5, atol=1e-5)
    assert seen == KEPT and [*map(type, seen)] == [*map(type, KEPT)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("wrap", [hostjit.compile, hostjit.capture], ids=["compile", "capture"])
@pytest.mark.filterwarnings("ignore")
def test_calls_do_as_eager_ones(program: Callable[..., Any], wrap: Callable[..., Any]) -> None:
    run = wrap(program)
    for number in range(20):
        call_both(run, program, number)


@pytest.mark.filterwarnings("ignore")
def test_another_function_is_called_by_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    run = hostjit.compile(calls_one)
    for number in range(8):
        call_both(run, calls_one, number)
    for other in (kept, of_math, lambda x, rate: x - rate, torch.mul):
        monkeypatch.setitem(globals(), "scaled", other)
        for number in range(8):
            call_both(run, calls_one, number)


class Controller:
    """Its methods are given numbers, and give them on."""

    def __init__(self) -> None:
        self.gains, self.seen = torch.ones(3), 0.0

    def cost(self, gains: Tensor, x: Tensor, target: float) -> Tensor:
        return self.distance(gains * x, target).square().sum()

    def distance(self, x: Tensor, target: float) -> Tensor:
        return scaled(x, target) - target

    def improve(self, x: Tensor, target: float) -> Tensor:
        gains = self.gains.detach().requires_grad_()
        (g,) = torch.autograd.grad(self.cost(gains, x, target), gains)
        self.gains = self.gains - 0.01 * g
        return self.gains * 2


class Keeping(Controller):
    def distance(self, x: Tensor, target: float) -> Tensor:
        self.seen = target
        return x - target


@pytest.mark.parametrize("kind", [Controller, Keeping])
@pytest.mark.filterwarnings("ignore")
def test_methods(kind: type[Controller]) -> None:
    ours, eagers = kind(), kind()
    run = hostjit.compile(ours.improve)
    for number in range(24):
        x = torch.randn(3, generator=torch.Generator().manual_seed(number))
        if number == 12:
            for each in (ours, eagers):
                each.distance = lambda x, target: x + target  # type: ignore[method-assign]
        torch.testing.assert_close(run(x, 0.1 * number), eagers.improve(x, 0.1 * number))
        assert ours.seen == eagers.seen and type(ours.seen) is float


def test_one_program_does() -> None:
    controller = Controller()
    run = hostjit.compile(controller.improve)
    for number in range(10):
        run(torch.ones(3), 0.1 * number)
    before = run.specializations
    for number in range(10, 30):
        run(torch.ones(3), 0.1 * number)
    assert run.specializations == before


def test_values_read_that_follow_from_open_numbers() -> None:
    """They are compared in the call path alone: where a call differs, they are to blame."""
    guard = ReadGuard(
        program=None,  # type: ignore[arg-type]
        inputs=[("open", 0, int)],
        expected=[torch.tensor(1)],
        where=["planner.py:7"],
        is_random=False,
        runtime=None,
    )
    text = guard.difference([])
    assert text.startswith(VALUE_READ)
    assert "planner.py:7" in text
