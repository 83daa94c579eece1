# SPDX-License-Identifier: Apache-2.0
"""Inputs of which a graph writes one: memory that they share, and where that begins, may differ."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import hostjit

# Where the tensor that is written lies, and the other.
PLACES: dict[str, tuple[slice, slice]] = {
    "apart": (slice(0, 3), slice(4, 7)),
    "the same": (slice(0, 3), slice(0, 3)),
    "shifted by one": (slice(0, 3), slice(1, 4)),
    "shifted by two": (slice(0, 3), slice(2, 5)),
}
ORDERS = list(itertools.permutations(PLACES, 2))

pytestmark = pytest.mark.filterwarnings("ignore:hostjit. 'graph_.*' runs eagerly")


def add_to_one(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    x.add_(1)
    return (x + y * 2) * weight


def add_to_part(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    x[1:].mul_(3)
    return (x * weight).sum() + y


def views(kind: str) -> tuple[Tensor, Tensor, Tensor]:
    base = torch.arange(8.0)
    if kind == "of others":
        return base, base[:3].clone(), base[:3]
    first, second = PLACES[kind]
    return base, base[first], base[second]


@pytest.mark.parametrize(("function", "learns"), [(add_to_one, False), (add_to_part, True)])
@pytest.mark.parametrize("order", [*ORDERS, ("of others", "the same"), ("the same", "of others")])
def test_each_call_answers_as_eager(
    function: Callable[..., Tensor], order: tuple[str, str], learns: bool
) -> None:
    fast = torch.compile(function, backend="hostjit")
    for kind in (*order, order[0]):
        found = []
        for call in (fast, function):
            base, x, y = views(kind)
            weight = torch.full((3,), 2.0, requires_grad=learns)
            result = call(x, y, weight)
            if learns:
                result.sum().backward()
            found.append((result.detach(), base, weight.grad if learns else base))
        assert all(map(torch.equal, *found)), (kind, found)


def test_it_is_said_once() -> None:
    fast = torch.compile(add_to_one, backend="hostjit")
    weight = torch.ones(3)
    fast(*views("apart")[1:], weight)
    with pytest.warns(UserWarning, match="share memory that the call changes"):
        fast(*views("the same")[1:], weight)


def test_sizes_may_be_open() -> None:
    fast = torch.compile(add_to_one, backend="hostjit", dynamic=True)
    for size, distance in ((3, 3), (4, 1), (5, 5), (4, 0), (6, 2)):
        found = []
        for call in (fast, add_to_one):
            base = torch.arange(12.0)
            x, y = base[:size], base[distance : distance + size]
            found.append((call(x, y, torch.ones(size)), base))
        assert all(map(torch.equal, *found))


def flattened_rows(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(0.5)
    return x.reshape(x.shape[0], -1).expand(2, -1, -1)[0].contiguous(), x * weight


@pytest.mark.parametrize("dynamic", [None, True], ids=["", "dynamic"])
def test_a_result_is_a_view_of_what_is_written(dynamic: bool | None) -> None:
    fast = torch.compile(flattened_rows, backend="hostjit", dynamic=dynamic)
    for start, size in ((1, 3), (0, 3), (1, 4), (2, 5), (1, 4)):
        found = []
        for call in (fast, flattened_rows):
            base = torch.arange(40.0).reshape(10, 4)
            weight = torch.ones(1, requires_grad=True)
            rows, product = call(base[start : start + size], weight)
            rows.add_(1)  # of base
            found.append((base, rows, product.detach()))
        assert all(map(torch.equal, *found))


class Kept:
    def __init__(self) -> None:
        self.mean = torch.ones(3)


def shift(kept: Kept, x: Tensor) -> Tensor:
    kept.mean -= 6
    x[1:] = x[:-1]
    return x * 2


def shift_what_is_made(kept: Kept, x: Tensor) -> Tensor:
    kept.mean -= 6
    y = x * 2
    y[1:] = y[:-1]
    return y


def shift_with_gradients(kept: Kept, x: Tensor) -> Tensor:
    y = x * kept.mean.clone().requires_grad_()
    y[0, 1:] = y[0, :-1]
    return y


def move_apart(kept: Kept, x: Tensor) -> Tensor:
    kept.mean -= 6
    x[0] = x[1]
    x[..., 1] = x[:, 0]
    x[2:, None] = x[:1, None]
    return x * 2


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("make", ["hostjit", "backend"])
@pytest.mark.parametrize("function", [shift, shift_what_is_made, shift_with_gradients, move_apart])
def test_parts_that_are_written_from_others(
    function: Callable[[Kept, Tensor], Tensor], make: str
) -> None:
    """Eager refuses to copy where some elements are both read and written."""
    compiled = hostjit.compile(function)
    fast = torch.compile(function, backend="hostjit") if make == "backend" else compiled
    mine, other = Kept(), Kept()
    for _ in range(3):
        x = torch.arange(9.0).view(3, 3)
        y = x.clone()
        if function is move_apart:
            torch.testing.assert_close(fast(mine, x), function(other, y))
        else:
            for call, kept, given in ((function, other, y), (fast, mine, x)):
                with pytest.raises(RuntimeError, match="single memory location"):
                    call(kept, given)
        torch.testing.assert_close((mine.mean, x), (other.mean, y))
