# SPDX-License-Identifier: Apache-2.0
"""Loops that other calls leave earlier than the one that was recorded: one recording does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from calls_that_leave import kinds_of, rows
from torch import Tensor, nn

import hostjit


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
            assert kinds_of(found) == kinds_of(expected)
            assert (found is given) == (expected is expected_given)
            torch.testing.assert_close(given, expected_given)
            torch.testing.assert_close(state(program), state(eager))
        made.append(recorded)
    return made


def _without_texts(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_without_texts, value))
    return hash(value) if isinstance(value, str) else value


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
    for i in range(6):  # noqa: B007
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


def a_break_and_a_return(x: Tensor) -> Tensor:
    """Behind the break of a call, it does not matter what leads to the return."""
    x = x + 0.01
    for i in range(5):
        x = x * 0.8
        if x.norm() < 4.0:
            break
        if x.norm() + i < 5.5:
            return x * 100
    return x + 1


def a_return_and_a_break(x: Tensor) -> Tensor:
    x = x + 0.01
    for i in range(5):
        x = x * 0.8
        if x.norm() + i < 5.5:
            return x * 100
        if x.norm() < 4.0:
            break
    return x + 1


def nan_is_read(x: Tensor) -> tuple[Tensor, str]:
    y = x.sqrt() * 1.0
    text = ""
    for _ in range(3):
        y = y * 0.7
        if y[0] < 1.0:
            break
        text = f"{(y - 20).sqrt()[1].item()}"
    return y, text


MORE = [a_break_and_a_return, a_return_and_a_break, nan_is_read]


class Planner:
    """Has state of its own, which calls change ahead of a loop, in it and behind."""

    def __init__(self) -> None:
        self.plan = torch.ones(4)
        self.history: list[float] = []
        self.calls = 0
        self.passes = 0
        self.model = nn.Linear(4, 4)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def state(self) -> tuple[Any, ...]:
        parameters = [each.detach().clone() for each in self.model.parameters()]
        gradients = [each.grad for each in self.model.parameters()]
        return (self.plan, self.history, self.calls, self.passes, *parameters, *gradients)


def replaces_its_plan(self: Planner, x: Tensor) -> Tensor:
    plan = self.plan
    for _ in range(4):
        plan = plan - 0.3 * (plan - x)
        if (plan - x).norm() < 4:
            break
    self.plan = plan
    self.calls += 1
    return plan.sum()


def replaces_it_in_the_loop(self: Planner, x: Tensor) -> Tensor:
    for _ in range(4):
        self.plan = self.plan - 0.3 * (self.plan - x)
        if (self.plan - x).norm() < 4:
            break
    return self.plan.sum()


def counts_passes(self: Planner, x: Tensor) -> Tensor:
    for _ in range(4):
        self.passes += 1
        x = x * 0.8
        if x.norm() < 4:
            break
    return x


def counts_behind_the_test(self: Planner, x: Tensor) -> Tensor:
    for _ in range(4):
        x = x * 0.8
        if x.norm() < 4:
            break
        self.passes += 1
    return x


def begins_a_history(self: Planner, x: Tensor) -> Tensor:
    self.history = []
    for i in range(4):
        x = x * 0.8
        if x.norm() < 4:
            break
        self.history.append(float(i))
    return x


def appends_to_a_list(self: Planner, x: Tensor) -> tuple[Tensor, list[float]]:
    costs = []
    for _ in range(4):
        x = x * 0.8
        costs.append(x.norm().item())
        if costs[-1] < 4:
            break
    return x, costs


def trains_until_it_fits(self: Planner, x: Tensor) -> float:
    loss = 0.0
    for _ in range(4):
        self.optimizer.zero_grad()
        error = (self.model(x) - 1).square().sum()
        error.backward()
        loss = error.item()
        if loss < 2:
            break
        self.optimizer.step()
    return loss


def trains_and_stops(self: Planner, x: Tensor) -> Tensor:
    for _ in range(4):
        self.optimizer.zero_grad(set_to_none=False)
        error = (self.model(x) - 1).square().sum()
        error.backward()
        self.optimizer.step()
        if error < 2:
            break
    return self.model(x).detach()


def draws(self: Planner, x: Tensor) -> Tensor:
    for _ in range(4):
        x = x * 0.8
        if x.norm() < 4:
            break
        x = x + 0.01 * torch.rand(4)
    return x + torch.rand(4)


def drops_out(self: Planner, x: Tensor) -> Tensor:
    for _ in range(3):
        x = nn.functional.dropout(x, 0.2)
        if x.norm() < 4:
            break
    return x


def asks_for_a_gradient(self: Planner, x: Tensor) -> Tensor:
    u = x.clone().requires_grad_(True)
    for _ in range(4):
        u.grad = None
        (u * u).sum().backward()
        if u.norm() < 4:
            break
        with torch.no_grad():
            u -= 0.1 * u.grad
    return u.grad * 2


def solves(self: Planner, x: Tensor) -> Tensor:
    for i in range(3):
        if x.norm() < 4:
            break
        x = torch.linalg.solve(torch.eye(4) * (x[0] + i), x)
    return x * 1


def of_other_sizes(self: Planner, x: Tensor) -> Tensor:
    for _ in range(3):
        if x.norm() < 4:
            break
        x = x[:-1]
    return x * 1


def of_another_kind(self: Planner, x: Tensor) -> Tensor:
    found: Any = None
    for _ in range(3):
        x = x * 0.8
        if x.norm() < 4:
            break
        found = x
    return x if found is None else found + 1


def the_last_pass_raises(self: Planner, x: Tensor) -> Tensor:
    for i in range(4):
        x = x * 0.8
        if x.norm() < 7:
            break
        if i == 3:
            raise ValueError("it does not end")
    return x


def known_by_a_function(self: Planner, x: Tensor) -> Tensor:
    def scaled() -> Tensor:
        return x * 2

    for _ in range(4):
        x = x * 0.8
        if x.norm() < 4:
            break
    return scaled() + x


def goes_over_an_iterator(self: Planner, x: Tensor) -> Tensor:
    factors = iter([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    for factor in factors:
        x = x * factor
        if x.norm() < 6:
            break
    return x * next(factors, 1.0)


METHODS = [
    *(replaces_its_plan, replaces_it_in_the_loop, counts_passes, counts_behind_the_test),
    *(begins_a_history, appends_to_a_list, trains_until_it_fits, trains_and_stops, draws),
    *(drops_out, asks_for_a_gradient, solves, of_other_sizes, of_another_kind),
    *(known_by_a_function, goes_over_an_iterator),
]


@pytest.mark.parametrize("program", METHODS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_what_stays_is_as_eager_leaves_it(
    program: Callable[[Planner, Tensor], Any], runtime: Any
) -> None:
    mine, eager = Planner(), Planner()
    recorded = hostjit.capture(program, runtime=runtime)
    for number, x in enumerate(rows() * 2):
        torch.manual_seed(number)
        expected = program(eager, x.clone()), torch.rand(1)
        torch.manual_seed(number)
        found = recorded(mine, x.clone()), torch.rand(1)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(mine.state(), eager.state(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("program", MORE, ids=lambda program: program.__name__)
def test_others_agree(program: Callable[..., Any]) -> None:
    run_beside_eager(lambda: program)


def test_an_error_of_a_pass_is_raised_where_eager_raises_it() -> None:
    mine, eager = Planner(), Planner()
    recorded = hostjit.capture(the_last_pass_raises)
    for x in [*rows()[2:], *rows()] * 2:
        try:
            expected = the_last_pass_raises(eager, x.clone())
        except ValueError:
            with pytest.raises(ValueError, match="it does not end"):
                recorded(mine, x.clone())
        else:
            torch.testing.assert_close(recorded(mine, x.clone()), expected)
