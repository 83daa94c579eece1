# SPDX-License-Identifier: Apache-2.0
"""Passes of loops that values decide on: one program runs as many as it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from in_passes import Passes, check, compiled, inputs
from torch import Tensor, nn
from torch.testing import assert_close

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

W = torch.linspace(-0.4, 0.4, 9, dtype=torch.float64).view(3, 3)
LAYER = nn.Linear(3, 3, dtype=torch.float64).requires_grad_(False)
nn.init.zeros_(LAYER.bias)


def of_tensors(x: Tensor) -> Tensor:
    while x.abs().sum() > 0.5:
        x = x - 0.1 * (x @ W) - 0.05 * x
    return x


def by_numbers_that_are_read(x: Tensor) -> tuple[Tensor, int]:
    count = 0
    new = torch.tanh(x @ W + 0.5)
    while (new - x).abs().max().item() > 1e-6 and count < 40:
        x, new = new, torch.tanh(new @ W + 0.5)
        count += 1
    return new.exp(), count


def until_a_return(x: Tensor) -> tuple[Tensor, int]:
    passes = 0
    while True:
        step = (x**3 - 2 * x - 5) / (3 * x**2 - 2)
        x = x - step
        passes += 1
        if step.abs().max() < 1e-9 or passes >= 25:
            return x, passes


def of_what_was_read_last(x: Tensor) -> tuple[Tensor, float]:
    last = 0.0
    while True:
        x = x @ (W + 1)
        norm = x.norm()
        x = x / norm
        if abs(norm.item() - last) < 1e-7:
            return x, last
        last = norm.item()


def of_a_step(x: Tensor) -> tuple[Tensor, float]:
    step = 8.0
    cost = x.square().sum()
    while (x - step * x.sign()).square().sum() > cost - 0.01 * step and step > 1e-3:
        step *= 0.7
    return x - step * x.sign(), step


def over_a_range(x: Tensor) -> tuple[Tensor, int]:
    for i in range(60):
        new = torch.tanh(x @ W + 0.1)
        if torch.norm(new - x) < 1e-7:
            return new * 2, i
        x = new
    return x, -1


def to_the_end(x: Tensor) -> tuple[Tensor, int]:
    for i in range(9):  # noqa: B007
        x = x * 0.99
        if x.sum() > 100:
            break
    return x, i


def with_items(x: Tensor) -> tuple[Tensor, int]:
    for i in range(2, 50, 3):
        x = x + i / 7 - x * i * 0.01
        if x.max() > 4:
            break
    return x, i


def backwards(x: Tensor) -> tuple[Tensor, int]:
    for i in range(30, 0, -2):
        x = x * 1.05
        if x.abs().max() > i / 8:
            break
    return x, i


def that_change_the_item(x: Tensor) -> tuple[Tensor, int]:
    for i in range(12):
        x = x + i * 0.01
        i = i * 2 + 1
        if x.sum() > 3:
            break
    return x, i


def that_know_the_item(x: Tensor) -> Tensor:
    for i in range(10):
        x = x + x[i % 2]
        if x.sum() > 300:
            break
    return x


def by_floats(x: Tensor) -> tuple[Tensor, float, list[float]]:
    before, found = float("inf"), []
    for _ in range(60):
        x = torch.tanh(x @ W + 0.1)
        norm = float(x.norm())
        if abs(norm - before) < 1e-7:
            break
        before = float(norm)
        found.append(float(x.sum().item()))
    return x, before, found


def by_floats_in_a_try(x: Tensor) -> tuple[Tensor, float]:
    norm = 0.0
    for _ in range(40):
        try:
            norm = float(x.norm())
        finally:
            x = x * 0.9
        if norm < 0.5:
            break
    return x, norm


def by_floats_of_ints(x: Tensor) -> tuple[Tensor, float]:
    large = 0.0
    while float((x.abs() > 0.2).sum()) > 0:
        large = float((x.abs() > 0.2).sum()) / 4
        x = x * 0.9
    return x, large


def by_two_ways(x: Tensor) -> tuple[Tensor, int, int]:
    up = down = 0
    for _ in range(40):
        if x.sum() > 1:
            x = x * 0.6
            down += 1
        else:
            x = x + 0.05
            up += 1
        if x.abs().max() < 0.1:
            break
    return x, up, down


def counting_small_ints(x: Tensor) -> tuple[Tensor, int, int, float]:
    i, left, part = 0, 40, 0.0
    while left > 0:
        i += 2
        left = left - i % 3 - 1
        part = part + i / 4 - abs(-i) // 3
        x = x + i
        if x.sum() > 500:
            break
    return x, i, left, part


def of_containers(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    state = (x, {"cell": x * 0.5, "all": [x + 1]})
    while state[0].sum() < 12:
        hidden, others = state
        hidden = hidden + 0.3 * others["cell"].abs() + 0.1
        state = (hidden, {"cell": others["cell"] * 0.9, "all": [others["all"][0] + hidden]})
    return state[0], state[1]["cell"], state[1]["all"][0]


def that_write_in_place(x: Tensor) -> Tensor:
    x = x.clone()
    while x.sum() < 20:
        x.mul_(1.1).add_(0.2)
    return x


def that_write_what_others_have(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        while LAYER.bias.sum() < x.abs().sum() + 2:
            LAYER.bias.add_(0.05 * LAYER(x).sigmoid().mean(0))
        after = LAYER.bias.clone()
        LAYER.bias.zero_()
    return after, LAYER(x)


def that_hand_values_on(x: Tensor) -> list[Tensor]:
    first = second = x
    while x.abs().sum() > 1:
        first, second, x = second, x, x * 0.7
    return [first, second, x]


def that_hand_on_beside_numbers(x: Tensor) -> tuple[Tensor, Tensor, float, int]:
    before, rate, total = x, 0.25, 0
    while x.abs().sum() > 1:
        before, x = x, x * 0.6
        if x.max() > 9:
            rate = rate * 0.5
        total += 1
        x = x * (1 - rate / 10)
    return before, x, rate, total


def of_values_behind(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x
    while x.sum() < 9:
        made = x.exp()
        x = x + made.sigmoid()
        rest = made - x
        if rest.max() > 50:
            break
    return made, x


def whose_variables_are_one(x: Tensor) -> tuple[Tensor, Tensor]:
    a = b = x
    while a.sum() < 7:
        b = a.abs() + 0.25
        a = b
    return a, b


def of_views(x: Tensor) -> Tensor:
    while x[0].sum() < 4:
        x = x.t().reshape(3, -1)[:, :2].t() + 0.4
    return x


def that_may_raise(x: Tensor) -> tuple[Tensor, int]:
    matrix, count = x.t() @ x + 20 * torch.eye(3, dtype=x.dtype), 0
    while matrix.diagonal().min() > 12:
        matrix = matrix - 0.1 * torch.linalg.cholesky(matrix) - torch.eye(3)
        count += 1
    return matrix, count


def cost_of(x: Tensor) -> Tensor:
    return (x @ W - 0.3).square().sum() + 0.1 * x.square().sum()


def that_follow_a_gradient(x: Tensor) -> tuple[Tensor, int]:
    x = x.clone().requires_grad_(True)
    for i in range(50):  # noqa: B007
        cost = cost_of(x)
        (gradient,) = torch.autograd.grad(cost, x)
        with torch.no_grad():
            x = (x - gradient).requires_grad_(True)
        if cost.item() < 0.75:
            break
    return x, i


def that_go_backward(x: Tensor) -> tuple[Tensor, float]:
    last = 1e9
    while True:
        x = x.detach().requires_grad_(True)
        cost = cost_of(x)
        cost.backward()
        x = (x - 0.3 * x.grad).detach()  # type: ignore[operator]
        if last - cost.item() < 1e-4:
            return x, last
        last = cost.item()


def of_functions_that_calls_make(x: Tensor) -> Tensor:
    def change(y: Tensor) -> Tensor:
        return torch.tanh(y @ W) * 1.1

    while x.abs().sum() > 1.5:
        x = change(x) - 0.1 * x
    return x


def of_functions_that_know_variables(x: Tensor) -> tuple[Tensor, float]:
    goal, rate = x.sin(), 0.3

    def error(u: Tensor) -> Tensor:
        return u - goal

    def cost(u: Tensor, scale: float = 2.0) -> Tensor:
        return scale * error(u).square().sum()

    u = x
    while cost(u).item() > 1e-3:
        u = u - rate * error(u)
    return u, float(cost(u))


def with_the_best_kept(x: Tensor) -> tuple[Tensor, float, int]:
    best, kept, misses = float("inf"), x, 0
    for _ in range(200):
        x = x * 0.9 - 0.02 * torch.sin(3 * x)
        norm = x.norm().item()
        if norm < best - 1e-2:
            best, kept, misses = norm, x, 0
        else:
            misses += 1
            if misses >= 3:
                break
    return kept, best, misses


def with_one_tensor_in_two_variables(x: Tensor) -> tuple[Tensor, Tensor, float]:
    y, rate = x, 1.0
    while x.norm() > 0.5:
        x = y = x * 0.9 - 0.01 * y
        rate = 0.5
    return x, y, rate


REPEATED: list[Callable[..., Any]] = [
    *(with_the_best_kept, with_one_tensor_in_two_variables),
    *(that_follow_a_gradient, that_go_backward),
    *(of_functions_that_calls_make, of_functions_that_know_variables),
    *(
        by_floats,
        by_floats_of_ints,
        by_floats_in_a_try,
        of_tensors,
        by_numbers_that_are_read,
        until_a_return,
        of_what_was_read_last,
        of_a_step,
        that_know_the_item,
    ),
    *(over_a_range, to_the_end, with_items, backwards, by_two_ways, counting_small_ints),
    *(of_containers, that_write_in_place, that_write_what_others_have, that_hand_values_on),
    that_hand_on_beside_numbers,
    *(of_values_behind, whose_variables_are_one, of_views, that_change_the_item),
    that_may_raise,
]


def that_draw(x: Tensor) -> Tensor:
    while x.sum() < 10:
        x = x + torch.rand_like(x)
    return x


def that_grow(x: Tensor) -> Tensor:
    while x.sum() < 10:
        x = torch.cat([x, x.abs() + 0.5])
    return x


def that_swap(x: Tensor) -> tuple[Tensor, Tensor]:
    other = x * 2
    total = x.sum()
    while total < 15:
        x, other = other, x
        total = total + x.abs().sum()
    return x, other


def over_rows(x: Tensor) -> Tensor:
    total = x[0]
    for row in [*x, *x, *x]:
        if row.sum() > 3:
            continue
        total = total + row
    return total


def that_know_their_masks(x: Tensor) -> Tensor:
    while x.abs().sum() > 1:
        large = x[x > 0.1]
        x = x * 0.8 - 0.01 * large.sum()
    return x


SINGLE: list[Callable[..., Any]] = [
    *(that_draw, that_grow, that_swap, over_rows, that_know_their_masks),
]


class Rule:
    """How a loop changes what it is about."""

    def __init__(self) -> None:
        self.rate = 0.8

    def __call__(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ W) * 0.2 + x * self.rate


def of_objects_that_calls_make(x: Tensor) -> Tensor:
    rule = Rule()
    while x.abs().sum() > 1.5:
        x = rule(x)
    return x


def of_functions_with_attributes(x: Tensor) -> tuple[Tensor, int]:
    def change(y: Tensor) -> Tensor:
        return torch.tanh(y @ W) * 1.1

    change.calls = 0  # type: ignore[attr-defined]
    while x.abs().sum() > 1.5:
        x = change(x) - 0.1 * x
        change.calls += 1  # type: ignore[attr-defined]
    return x, change.calls  # type: ignore[attr-defined]


@pytest.mark.parametrize("function", [of_functions_with_attributes, of_objects_that_calls_make])
def test_what_calls_make_is_not_recorded_each_time(function: Any) -> None:
    passes = Passes(function)
    for _ in range(3):
        check(function, passes.run)
    assert passes.compiled[0].owner._recorded is None


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("function", REPEATED)
def test_one_program_runs_passes(function: Any, runtime: str) -> None:
    passes = Passes(function, runtime)
    check(function, passes.run)
    assert passes.loops() > 0


def test_each_of_several_sizes_has_a_program() -> None:
    passes = Passes(over_a_range)
    for _ in range(2):
        for rows in range(1, 7):
            x = torch.randn(rows, 3, dtype=torch.float64)
            assert_close(passes.run(x), over_a_range(x))
    assert passes.loops() == 6


@pytest.mark.parametrize("function", SINGLE)
def test_passes_that_run_one_by_one(function: Any) -> None:
    passes = Passes(function)
    check(function, passes.run)
    assert passes.loops() == 0


def that_print_at_times(x: Tensor) -> Tensor:
    for i in range(60):
        x = torch.tanh(x @ W) + 0.5 * x
        if i % 7 == 2:
            print(i, round(x.norm().item(), 4))
        if x.norm().item() < 1e-3:
            break
    return x


def test_passes_that_print_are_left_to_python(capsys: pytest.CaptureFixture[str]) -> None:
    passes = Passes(that_print_at_times)
    for x in inputs():
        passes.run(x)
        found = capsys.readouterr().out
        that_print_at_times(x)
        assert found == capsys.readouterr().out != ""
    check(that_print_at_times, passes.run)
    assert passes.loops() > 0


@pytest.mark.parametrize("how", ["hostjit.compile", "torch.compile"])
@pytest.mark.parametrize("function", [*REPEATED, *SINGLE])
def test_calls_are_as_eagers(function: Any, how: str) -> None:
    check(function, compiled(how, function))
