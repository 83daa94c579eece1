# SPDX-License-Identifier: Apache-2.0
"""Passes of loops that look at lists which they append to: `losses[-1]`, `len(losses)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from in_passes import Passes, check, compiled
from torch import Tensor

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

W = torch.linspace(-0.4, 0.4, 9, dtype=torch.float64).view(3, 3)


def last_two(x: Tensor) -> tuple[Tensor, list[float]]:
    losses = []
    while True:
        losses.append(x.square().sum().item())
        if len(losses) > 3 and abs(losses[-1] - losses[-2]) < 1e-3:
            break
        x = x - 0.1 * x - 0.05 * (x @ W)
    return x, losses


def the_first(x: Tensor) -> tuple[Tensor, list[float]]:
    norms = []
    for _ in range(100):
        x = x * 0.9
        norms.append(x.norm().item())
        if norms[-1] < 0.1 * norms[0]:
            break
    return x, norms


def as_a_condition(x: Tensor) -> tuple[Tensor, list[float]]:
    while_large: list[float] = []
    for _ in range(100):
        x = x * 0.9 - 0.01
        norm = x.norm().item()
        if while_large and norm < 0.5:
            break
        if not while_large or norm < 3:
            while_large.append(norm)
    return x, while_large


def in_its_condition(x: Tensor) -> tuple[Tensor, list[float]]:
    norms: list[float] = []
    while len(norms) < 30 and x.abs().sum() > 0.5:
        x = x * 0.8
        norms.append(x.norm().item())
    return x, norms


def a_tensor(x: Tensor) -> list[Tensor]:
    states = [x]
    while states[-1].abs().sum() > 0.5:
        states.append(states[-1] * 0.8 - 0.05 * torch.sin(states[-1]))
    return states


def several(x: Tensor) -> tuple[Any, ...]:
    norms, sums = [x.norm().item()], []
    for _ in range(60):
        x = torch.tanh(x @ W) + 0.3 * x + 0.1
        norms.append(x.norm().item())
        sums.append(x.sum().item())
        if len(sums) > 2 and sums[-1] > sums[-3] - 1e-6 and norms[1] > norms[-1]:
            break
    return x, norms, sums


def since_none(x: Tensor) -> tuple[Tensor, float | None]:
    last = None
    for _ in range(60):
        x = x * 0.9
        norm = x.norm().item()
        if last is not None and last - norm < 0.05:
            break
        last = norm
    return x, last


REPEATED: list[Callable[..., Any]] = [
    *(last_two, the_first, as_a_condition, in_its_condition, a_tensor, several, since_none),
]


def tensors(x: Tensor) -> list[Tensor]:
    states = [x, x * 0.9]
    while states[-1].abs().sum() > 0.5:
        states.append(states[-1] * 0.8 - 0.05 * torch.sin(states[-2]))
    return states


def made_anew(x: Tensor) -> tuple[Tensor, list[list[float]]]:
    runs = []
    for start in range(3):
        norms: list[float] = []
        while not norms or norms[-1] > 0.5 + start:
            x = x * 0.8
            norms.append(x.norm().item())
        x = x * 3
        runs.append(norms)
    return x, runs


def that_is_not_there(x: Tensor) -> tuple[Tensor, list[float], str]:
    norms: list[float] = []
    found = ""
    for _ in range(30):
        x = x * 0.8
        try:
            if x.norm().item() < 0.7:
                norms[-3]
        except IndexError as error:
            found = str(error)
        if x.norm().item() < 0.8:
            norms.append(x.norm().item())
        if len(norms) == 3:
            break
    return x, norms, found


def with_another_name(x: Tensor) -> tuple[Tensor, list[float], int]:
    norms = most = []
    while x.abs().sum() > 0.5:
        x = x * 0.8
        norms.append(x.norm().item())
        x = x + len(most) * 1e-4
    return x, norms, len(most)


def looked_at_otherwise(x: Tensor) -> tuple[Tensor, list[float]]:
    norms: list[float] = []
    while len(norms) < 3 or sum(norms[-3:]) > 2:
        x = x * 0.8
        norms.append(x.norm().item())
    return x, norms


def shown_to_others(x: Tensor) -> tuple[Tensor, list[float]]:
    norms: list[float] = []
    known = [norms]
    while len(norms) < 30 and x.abs().sum() > 0.5:
        x = x * 0.8
        norms.append(x.norm().item())
        if len(norms) == 4:
            known[0].pop()
            x = x * 0.9
    return x, norms


def of_an_iterator(x: Tensor) -> tuple[Tensor, list[float]]:
    norms: list[float] = [*range(3)]
    while len(norms) < 30 and norms[-1] > 0.5:
        x = x * 0.8
        norms.append(x.norm().item())
    return x, norms


def with_another_len(x: Tensor) -> tuple[Tensor, list[float]]:
    def len(values: list[float]) -> int:  # noqa: A001
        return 30 if values and values[-1] < 1 else 0

    norms: list[float] = []
    while len(norms) < 30:
        x = x * 0.8
        norms.append(x.norm().item())
    return x, norms


def behind_an_error(x: Tensor) -> tuple[Tensor, list[float]]:
    norms: list[float] = []
    try:
        while not norms or norms[-1] > 0.2:
            x = x * 0.8
            norms.append(x.norm().item())
            if len(norms) > 3 and norms[-1] < 1:
                raise ZeroDivisionError
    except ZeroDivisionError:
        norms.append(-1.0)
    return x, norms


OTHERS: list[Callable[..., Any]] = [
    *(
        tensors,
        made_anew,
        that_is_not_there,
        with_another_name,
        looked_at_otherwise,
        shown_to_others,
    ),
    *(of_an_iterator, with_another_len, behind_an_error),
]


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("function", REPEATED)
def test_one_program_runs_passes(function: Any, runtime: str) -> None:
    passes = Passes(function, runtime)
    check(function, passes.run)
    assert passes.loops() > 0


@pytest.mark.parametrize("how", ["hostjit.compile", "torch.compile"])
@pytest.mark.parametrize("function", [*REPEATED, *OTHERS])
def test_calls_are_as_eagers(function: Any, how: str) -> None:
    check(function, compiled(how, function))


def test_a_len_that_comes_later_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes(in_its_condition)
    check(in_its_condition, passes.run)
    monkeypatch.setitem(globals(), "len", lambda values: 30)
    with pytest.raises(NameError, match="'len' was replaced"):
        passes.run(torch.ones(2, 3, dtype=torch.float64) * 10)
