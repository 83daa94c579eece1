# SPDX-License-Identifier: Apache-2.0
"""Loops that other calls leave earlier than the one that was recorded: one recording does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit


def rows(size: int = 4) -> list[Tensor]:
    """Return arguments: the first ones keep loops running, others end them sooner or later."""
    generator = torch.Generator().manual_seed(0)
    scales = [9.0, 9.0, 0.1, 1.0, 2.5, 9.0, 0.4, 6.0, 0.0, 3.0, 1.5, 9.0]
    return [scale * (1 + 0.1 * torch.rand(size, generator=generator)) for scale in scales]


def run_beside_eager(
    make: Callable[[], Callable[[Tensor], Any]], state: Callable[[Any], Any] = lambda _: None
) -> list[Any]:
    """Compare calls with eager's, and what they leave behind."""
    made = []
    for runtime in ("jit", "evaluator"):
        program, eager = make(), make()
        recorded = hostjit.capture(program, runtime=runtime)
        for number, x in enumerate(rows()):
            given, expected_given = x.clone(), x.clone()
            torch.manual_seed(number)
            expected = eager(expected_given)
            torch.manual_seed(number)
            found = recorded(given)
            found, expected = _without_texts(found), _without_texts(expected)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
            assert repr(_kinds(found)) == repr(_kinds(expected))
            assert (found is given) == (expected is expected_given)
            torch.testing.assert_close(given, expected_given)
            torch.testing.assert_close(state(program), state(eager))
        made.append(recorded)
    return made


def _without_texts(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_without_texts, value))
    return hash(value) if isinstance(value, str) else value


def _kinds(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [type(value), *map(_kinds, value)]
    if isinstance(value, Tensor):
        return value.dtype, value.shape, value.stride()
    return value if isinstance(value, int | str) else (type(value), str(value)[:1])


def until_small(x: Tensor) -> Tensor:
    x = x + 0.01
    for _ in range(6):
        if x.norm() < 1.0:
            break
        x = x * 0.7
    return x


def with_more_behind(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x + 1
    for _ in range(6):
        y = y - 0.3 * x
        if (x.abs() < 1).all():
            break
        x = x * 0.7
    z = x.sin() + y
    return z, y


def how_many_passes(x: Tensor) -> tuple[Tensor, int, float]:
    last, x = 1e9, x + 0.01
    for i in range(6):
        cost = x.square().sum().item()
        if cost < 1.0:
            break
        last = cost
        x = x * 0.7
    return x, i, last


def a_while(x: Tensor) -> tuple[Tensor, int]:
    count = 0
    while x.norm() > 3.0 and count < 9:
        x = 0.8 * x
        count += 1
    return x * 2, count


def two_tests(x: Tensor) -> Tensor:
    for _ in range(5):
        x = x * 0.8
        if x.sum() < 4:
            break
        x = x - 0.05
        if x[0] < 1.5:
            break
    return x + x.cos()


def both_of_two(x: Tensor) -> Tensor:
    for _ in range(5):
        x = x * 0.8
        if x.sum() < 9 and x[1] < 2.0:
            break
    return x - 1


def one_of_two(x: Tensor) -> Tensor:
    for _ in range(5):
        x = x * 0.8
        if x.sum() < 9 or x[1] < 2.0:
            break
    return x - 1


def the_best_or_a_break(x: Tensor) -> tuple[Tensor, float]:
    best, kept = float("inf"), x.clone()
    for i in range(6):
        x = x * 0.8 - 0.1 * i
        cost = (x - 0.5).square().sum()
        if cost.item() < best:
            best, kept = cost.item(), x.clone()
        elif cost.item() > best * 1.2:
            break
    return kept + 1, best


def an_else(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.cos()
    for _ in range(4):
        x = x * 0.8
        if x.norm() < 4:
            break
    else:
        y = y + 100
    return x, y * 2


def one_in_the_other(x: Tensor) -> Tensor:
    for _ in range(3):
        y = x.clone()
        for _ in range(3):
            y = y * 0.8
            if y.norm() < 2:
                break
        x = x * 0.5 + y
        if x.norm() < 4:
            break
    return x + 1


def written_in_place(x: Tensor) -> Tensor:
    u = x.clone()
    for _ in range(5):
        if u.norm() < 4:
            break
        u.mul_(0.8)
        u[1:].sub_(0.05)
    return u * 1.0


def the_written_is_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    u = x.clone()
    head = u[:2]
    for _ in range(5):
        u.mul_(0.8)
        if u.norm() < 4:
            break
    return u, head.sum()


def an_argument_is_written(x: Tensor) -> Tensor:
    for _ in range(5):
        if x.norm() < 4:
            break
        x.mul_(0.8)
    return x.sum()


def by_steps(x: Tensor) -> tuple[Tensor, float]:
    u = x.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([u], lr=0.5)
    for _ in range(5):
        optimizer.zero_grad()
        loss = (u - 1).square().sum()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if value < 20:
            break
    return u.detach(), value


def by_gradients(x: Tensor) -> Tensor:
    u = x.clone().requires_grad_(True)
    for _ in range(5):
        loss = (u - 1).square().sum()
        (gradient,) = torch.autograd.grad(loss, u)
        if gradient.norm() < 5:
            break
        with torch.no_grad():
            u -= 0.2 * gradient
    return u.detach() * 2


def kept_in_a_list(x: Tensor) -> Tensor:
    goals = [x + 1, x.sin()]
    for _ in range(4):
        x = x * 0.8 + 0.01 * goals[0]
        if x.norm() < 4:
            break
    return x + goals[1]


def in_a_context(x: Tensor) -> Tensor:
    with torch.no_grad():
        for _ in range(4):
            x = x * 0.8
            if x.norm() < 4:
                break
        y = x + 1
    return y


def reads_on(x: Tensor) -> Tensor:
    """What passes read behind a test matters only where they run."""
    for i in range(4):
        x = x * 0.8
        if x.norm() < 4:
            break
        if x.sum().item() > -1 - i:
            x = x + 0.1
        x = x * float(f"{x.numel() + i}") / 5
    return x + 1


ONE_RECORDING = [
    *(until_small, with_more_behind, how_many_passes, a_while, two_tests, both_of_two),
    *(one_of_two, the_best_or_a_break, an_else, one_in_the_other, written_in_place),
    *(the_written_is_returned, an_argument_is_written, by_steps, by_gradients, kept_in_a_list),
    *(in_a_context, reads_on),
]


@pytest.mark.parametrize("program", ONE_RECORDING, ids=lambda program: program.__name__)
def test_one_recording_does(program: Callable[..., Any]) -> None:
    for recorded in run_beside_eager(lambda: program):
        assert len(recorded.specializations) == 1 and recorded.captured is not None


def a_return(x: Tensor) -> Tensor:
    x = x + 0.01
    for _ in range(6):
        if x.norm() < 1.0:
            return x
        x = x * 0.7
    return x * 2


def a_return_of_more(x: Tensor) -> tuple[Tensor, int, bool]:
    for i in range(5):
        x = x * 0.7
        cost = x.square().sum().item()
        if cost < 1.0:
            return x.cos(), i, True
    return x, 5, False


def what_is_done_last(x: Tensor) -> tuple[Tensor, bool]:
    found, converged = x * 0, False
    for _ in range(5):
        x = x * 0.7
        if x.norm() < 1.0:
            found = x.clone()
            converged = True
            break
    return found + 1, converged


def returns_in_loops(x: Tensor) -> Tensor:
    for _ in range(3):
        for _ in range(2):
            x = x * 0.7
            if x.norm() < 1.0:
                return x - 1
        x = x + 0.1
    return x


def decides_by_a_flag(x: Tensor) -> Tensor:
    small = False
    for _ in range(4):
        x = x * 0.8
        if x.norm() < 2.0:
            small = True
            break
    if small:
        x = x + 10
    return x if not small else x * 2


def whichever_comes_first(x: Tensor) -> tuple[Tensor, str]:
    """Texts are not selected: a recording is for one of them."""
    for _ in range(4):
        x = x * 0.8
        if x.norm() < 2.0:
            return x, "small"
        if x.norm() > 100.0:
            return x, "large"
    return x, "neither"


WITH_RETURNS = [a_return, a_return_of_more, what_is_done_last, returns_in_loops, decides_by_a_flag]


@pytest.mark.parametrize("program", WITH_RETURNS, ids=lambda program: program.__name__)
def test_one_recording_does_for_returns(program: Callable[..., Any]) -> None:
    for recorded in run_beside_eager(lambda: program):
        assert len(recorded.specializations) == 1 and recorded.captured is not None


@pytest.mark.parametrize("program", [whichever_comes_first], ids=lambda program: program.__name__)
def test_others_agree_as_well(program: Callable[..., Any]) -> None:
    run_beside_eager(lambda: program)
