# SPDX-License-Identifier: Apache-2.0
"""Passes of loops that go one way or another: `if cost < best: x = trial else: step = step / 2`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from in_passes import Passes, check, compiled
from torch import Tensor
from torch.testing import assert_close

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

W = torch.linspace(-0.4, 0.4, 9, dtype=torch.float64).view(3, 3)
LOW = torch.full((2, 3), -1.5, dtype=torch.float64)


def bisection(x: Tensor) -> Tensor:
    target = x.sum() / 6
    low, high = target * 0 - 4, target * 0 + 4
    middle = low
    for _ in range(50):
        middle = (low + high) / 2
        if (middle**3 - target).item() > 0:
            high = middle
        else:
            low = middle
        if (high - low).item() < 1e-7:
            break
    return middle


def all_of_a_bisection(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    target = x.sum() / 6
    low, high = target * 0 - 4, target * 0 + 4
    middle = low
    while (high - low).item() > 1e-5:
        middle = (low + high) / 2
        if middle**3 > target:
            high = middle
        else:
            low = middle
    return low, middle, high


def golden_section(x: Tensor) -> tuple[Tensor, ...]:
    a, b = x[0, 0] * 0 - 2, x[0, 0] * 0 + 2
    c, d = b - 0.618 * (b - a), a + 0.618 * (b - a)

    def cost(t: Tensor) -> Tensor:
        return (t - x[0, 0]) ** 2 + 0.1 * torch.sin(5 * t)

    while (b - a).abs().item() > 1e-3:
        if cost(c) < cost(d):
            b = d
        else:
            a = c
        c, d = b - 0.618 * (b - a), a + 0.618 * (b - a)
    return a, b, c, d


def accepted_or_not(x: Tensor) -> tuple[Tensor, Tensor, float, int, int]:
    step, accepted, rejected = 2.0, 0, 0
    cost = x.square().sum()
    while cost.item() > 1e-4 and rejected < 30:
        trial = x - step * torch.sin(x)
        trial_cost = trial.square().sum()
        if trial_cost < cost:
            x, cost = trial, trial_cost
            step *= 1.5
            accepted += 1
        else:
            step *= 0.4
            rejected += 1
    return x, cost, step, accepted, rejected


def three_ways(x: Tensor) -> tuple[Tensor, int, int, int]:
    up = down = even = 0
    for i in range(40):
        x = x * 1.05 - 0.1 * torch.sin(x * 3 + i)
        mean = x.mean().item()
        if mean > 0.6:
            x = x * 0.5
            up += 1
        elif mean < -0.3:
            x = -x
            down += 1
        else:
            x = x + 0.05
            even += 1
        if x.norm().item() > 1e4:
            break
    return x, up, down, even


def in_place(x: Tensor) -> tuple[Tensor, Tensor, int]:
    speed = torch.ones_like(x)
    hits = 0
    for _ in range(40):
        speed.sub_(0.1)
        x.add_(speed, alpha=0.2)
        if x.min().item() < LOW.min().item():
            x.clamp_(min=-1.5)
            speed.neg_()
            hits += 1
        if x.norm().item() > 60:
            break
    return x, speed, hits


def to_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    found = torch.zeros(30, 3, dtype=x.dtype)
    for i in range(30):
        x = torch.tanh(x @ W + 0.3) * 1.2
        if x[0, 0].item() > 0.25 + i % 3 / 10:
            found[i] = x[0]
        else:
            found[i, 1] = 1.0
            x = x - 0.2
        if x.norm().item() > 50:
            break
    return x, found


def to_lists(x: Tensor) -> tuple[Tensor, list[float]]:
    found = []
    for i in range(30):
        if x.sum().item() > 0:
            x = x * 0.9 - 0.1 * i
            found.append(x.sum().item())
        else:
            x = x * 0.8 + 0.2 * i
            found.append(-x.max().item())
        if x.norm().item() > 500:
            break
    return x, found


def in_tuples(x: Tensor) -> tuple[tuple[Tensor, Tensor], int]:
    state = (x, x * 2)
    count = 0
    while count < 30:
        h, c = state
        if h.sum().item() > 0.5:
            state = (torch.tanh(c) - 0.3, c * 0.9 - 0.2)
        else:
            state = (h + 0.1, torch.sin(c) + 0.3)
        count += 1
        if h.norm().item() > 90:
            break
    return state, count


def numbers_alone(x: Tensor) -> tuple[float, float, int]:
    """Of a controller with a limit."""
    total, last, clipped = 0.0, 0.0, 0
    for i in range(40):
        error = x.sum().item() - last
        total = total + error * 0.1
        wanted = 0.5 * error + 0.2 * total
        if wanted > 0.4:
            wanted = 0.4
            clipped += 1
        last = last + wanted * 0.3
        if i > 38 and last > 1e6:
            break
    return total, last, clipped


JOINED: list[Callable[..., Any]] = [
    *(bisection, all_of_a_bisection, golden_section, accepted_or_not, three_ways, in_place),
    *(to_rows, to_lists, in_tuples),
]


def objects_that_wander(x: Tensor) -> tuple[Tensor, ...]:
    a, b, c = x, x * 2, x
    for i in range(30):
        if x.sum().item() > 0:
            x, a = x - 0.5, b
        else:
            b, x = x, x + 0.7 + i / 40
        if x.norm().item() > 90:
            break
    return x, a, b, c


def objects_that_stay(x: Tensor, limit: float = 1e9) -> tuple[Tensor, ...]:
    kept, best = x, 1e9
    value = x
    for i in range(20):
        value = value * 0.9 + (0.3 if i % 2 else -0.2)
        norm = value.norm().item()
        if norm < best:
            kept, best = value, norm
        else:
            value = value + 0.01
        if norm > limit:
            break
    value.add_(100)
    return kept, value, x


def lists_of_some_passes(x: Tensor) -> tuple[Tensor, list[int], list[Tensor]]:
    found: list[int] = []
    kept: list[Tensor] = []
    for i in range(30):
        x = torch.sin(x * 2 + i)
        if x.sum().item() > 0:
            found.append(i)
        else:
            kept.append(x)
        if x.norm().item() > 90:
            break
    return x, found, kept


def of_other_sizes(x: Tensor) -> Tensor:
    for i in range(12):
        x = x * 0.9 if x.sum().item() > 0 else torch.cat([x, x[:1] + i])
        if x.norm().item() > 90:
            break
    return x


def of_other_types(x: Tensor) -> tuple[Tensor, Any]:
    count: Any = 0
    for i in range(20):
        x = torch.sin(x * 2 + i)
        count = count + 1 if x.sum().item() > 0 else 0.5
        if x.norm().item() > 90:
            break
    return x, count


def that_raise_where_not_taken(x: Tensor) -> tuple[Tensor, int]:
    table = torch.arange(4, dtype=x.dtype)
    skipped = 0
    for i in range(20):
        x = torch.sin(x * 2 + i / 7)
        place = (x[0, 0] * 6).long()
        if 0 <= place.item() < 4:
            x = x + table[place]
        else:
            skipped += 1
        if x.norm().item() > 90:
            break
    return x, skipped


OTHERS: list[Callable[..., Any]] = [
    *(objects_that_wander, objects_that_stay, lists_of_some_passes, of_other_sizes, of_other_types),
    *(that_raise_where_not_taken, numbers_alone),
]


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("function", JOINED)
def test_one_program_goes_either_way(function: Any, runtime: str) -> None:
    passes = Passes(function, runtime)
    for _ in range(3):
        check(function, passes.run)
    joined = [
        replay.way
        for each in passes.compiled
        if each.owner._recorded is not None
        for replay in each.owner._recorded.owner.ways()
        if replay.way is not None and replay.way.joined
    ]
    assert joined


@pytest.mark.parametrize("function", OTHERS)
def test_passes_are_as_eagers(function: Any) -> None:
    passes = Passes(function)
    for _ in range(3):
        check(function, passes.run)


@pytest.mark.parametrize("how", ["hostjit.compile", "torch.compile"])
@pytest.mark.parametrize("function", [*JOINED, *OTHERS])
def test_calls_are_as_eagers(function: Any, how: str) -> None:
    fast = compiled(how, function)
    for _ in range(3):
        check(function, fast)


class Gains:
    """Has numbers that a way reads."""

    up, down = 0.5, 0.25


def test_what_a_way_reads_is_compared() -> None:
    gains = Gains()

    def settle(x: Tensor) -> Tensor:
        for i in range(30):
            x = x - gains.up if x.sum().item() > 0 else x + gains.down * (1 + i % 3)
            if x.norm().item() > 90:
                break
        return x

    fast = compiled("hostjit.compile", settle)
    for number in range(30):
        if number % 6 == 5:
            gains.up += 0.125
        if number % 9 == 8:
            gains.down += 0.0625
        x = torch.full((2, 3), number / 9 - 1, dtype=torch.float64)
        assert_close(fast(x), settle(x))


def test_other_tensors_of_one_way_are_found() -> None:
    held = {"weight": W.clone()}

    def settle(x: Tensor) -> Tensor:
        for i in range(30):
            x = torch.tanh(x @ held["weight"]) if x.sum().item() > 0 else x + 0.4 + i / 50
            if x.norm().item() > 90:
                break
        return x

    fast = compiled("hostjit.compile", settle)
    for number in range(24):
        if number % 6 == 5:
            held["weight"] = held["weight"] * 0.5 + number / 50
        x = torch.full((2, 3), number / 9 - 1, dtype=torch.float64)
        assert_close(fast(x), settle(x))


@pytest.mark.parametrize("how", ["hostjit.compile", "torch.compile"])
def test_ways_of_other_functions_are_others(how: str) -> None:
    """Each call brings a function of the same code, which knows another tensor."""

    def solve(step: Callable[[Tensor], Tensor], x: Tensor, kind: str) -> tuple[Tensor, int]:
        count = 0
        for count in range(30):  # noqa: B007
            now = step(x) if kind == "plain" else step(x) * 0.9
            if (now - x).norm() < 1e-6:
                break
            x = now
        return now, count

    def forward(x: Tensor, kind: str) -> tuple[Tensor, int]:
        state, count = solve(lambda z: torch.tanh(z @ W + x), torch.zeros_like(x), kind)
        return state * 2 + x, count

    fast = compiled(how, forward)
    torch.manual_seed(0)
    for number in range(16):
        x = torch.randn(8 if number % 5 < 4 else 6, 3, dtype=torch.float64)
        kind = "plain" if number % 3 else "damped"
        found, expected = fast(x, kind), forward(x, kind)
        assert found[1] == expected[1]
        assert_close(found[0], expected[0])
