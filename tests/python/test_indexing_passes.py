# SPDX-License-Identifier: Apache-2.0
"""Passes of loops that pick and write items by numbers: `x[i]`, `out[:, i] = y`."""

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
U = torch.linspace(-1, 1, 36, dtype=torch.float64).view(12, 3)
SHIFTS = [U[0], U[5], U[7]]


def actions(x: Tensor) -> Tensor:
    for i in range(12):
        x = torch.tanh(x + U[i])
        if x.norm().item() > 2.3:
            break
    return x


def every_second(x: Tensor) -> tuple[Tensor, int]:
    for i in range(10, 0, -2):
        x = torch.tanh(x + U[i] + U[i - 1] * U[i, 1] + U.t()[..., i // 3])
        if x.norm().item() > 2.3:
            break
    return x, i


def from_the_end(x: Tensor) -> tuple[Tensor, int]:
    k = 0
    while x.norm() > 0.3:
        x = x * 0.9 - 0.01 * U[-k - 1]
        k = (k + 1) % 12
    return x, k


def by_numbers_that_are_read(x: Tensor) -> Tensor:
    for i in range(40):
        place = x[0].argmax().item()
        x = x * 0.95 - 0.01 * U[place] - 0.01 * x[:, place, None] * U[i % 12]
        if x.norm().item() < 0.5:
            break
    return x


def rows(x: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.zeros(12, 2, 3, dtype=x.dtype)
    for i in range(12):
        x = torch.tanh(x + U[i])
        out[i] = x
        if x.norm().item() > 2.3:
            break
    return x, out


def columns(x: Tensor) -> Tensor:
    out = torch.zeros(2, 3, 13, dtype=x.dtype)
    for i in range(12):
        out[..., i + 1] = torch.tanh(out[:, :, i] @ W + x)
        if out[..., i + 1].abs().max() > 0.9:
            break
    return out


def elements(x: Tensor) -> tuple[Tensor, Tensor]:
    norms, counts = torch.zeros(30, dtype=x.dtype), torch.zeros(3, dtype=torch.int64)
    for i in range(30):
        x = x * 0.9
        norms[i] = x.norm().item()
        norms[-i - 1] -= x[0, i % 3]
        counts[i % 3] += 1
        if x.norm().item() < 0.3:
            break
    return norms, counts


def added(x: Tensor) -> Tensor:
    out = torch.zeros(12, 3, dtype=x.dtype)
    for i in range(11):
        out[i] += x[0]
        out[i + 1] -= x[1] * out[i]
        if out.norm().item() > 10:
            break
    return out


def through_a_view(x: Tensor) -> Tensor:
    out = torch.zeros(12, 3, dtype=x.dtype)
    for i in range(12):
        row = out[i]
        row.copy_(x[0])
        row[i % 3] = 2.0
        row[1:].mul_(0.5)
        if out.norm().item() > 5:
            break
    return out


def arguments(x: Tensor) -> int:
    for i in range(2):
        x[i] = x[i - 1] * 0.5
        if x.norm().item() < 1:
            break
    return i


def lists_too(x: Tensor) -> tuple[Tensor, list[Any]]:
    found = []
    for i in range(12):
        x = x * 0.9 + 0.01 * U[i]
        found.append((i, x[0, i % 3].item()))
        if x.norm().item() < 0.8:
            break
    return x, found


def over_rows(x: Tensor) -> Tensor:
    for row in U:
        x = x + torch.sin(row * x)
        if x.sum() > 300:
            break
    return x


def over_rows_of_a_part(x: Tensor) -> tuple[Tensor, Tensor]:
    row = x[0]
    for row in U.t()[:, 1:9].t():
        x = torch.tanh(x + row)
        if x.norm().item() > 2.3:
            break
    return x, row


def over_elements(x: Tensor) -> tuple[Tensor, list[float]]:
    found = []
    with torch.no_grad():
        for number in U[:, 1]:
            x = torch.tanh(x + number)
            found.append(x.sum().item())
            if found[-1] > 5:
                return x, found
    return x * 2, found


def new_dims(x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.zeros(1, 2, 3, dtype=x.dtype)
    for i in range(12):
        x = x[None].sum(0) * 0.9 + U[i][None] + U[i, None] + x[..., None].mean(-1)
        y[None] = x
        y[i % 1] += U[i][None]
        if x.norm().item() > 30:
            break
    return x[None], y


REPEATED: list[Callable[..., Any]] = [
    new_dims,
    *(over_rows, over_rows_of_a_part, over_elements),
    *(actions, every_second, from_the_end, by_numbers_that_are_read, rows, columns, elements),
    *(added, through_a_view, arguments, lists_too),
]


def kept(x: Tensor) -> tuple[Tensor, Tensor]:
    row = x[0]
    for i in range(12):
        row = U[i]
        x = x * 0.9 + row
        if x.norm().item() > 3:
            break
    return x, row


def read_behind_a_write(x: Tensor) -> Tensor:
    out = torch.zeros(12, 3, dtype=x.dtype)
    for i in range(12):
        row = out[i]
        out += x[0]
        out[i] = row * 2 + 1
        if out.norm().item() > 20:
            break
    return out


def of_a_list(x: Tensor) -> Tensor:
    for i in range(12):
        x = x * 0.9 + SHIFTS[i % 3]
        if x.norm().item() > 3:
            break
    return x


def where_gradients_are_wanted(x: Tensor) -> Tensor:
    for i in range(12):
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad((x[i % 2] ** 2).sum(), x)
        x = x - 0.1 * gradient
        if x.norm().item() < 0.5:
            break
    return x.detach()


def with_lists_of_places(x: Tensor) -> Tensor:
    for i in range(10):
        x = x * 0.9 + U[[i, i + 1]]
        if x.norm().item() > 3:
            break
    return x


def over_others(x: Tensor) -> Tensor:
    for row in (U[0], U[1], x[1] * 2, U[3], U[4], U[5]):
        x = torch.tanh(x + row)
        if x.norm().item() > 2.3:
            break
    return x


def over_rows_that_change(x: Tensor) -> Tensor:
    rows = U.clone()
    for row in rows:
        x = torch.tanh(x + row)
        row.mul_(0.5)
        rows[0] += x[0]
        if x.norm().item() > 2.3:
            break
    return rows


SINGLE: list[Callable[..., Any]] = [
    *(over_others, over_rows_that_change),
    *(kept, read_behind_a_write, of_a_list, where_gradients_are_wanted, with_lists_of_places),
]


def by_floats(x: Tensor) -> tuple[Tensor, list[str]]:
    found = []
    for i in range(12):
        x = x * 0.9
        norm = x.norm().item()
        try:
            x = x + U[i, norm] + U[norm]
        except (IndexError, TypeError) as error:
            found.append(type(error).__name__)
        if norm < 0.5:
            break
    return x, found


def beyond_the_end(x: Tensor) -> tuple[Tensor, str]:
    try:
        for i in range(20):
            x = x * 0.9 + U[i]
            if x.norm().item() > 100:
                break
    except IndexError as error:
        return x, str(error)
    return x, ""


def by_none(x: Tensor) -> tuple[Tensor, dict[Any, int]]:
    found: dict[Any, int] = {None: 7}
    for i in range(12):
        x = x[None].sum(0) * 0.9 + found[None] * 0.01
        found[None] = i
        if x.norm().item() > 30:
            break
    return x[None], found


OTHERS = [by_floats, beyond_the_end, by_none]


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("function", REPEATED)
def test_one_program_picks_for_passes(function: Any, runtime: str) -> None:
    passes = Passes(function, runtime)
    check(function, passes.run)
    assert passes.loops() > 0


@pytest.mark.parametrize("function", SINGLE)
def test_passes_that_run_one_by_one(function: Any) -> None:
    passes = Passes(function)
    check(function, passes.run)
    assert passes.loops() == 0


@pytest.mark.parametrize("how", ["hostjit.compile", "torch.compile"])
@pytest.mark.parametrize("function", [*REPEATED, *SINGLE, *OTHERS])
def test_calls_are_as_eagers(function: Any, how: str) -> None:
    check(function, compiled(how, function))


def test_items_are_written_where_they_are() -> None:
    passes = Passes(rows)
    check(rows, passes.run)
    body = passes.programs()[0].partition("while(")[2].partition("\n  }\n")[0]
    assert 'kernel="put' in body
    assert "tensor<f64, [12, 2, 3], cpu>" not in body


@pytest.mark.parametrize("how", ["hostjit.compile", "torch.compile"])
def test_an_index_out_of_range_raises_as_in_eager_mode(how: str) -> None:
    def fill(x: Tensor, out: Tensor, count: int) -> Tensor:
        for i in range(count):
            x = torch.tanh(x @ W)
            out[i] = x[0] + U[i + 2]
            if x.norm().item() > 3:
                break
        return x

    fast = compiled(how, fill)
    x = torch.ones(2, 3, dtype=torch.float64)
    for count, size in [(6, 8), (7, 8), (8, 8), (9, 8), (12, 8), (12, 11), (5, 3), (6, 8)]:
        out, expected = torch.zeros(2, size, 3, dtype=x.dtype)
        errors = []
        for run, given in ((fast, out), (fill, expected)):
            try:
                assert_close(run(x, given, count), x @ W, rtol=10, atol=10)
                errors.append("")
            except IndexError as error:
                errors.append(str(error))
        assert errors[0] == errors[1]
        assert_close(out, expected)
