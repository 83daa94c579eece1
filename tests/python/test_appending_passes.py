# SPDX-License-Identifier: Apache-2.0
"""Passes of loops that append to lists of the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from in_passes import Passes, check, compiled
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

W = torch.linspace(-0.4, 0.4, 9, dtype=torch.float64).view(3, 3)


def numbers(x: Tensor) -> tuple[Tensor, list[float]]:
    norms = []
    for _ in range(40):
        norm = x.norm()
        norms.append(norm.item())
        x = x - 0.1 * (x @ W) - 0.1 * x
        if norm.item() < 0.5:
            break
    return x, norms


def tensors_behind(x: Tensor) -> tuple[Tensor, list[Tensor]]:
    states = [x]
    while x.abs().sum() > 0.5:
        x = x * 0.8 - 0.05 * torch.sin(x)
        states.append(x)
    return x, states


def tensors_ahead(x: Tensor) -> tuple[Tensor, list[Tensor]]:
    states: list[Tensor] = []
    while x.abs().sum() > 0.5:
        states.append(x)
        x = x * 0.8 - 0.05 * torch.sin(x)
    return x, states


def that_are_written_later(x: Tensor) -> tuple[Tensor, list[Tensor]]:
    states = []
    for _ in range(30):
        x = torch.tanh(x @ (W + 1))
        states.append(x)
        if (x > 0.99).all():
            break
    x.add_(1.0)
    return x, states


def several(x: Tensor) -> tuple[Any, ...]:
    pairs, names = [x.sum()], []
    for i in range(30):
        x = x * 0.9
        total = x.sum()
        pairs.append((i, total.item(), {"x": x}))
        names.append("pass")
        names.append(i * 2)
        if total < 0.3:
            break
    return x, pairs, names


def in_two_ways(x: Tensor) -> tuple[Tensor, list[Any]]:
    events = []
    for i in range(40):
        if x.sum() > 1:
            events.append(("down", i))
            x = x * 0.6
        else:
            x = x + 0.05
        if x.abs().max() < 0.1:
            break
    events.append(len(events))
    return x, events


def with_a_return(x: Tensor) -> tuple[Tensor, list[float]]:
    norms = []
    while True:
        x = x * 0.9
        norms.append(x.norm().item())
        if x.norm().item() < 0.7:
            return x, norms


def more_passes_than_rows(x: Tensor) -> tuple[Tensor, list[float], list[Tensor]]:
    sums, states = [], []
    for _ in range(700):
        x = x * 0.999
        sums.append(x.sum().item())
        states.append(x * 2)
        if x.abs().max() < 1e-6:
            break
    return x, sums, states


def what_is_written(x: Tensor) -> tuple[Tensor, list[Tensor]]:
    states = []
    while x.abs().sum() > 0.5:
        x.mul_(0.8)
        states.append(x)
    return x, states


REPEATED: list[Callable[..., Any]] = [
    *(numbers, tensors_behind, tensors_ahead, that_are_written_later, several, in_two_ways),
    *(with_a_return, more_passes_than_rows, what_is_written),
]


def in_two_lists(x: Tensor) -> tuple[Any, ...]:
    first, second = [], []
    while x.abs().sum() > 0.5:
        x = x * 0.8
        first.append(x)
        second.append(x)
    return x, first, second


def handed_on(x: Tensor) -> tuple[Any, ...]:
    states, before = [], x
    for _ in range(30):
        before, x = x, x * 0.8
        states.append(x)
        if x.abs().sum() < 0.5:
            break
    return before, x, states


def views(x: Tensor) -> tuple[Tensor, list[Tensor]]:
    rows = []
    while x.abs().sum() > 0.5:
        x = x * 0.8
        rows.append(x[0])
    return x, rows


SINGLE = [in_two_lists, handed_on, views]


def in_an_outer_loop(x: Tensor) -> tuple[Tensor, list[float]]:
    sums = []
    for factor in (0.9, 0.8):
        while x.abs().sum() > 1:
            x = x * factor
            sums.append(x.sum().item())
        x = x * 4
        sums.append(factor)
    return x, sums


def for_an_optimizer_of_the_call(x: Tensor) -> tuple[Tensor, list[float]]:
    weight = x.clone().requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=0.01, momentum=0.5)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = (torch.sin(weight) @ W - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return weight.detach(), losses


def known_outside(x: Tensor, log: Any = []) -> tuple[Tensor, list[float]]:  # noqa: B006
    norms: list[float] = []
    log[:] = [norms]
    while x.abs().sum() > 0.5:
        x = x * 0.8
        norms.append(x.norm().item())
        x = x + len(log[0]) * 1e-4
    return x, norms


def known_to_a_function(x: Tensor) -> tuple[Tensor, list[float], int]:
    norms: list[float] = []

    def count() -> int:
        return len(norms)

    while x.abs().sum() > 0.5:
        x = x * 0.8 + count() * 1e-4
        norms.append(x.norm().item())
    return x, norms, count()


def made_anew(x: Tensor) -> tuple[Tensor, list[float]]:
    norms: list[float] = []
    while x.abs().sum() > 0.5:
        x = x * 0.8
        if x.sum() > 1:
            norms = []
        norms.append(x.norm().item())
    return x, norms


def of_another_class(x: Tensor) -> tuple[Tensor, set[Any], Any]:
    class Log:
        def append(self, value: float) -> None:
            found.add(round(value, 6))

    found: set[Any] = set()
    norms = Log()
    while x.abs().sum() > 0.5:
        x = x * 0.8
        norms.append(x.norm().item())
    return x, found, None


def behind_an_error(x: Tensor) -> tuple[Tensor, list[float]]:
    norms = []
    try:
        while True:
            x = x * 0.8
            norms.append(x.norm().item())
            if x.abs().sum() < 0.5:
                raise ZeroDivisionError
    except ZeroDivisionError:
        norms.append(-1.0)
    return x, norms


OTHERS: list[Callable[..., Any]] = [
    in_an_outer_loop,
    for_an_optimizer_of_the_call,
    *(known_outside, known_to_a_function, made_anew),
    *(of_another_class, behind_an_error),
]


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("function", REPEATED)
def test_one_program_appends_for_passes(function: Any, runtime: str) -> None:
    passes = Passes(function, runtime)
    check(function, passes.run)
    assert passes.loops() > 0


@pytest.mark.parametrize("function", SINGLE)
def test_objects_that_are_elsewhere_too(function: Any) -> None:
    passes = Passes(function)
    check(function, passes.run)
    assert passes.loops() == 0
    assert passes.compiled[0].owner._recorded is not None


@pytest.mark.parametrize("how", ["hostjit.compile", "torch.compile"])
@pytest.mark.parametrize("function", [*REPEATED, *SINGLE, *OTHERS])
def test_calls_are_as_eagers(function: Any, how: str) -> None:
    check(function, compiled(how, function))


def test_loops_with_an_optimizer_of_the_call_are_one_recording() -> None:
    fast = hostjit.compile(for_an_optimizer_of_the_call)
    for _ in range(3):
        check(for_an_optimizer_of_the_call, fast)
    recorded = fast.owner._recorded
    assert len(recorded.specializations) == 1
    assert "reads=0" in repr(recorded.owner.captured)
