# SPDX-License-Identifier: Apache-2.0
"""Indices that are int tensors without dims: one program for all places that they tell."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from in_parts import counted_captures
from no_warnings import no_warnings
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit

Function = Callable[..., Any]

FAILS = object()
PLACES = (0, 1, 3, -1, 2, 4, -4, -5, 1)


def _compile(function: Function) -> Function:
    return hostjit.compile(function, fallback=False)


def _torch_compile(function: Function) -> Function:
    return torch.compile(function, backend="hostjit", options={"fallback": False})


def _evaluate(function: Function) -> Function:
    return hostjit.compile(function, fallback=False, runtime="evaluator")


WAYS = {"compile": _compile, "evaluator": _evaluate, "torch.compile": _torch_compile}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Function:
    torch._dynamo.reset()
    return WAYS[request.param]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def result_of(function: Function, args: tuple[Any, ...]) -> Any:
    """Return what a call gives, or how it fails, and what it leaves behind."""
    try:
        found = function(*args)
    except IndexError as error:
        return FAILS, str(error).split("\n")[0], args
    if torch.is_grad_enabled():
        found.sum().backward()
        return found.detach(), [x.grad for x in args if isinstance(x, Tensor)], args
    return found, args


def assert_same(found: Any, expected: Any) -> None:
    if expected[0] is FAILS:
        assert found[:2] == expected[:2]
        found, expected = found[2:], expected[2:]
    assert_close(found, expected, rtol=1e-5, atol=1e-5)


def check(function: Function, way: Function, *calls: tuple[Any, ...]) -> None:
    """Compare calls with eager ones, of which the first alone may be traced."""
    fast = way(function)
    for number, args in enumerate(calls):
        ours, eager = copy.deepcopy(args), copy.deepcopy(args)
        with counted_captures() as count, no_warnings():
            found = result_of(fast, ours)
        expected = result_of(function, eager)
        assert_same(found, expected)
        assert number == 0 or count[0] == 0


def reads(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    return x[i] * y


def reads_a_computed_place(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    return x[i + 0].exp() + x[y.argmax()] * x[y.argmin(), i % 3]


def reads_parts(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    column = x[:, i % 3].sum() + x[..., i % 3, None].sum()
    return column + x[i, 1:].sum() + x[None, i, None].sum() + x[0, i % 3] + x[i, -1] + x[i][0]


def returns_what_nobody_else_has(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    return (x * 2)[i]


def writes(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    x[i] = y
    i.add_(1)
    return x.mean(0)


def writes_parts(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    x[i] = 1.5
    x[:, i % 3] = 2
    x[i, 1:] = y[1:].double()
    x[i, -1] = y[0]
    x[0, i % 3] = y[None, None, 1]
    x[i, None] = x[i, None] * 2
    return x * 1


def changes(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    x[i] += y
    x[i, 0] *= 2
    x[i].sub_(1)
    x[i].view(-1)[1:].mul_(3)
    return x.sin()


def changes_while_the_index_changes(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    for _ in range(3):
        x[i % 4] += x[(i + 1) % 4]
        i += 1
    return x.cos()


def keeps_a_row(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    row = x[i] * 1
    x[i] = y
    return row + x[i]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8])
@pytest.mark.parametrize(
    "function",
    [
        *(reads, reads_a_computed_place, reads_parts, returns_what_nobody_else_has),
        *(writes, writes_parts, changes, changes_while_the_index_changes, keeps_a_row),
    ],
)
def test_one_program(function: Function, dtype: torch.dtype, way: Function) -> None:
    calls = [(torch.randn(4, 3), torch.tensor(i, dtype=dtype), torch.randn(3)) for i in PLACES]
    with torch.no_grad():
        check(function, way, *calls)


@pytest.mark.parametrize("function", [reads, reads_parts, reads_a_computed_place])
def test_gradients_of_what_is_read(function: Function, way: Function) -> None:
    check(
        function,
        way,
        *(
            (torch.randn(4, 3).requires_grad_(), torch.tensor(i), torch.randn(3).requires_grad_())
            for i in PLACES
        ),
    )


def changes_a_copy(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    z = x * 1
    z[i] = y * 2
    z[i] += x[i]
    z[:, i % 3] *= 3
    return z.sin()


def test_gradients_through_writes(way: Function) -> None:
    check(
        changes_a_copy,
        way,
        *(
            (torch.randn(4, 3).requires_grad_(), torch.tensor(i), torch.randn(3).requires_grad_())
            for i in (0, 1, 3, -1)
        ),
    )


def test_any_number_of_rows() -> None:
    fast = hostjit.compile(keeps_a_row, fallback=False)
    with torch.no_grad():
        for rows in (4, 5, 6, 9):
            for i in (0, rows - 1, -rows, 2):
                x, y = torch.randn(rows, 3), torch.randn(3)
                ours, eager = x.clone(), x.clone()
                assert_close(fast(ours, torch.tensor(i), y), keeps_a_row(eager, torch.tensor(i), y))
                assert_close(ours, eager)
            with pytest.raises(IndexError, match=f"dimension 0 with size {rows}"):
                fast(x, torch.tensor(rows), y)
    assert len(fast.specializations) == 2


class Ring(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("items", torch.zeros(4, 3))
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.items[self.place] = x
        self.place.add_(1).remainder_(4)
        return self.items.mean(0) - self.items[self.place]


def test_a_ring_of_buffers(way: Function) -> None:
    eager, ours = Ring(), Ring()
    fast = way(ours)
    with torch.no_grad():
        fast(torch.ones(3)), eager(torch.ones(3))
        with counted_captures() as count:
            for _ in range(9):
                x = torch.randn(3)
                assert_close(fast(x), eager(x))
                assert_close(ours.state_dict(), eager.state_dict())
    assert count[0] == 0


# A copy is no view.


def returns_a_view(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    x[i] = y
    return x[i]


def sees_a_later_write(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    row = x[i]
    x.add_(1)
    return row * 2


def writes_where_the_index_was(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    row = x[i]
    i.add_(1)
    row.mul_(3)
    return x.sum()


def sees_a_write_of_another_view(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    one, other = x[i], x[i]
    one.add_(1)
    return other * 2


def writes_a_detached_view(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    x[i].detach().mul_(2)
    return x.sum()


def masks(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    return x[i > 0] * 2


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("backend", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        *(returns_a_view, sees_a_later_write, writes_where_the_index_was),
        *(sees_a_write_of_another_view, writes_a_detached_view, masks),
    ],
)
def test_views_that_somebody_sees(function: Function, backend: bool) -> None:
    torch._dynamo.reset()
    fast = torch.compile(function, backend="hostjit") if backend else hostjit.compile(function)
    with torch.no_grad():
        for i in (0, 1, 3, -1, 2, 4, 1):
            args = torch.randn(4, 3), torch.tensor(i), torch.randn(3)
            ours, eager = copy.deepcopy(args), copy.deepcopy(args)
            found, expected = result_of(fast, ours), result_of(function, eager)
            assert_same(found, expected)
            if function is returns_a_view and i != 4:
                assert found[0].data_ptr() == ours[0][i].data_ptr()
