# SPDX-License-Identifier: Apache-2.0
"""Statements that choose by values: a replay takes either way, as eager mode does."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from calls_that_leave import kinds_of
from torch import Tensor

import hostjit


def randn(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def calls(count: int = 12, size: int = 4, scale: float = 1.5) -> list[tuple[Tensor]]:
    return [(scale * randn(size, seed=seed),) for seed in range(count)]


def run_beside_eager(program: Callable[..., Any], count: int = 24) -> list[Any]:
    """Compare calls of all ways, again and again; what they return is an argument or is not."""
    made = []
    for runtime in ("jit", "evaluator"):
        recorded = hostjit.capture(program, runtime=runtime)
        for number, (x,) in enumerate(calls(count)):
            given, expected_given = x.clone(), x.clone()
            torch.manual_seed(number)
            expected = program(expected_given)
            torch.manual_seed(number)
            found = recorded(given)
            if not isinstance(expected, str):
                torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, equal_nan=True)
            assert kinds_of(found) == kinds_of(expected)
            assert (found is given) == (expected is expected_given)
            torch.testing.assert_close(given, expected_given)
        made.append(recorded)
    return made


def clipped(x: Tensor) -> Tensor:
    for _ in range(3):
        norm = x.norm()
        if norm > 1.0:
            x = x / norm
        x = 1.5 * x - x.sin()
    return x


def the_best(x: Tensor) -> tuple[Tensor, float]:
    best, kept = float("inf"), x.clone()
    for _ in range(5):
        x = x - 0.9 * x.sin()
        cost = (x - 1).square().sum()
        if cost.item() < best:
            best, kept = cost.item(), x.clone()
    return kept, best


def with_patience(x: Tensor) -> tuple[Tensor, float, int]:
    best, kept, wait = 1e9, x.clone(), 0
    for _ in range(6):
        x = (2.1 * x).cos()
        cost = x.sum().item()
        if cost < best - 0.01:
            best = cost
            kept = x.clone()
            wait = 0
        else:
            wait += 1
    return kept, best, wait


def accepted_or_not(x: Tensor) -> tuple[Tensor, float]:
    x, damping = x * 1.0, 1.0
    last = x.square().sum()
    for _ in range(4):
        trial = x - damping * x.sin()
        cost = trial.square().sum()
        if cost < last:
            x, last = trial, cost
            damping *= 0.5
        else:
            damping = damping * 3.0
    return x, damping


def one_in_the_other(x: Tensor) -> Tensor:
    y = x + 1
    if x.sum() > 0:
        y = y * 2
        if x[0] > 0:
            y = y - x
        elif x[1] > 0.5:
            y = y + x.abs()
    elif x.max() > 1:
        y = -y
    y = y.sin() * x.cos()  # CPython 3.13 repeats what is short, and returns
    return y + x


def both_hold(x: Tensor) -> Tensor:
    x = x.cos() + x
    if x[0] > 0 and x[1] > 0:
        x = x * 3
    if x[2] > 1 or not x[3] > 0:
        x = x - 1
    return x


def the_best_of_what_is_given(x: Tensor) -> tuple[Tensor, float]:
    best, kept = float("inf"), x
    for _ in range(4):
        x = x - 0.9 * x.sin()
        cost = x.square().sum()
        if cost.item() < best:
            best, kept = cost.item(), x
        x = x + 0.1
    return kept, best


def as_an_expression(x: Tensor) -> Tensor:
    rate = 0.5 if x.mean() > 0 else 0.25
    sign = x.abs() if x[0] > 0 else x
    return rate * sign


def how_often(x: Tensor) -> Tensor:
    """The calls that are recorded need not have all that leads to the last line."""
    count = 0
    if x[0] > 0:
        count += 1
    if x[1] > 0:
        count += 1
    if x[2] > 0:
        count += 1
    y = x + 1
    if count >= 2:
        y = y * 10
    return y


def within_a_context(x: Tensor) -> Tensor:
    with torch.no_grad():
        if x.sum() > 0:
            x = x * 2
        else:
            x = x / 2
            x = x - 1
    return x


def of_a_nan(x: Tensor) -> tuple[Tensor, float]:
    y = x.sqrt()  # of negative ones
    best, found = 100.0, x
    if y.sum().item() < best:
        best, found = y.sum().item(), y * 2
    if not y[0] > 0.5:
        found = found + 1
    return found * 1.0, best


ONE_RECORDING = [
    *(clipped, the_best, with_patience, accepted_or_not, one_in_the_other, both_hold),
    *(the_best_of_what_is_given, as_an_expression, how_often, within_a_context, of_a_nan),
]


@pytest.mark.parametrize("program", ONE_RECORDING, ids=lambda program: program.__name__)
def test_one_recording_does(program: Callable[..., Any]) -> None:
    for recorded in run_beside_eager(program):
        assert len(recorded.specializations) == 1 and recorded.captured is not None


def until_it_stalls(x: Tensor) -> tuple[Tensor, int]:
    best, wait, steps = 1e9, 0, 0
    for _ in range(6):
        steps += 1
        x = (2.1 * x).cos()
        cost = x.sum().item()
        if cost < best:
            best, wait = cost, 0
        else:
            wait += 1
            if wait >= 2:
                break
    return x, steps


def over_when_small(x: Tensor) -> Tensor:
    for _ in range(4):
        x = x * 0.6
        if x.norm() < 1.0:
            continue
        x = x - 0.1
    return x


def an_alias_is_written(x: Tensor) -> Tensor:
    best, u = x + 5, x * 1.0
    for _ in range(3):
        if u.sum() < best.sum():
            best = u.detach()
        u.mul_(0.5).add_(0.3)
    return best


def the_selected_is_written(x: Tensor) -> tuple[Tensor, Tensor]:
    a, b = x + 1, x - 1
    c = b
    if x.sum() > 0:
        c = a
    c.mul_(2)
    return a, b


def both_are_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    a, b = x + 1, x * 2
    c = a if x.sum() > 0 else b
    return a, c


def an_argument_is_returned(x: Tensor) -> Tensor:
    found = x
    if x.sum() > 0:
        found = x * 2
    return found


def two_names_of_one(x: Tensor) -> Tensor:
    a, b = x + 1, x + 2
    if x.sum() > 0:
        a = b = x * 3
    a.add_(1)
    return a + b


def asks_which(x: Tensor) -> Tensor:
    a, b = x + 1, x * 2
    c = a
    if x.sum() > 0:
        c = b
    return x if c is b else x * 3


def of_other_shapes(x: Tensor) -> Tensor:
    y = x
    if x.sum() > 0:
        y = x[:2]
    return y * 2


def of_other_dtypes(x: Tensor) -> Tensor:
    y = x
    if x.sum() > 0:
        y = x.double()
    return y * 2


def of_other_strides(x: Tensor) -> Tensor:
    y = x.reshape(2, 2) * 1
    if x.sum() > 0:
        y = (x.reshape(2, 2) * 2).t()
    return y * 1


def a_flag(x: Tensor) -> Tensor:
    improved = False
    if x.sum() > 0:
        improved = True
    return x * 2 if improved else x


def the_very_flag(x: Tensor) -> Tensor:
    improved = False
    if x.sum() > 0:
        improved = True
    return x * 2 if improved is True else x


def a_flag_of_an_item(x: Tensor) -> Tensor:
    improved = False
    if x.sum() > 0:
        improved = True
    return x[int(improved)] * {False: 2, True: 3}[improved]


def nothing_or_a_tensor(x: Tensor) -> Tensor:
    found = None
    if x.sum() > 0:
        found = x * 2
    return x if found is None else found


def an_int_or_a_float(x: Tensor) -> tuple[Any, Tensor]:
    k: Any = 1
    if x.sum() > 0:
        k = 0.5
    return k, x * k


def a_bool_or_an_int(x: Tensor) -> tuple[Any, Tensor]:
    k: Any = 1
    if x.sum() > 0:
        k = True
    return k, x * k


def zeros_with_signs(x: Tensor) -> tuple[float, float]:
    k = 0.0
    if x.sum() > 0:
        k = -0.0
    return k, x.sum().item() * k


def an_index(x: Tensor) -> Tensor:
    k = 0
    if x[1] > x[0]:
        k = 1
    return x[k] * 2


def as_many_times(x: Tensor) -> Tensor:
    n = 1
    if x.sum() > 0:
        n = 2
    for _ in range(n):
        x = x * 2
    return x


def in_a_text(x: Tensor) -> str:
    n = 1
    if x.sum() > 0:
        n += 2
    return f"{n} times"


def divides_by_zero(x: Tensor) -> Tensor:
    k = 0
    y = x
    if x.sum() > 0:
        k = 4
    if x.sum() > 0:
        y = x * (8 // k)
    return y


def looks_up_too_far(x: Tensor) -> Tensor:
    rows = [x, x * 2]
    n = 2
    if x.sum() > 100:
        x = rows[n]
    return x


def draws_in_a_way(x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x + torch.rand_like(x)
    return x + torch.rand(4)


def writes_in_a_way(x: Tensor) -> Tensor:
    y = x * 1.0
    if x.sum() > 0:
        y += 1
    return y


def appends_in_a_way(x: Tensor) -> tuple[Tensor, list[int]]:
    found: list[int] = []
    if x.sum() > 0:
        found += [1]
        x = x * 2
    return x, found


def singular(x: Tensor) -> Tensor:
    a = torch.diag((x > 0).float())
    y = x
    if (x > 0).all():
        y = torch.linalg.inv(a) @ x
    return y


def a_list_is_asked(x: Tensor) -> Tensor:
    chosen = [1, 2]
    n = 3
    if x.sum() > 0:
        n = 2
    return x if n in chosen else x * 2


def a_function_of_the_users(x: Tensor) -> Tensor:
    seen = []

    def note(y: Tensor) -> Tensor:
        seen.append(1)
        return y * 2

    y = x
    if x.sum() > 0:
        y = note(x)
    return y * len(seen)


def another_max(x: Tensor) -> Tensor:
    seen = []

    def max(a: Any, b: Any) -> Any:  # noqa: A001
        seen.append(1)
        return a

    y = x.sum()
    if y > 0:
        y = max(y, 1.0)
    return y * len(seen)


def known_by_a_function(x: Tensor) -> Tensor:
    y = x

    def double() -> Tensor:
        return y * 2

    if x.sum() > 0:
        y = x + 1
    return double()


def handled(x: Tensor) -> Tensor:
    try:
        if x.sum() > 0:
            x = x * 2
    except RuntimeError:
        x = x * 3
    return x


def of_many_elements(x: Tensor) -> Tensor:
    y = x.repeat(4096)
    if x.sum() > 0:
        y = (y * 2).sin()
    return y[::1000]


OTHERS = [
    *(until_it_stalls, over_when_small, an_alias_is_written, the_selected_is_written),
    *(both_are_returned, an_argument_is_returned, two_names_of_one, asks_which, of_other_shapes),
    *(
        of_other_dtypes,
        of_other_strides,
        a_flag,
        the_very_flag,
        a_flag_of_an_item,
        nothing_or_a_tensor,
        an_int_or_a_float,
    ),
    *(a_bool_or_an_int, zeros_with_signs, an_index, as_many_times, in_a_text, divides_by_zero),
    *(looks_up_too_far, draws_in_a_way, writes_in_a_way, appends_in_a_way, singular),
    *(a_list_is_asked, a_function_of_the_users, another_max, known_by_a_function, handled),
    of_many_elements,
]


@pytest.mark.parametrize("program", OTHERS, ids=lambda program: program.__name__)
@pytest.mark.filterwarnings("ignore:hostjit")
def test_others_do_as_eager_does(program: Callable[..., Any]) -> None:
    run_beside_eager(program)


def test_gradients_flow_through_one_way_alone() -> None:
    """Through the other one, a gradient of infinity times 0 would."""

    def step(x: Tensor) -> Tensor:
        y = x * 2
        n = x.norm()
        if n > 1e-3:
            y = y / n
        y.sum().backward()
        return n.detach()

    recorded = hostjit.capture(step)
    for seed in range(8):
        start = torch.zeros(3) if seed % 3 == 0 else randn(3, seed=seed)
        first, second = (start.clone().requires_grad_() for _ in range(2))
        torch.testing.assert_close(recorded(first), step(second))
        torch.testing.assert_close(first.grad, second.grad)


class Tracker:
    """Its way depends on its attributes, of which one does more than it seems."""

    def __init__(self) -> None:
        self.rate, self.asked = 0.5, 0

    @property
    def doubled(self) -> float:
        self.asked += 1
        return 2 * self.rate

    def plainly(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x * self.rate
        return x

    def by_a_property(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x * self.doubled
        return x


@pytest.mark.filterwarnings("ignore:hostjit")
def test_attributes_are_read_where_that_does_nothing_else() -> None:
    for name in ("plainly", "by_a_property"):
        ours, eagers = Tracker(), Tracker()
        recorded = hostjit.capture(getattr(ours, name))
        for number, (x,) in enumerate(calls(20)):
            if number == 12:
                ours.rate = eagers.rate = 0.25
            torch.testing.assert_close(recorded(x), getattr(eagers, name)(x))
            assert ours.asked == eagers.asked


STATEMENTS = [
    *("a = a * 0.7 + b", "b = (a - b).sin()", "c = a * b", "s = a.sum().item()", "s = s * 0.5"),
    *("t = b.mean()", "n += 1", "n = n * 2 - 3", "s = c.max().item() + 0.1", "b = b / t"),
    *("a, b = b, a", "c = c.clone()", "c = a", "s, n = 1.5, 0", "a = c.abs()", "b = b.detach()"),
    *("b.mul_(1.1)", "c = c + s", "a = a - n", "t = t * s", "a = a.clone(); a[0] = s"),
]
TESTS = [
    *("s > 0.3", "t > 0", "a.sum() > b.sum()", "n > 1", "s < t.item()", "c[0] > 0 and s < 1"),
    *("not b[1] > 0.2", "n >= 2 or t > 0.5", "s != s", "a[1] < s", "0.1 < t < 0.9", "n % 2 == 0"),
]


def random_program(choose: random.Random) -> Callable[..., Any]:
    lines = ["def program(x):", "    a, b, c = x * 1, x.cos(), x.abs()"]
    lines.append("    s, t, n = 0.5, x.mean(), 0")

    def block(indent: str, depth: int, in_loop: bool) -> None:
        for _ in range(choose.randint(1, 3)):
            kind = choose.random()
            if depth < 3 and kind < 0.5:
                lines.append(f"{indent}if {choose.choice(TESTS)}:")
                block(indent + "    ", depth + 1, in_loop)
                if choose.random() < 0.5:
                    lines.append(f"{indent}else:")
                    block(indent + "    ", depth + 1, in_loop)
            elif in_loop and kind > 0.95:
                lines.append(f"{indent}{choose.choice(['break', 'continue'])}")
                return
            else:
                lines.append(indent + choose.choice(STATEMENTS))

    lines.append(f"    for _ in range({choose.randint(1, 3)}):")
    block("        ", 1, True)
    block("    ", 0, False)
    lines.append(f"    return {choose.choice(['a, b, s', 'c, n', 'a + b + c, s, n', 'b, c, t'])}")
    namespace: dict[str, Any] = {}
    exec(compile("\n".join(lines), "program_of_choices.py", "exec"), namespace)
    namespace["program"].text = "\n".join(lines)
    program: Callable[..., Any] = namespace["program"]
    return program


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.filterwarnings("ignore")
def test_random_programs(seed: int) -> None:
    program = random_program(random.Random(seed))
    for wrap in (hostjit.capture, hostjit.compile):
        recorded = wrap(program)
        for x in (scale * randn(3, seed=i) for i, scale in enumerate([1.0, 0.3, 2.0] * 5)):
            expected, found = program(x), recorded(x)
            for ours, eagers in zip(found, expected, strict=True):
                assert type(ours) is type(eagers), program.text
                torch.testing.assert_close(
                    ours, eagers, rtol=1e-4, atol=1e-4, equal_nan=True, msg=program.text
                )


def a_power_of_what_may_be_nan(x: Tensor) -> tuple[Tensor, float]:
    found = 1.0
    if x.sum() < 100:
        found = x.sqrt().sum().item() ** 2
    return x * 2, found


def a_text_of_a_zero(x: Tensor) -> tuple[Tensor, str]:
    found = 1.0
    if x.sum() < 100:
        found = (x[0] * 0).item() ** 1
    return x * 2, str(found)


@pytest.mark.parametrize(
    "program",
    [a_power_of_what_may_be_nan, a_text_of_a_zero],
    ids=lambda program: program.__name__,
)
def test_a_number_that_is_read_in_a_way_is_compared_to_the_bit(program: Callable[..., Any]) -> None:
    recorded = hostjit.capture(program)
    for values in ([-1.0, 2.0], [-1.0, 2.0], [4.0, 4.0], [1.0, 1.0], [-1.0, 3.0], [3.0, 3.0]):
        x = torch.tensor(values)
        assert str(recorded(x)[1]) == str(program(x)[1])
