# SPDX-License-Identifier: Apache-2.0
"""Calls that write inputs which gradients flow through, beside eager."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit

Function = Callable[[Tensor, Tensor], Any]

WAYS: dict[str, Callable[[Function], Function]] = {
    "compile": hostjit.compile,
    "evaluator": functools.partial(hostjit.compile, runtime="evaluator"),
    "backend": functools.partial(torch.compile, backend="hostjit"),
}


def product(x: Tensor, y: Tensor) -> Tensor:
    y.mul_(x)
    return y + 1


def copied(x: Tensor, y: Tensor) -> Tensor:
    y.copy_(x)
    return x * 2


def nothing_returned(x: Tensor, y: Tensor) -> None:
    y.copy_(x)


def a_row(x: Tensor, y: Tensor) -> Tensor:
    y[0].add_(x[0])
    return y * x


def shifted(x: Tensor, y: Tensor) -> Tensor:
    y[:, 1:] = x[:, :-1]
    return y.sum()


def the_same_twice(x: Tensor, y: Tensor) -> Tensor:
    h = x @ x.T
    y.copy_(h)
    return h


def another_view(x: Tensor, y: Tensor) -> Tensor:
    h = x * 2
    y.copy_(h)
    return h.view(-1)


def transposed(x: Tensor, y: Tensor) -> Tensor:
    y.copy_(y.t().clone())
    y += x
    return y.sin()


def views_returned(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    y.mul_(x)
    return y.view(-1), y


def both_ways(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        y.add_(3)
    y.mul_(x)
    with torch.no_grad():
        y.sub_(1)
    return y * 2


def two(x: Tensor, y: Tensor) -> Tensor:
    z = x.clone()
    x.mul_(2)
    y.addcmul_(z, z.detach())
    return x + y


def unseen(x: Tensor, y: Tensor) -> Tensor:
    y.detach().add_(1)
    return y.sin() * x


FUNCTIONS: list[Function] = [
    product,
    copied,
    nothing_returned,
    a_row,
    shifted,
    the_same_twice,
    another_view,
    transposed,
    views_returned,
    both_ways,
    two,
    unseen,
]


def outcome(function: Function, kind: str) -> list[Any]:
    """What two calls, and the gradients of all they return and write, are."""
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(4, 4, generator=generator).requires_grad_() for _ in range(2))
    found: list[Any] = []
    for _ in range(2):
        x, y, base = a * 1.5, b * 2, torch.zeros(())
        if kind == "no gradient":
            y = b.detach() * 2
        elif kind == "no gradient written":
            x = x.detach()
        elif kind == "view":
            base = torch.cat([b * 2, b * 3])
            y = base[2:6]
        results = function(x, y)
        results = results if isinstance(results, tuple) else (results,)
        total = (y * torch.arange(16.0).view(4, 4)).sum() + (base**2).sum()
        for result in results:
            if result is not None:
                total = total + (result * result).sum()
                found += [result.detach().clone(), result.requires_grad, result._base is y]
        if total.requires_grad:
            total.backward()
        found += [x.detach(), y.detach(), y.requires_grad, y._version > 0]
    return [*found, a.grad, b.grad]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_writes(function: Function, way: str) -> None:
    run = WAYS[way](function)
    for kind in ("no gradient", "gradient", "no gradient written", "view"):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="hostjit")
            found = outcome(run, kind)
        torch.testing.assert_close(found, outcome(function, kind))


def test_a_leaf_raises_as_in_eager() -> None:
    fast = hostjit.compile(product)
    x = torch.ones(3, requires_grad=True)
    fast(x, x * 2)
    leaf = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        fast(x, leaf)
    assert torch.equal(leaf, torch.ones(3))
    rows = torch.ones(2, 3, requires_grad=True) * 1
    with pytest.raises(RuntimeError, match="multiple views"):
        fast(x, rows.unbind()[0])
    assert torch.equal(rows, torch.ones(2, 3))


def test_a_leaf_that_autograd_does_not_see_written() -> None:
    fast = hostjit.compile(unseen)
    x = torch.ones(3, requires_grad=True)
    fast(x, x * 2)
    leaf, expected = (torch.ones(3, requires_grad=True) for _ in range(2))
    fast(x, leaf).sum().backward()
    unseen(x, expected).sum().backward()
    torch.testing.assert_close([leaf, leaf.grad], [expected, expected.grad])


class Memory(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(6, 3)
        self.register_buffer("state", torch.zeros(2, 3))
        self.total: Any = 0.0

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.state, Tensor)
        self.state[:] = self.cell(torch.cat([x, self.state], 1)).tanh()
        return self.state * 2


@pytest.mark.parametrize("way", WAYS)
def test_a_buffer_through_time(way: str) -> None:
    if way == "backend" and torch.__version__ < (2, 12):
        pytest.skip("AOTAutograd forgets what was done with the buffer before, for any backend")

    def train(make: Callable[[Any], Any]) -> list[Tensor]:
        torch.manual_seed(0)
        model = Memory()
        run = make(model)
        for _ in range(3):
            for _ in range(3):
                result = run(torch.ones(2, 3))
            result.sum().backward()
            assert isinstance(model.state, Tensor)
            model.state = model.state.detach()
        return [model.state, *(p.grad for p in model.parameters() if p.grad is not None)]

    torch.testing.assert_close(train(WAYS[way]), train(lambda model: model))


def test_any_size() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        y[: x.shape[0]].mul_(x)
        return y.sum()

    def gradient(run: Function, size: int) -> list[Tensor | None]:
        x, y = torch.full((size, 2), 2.0, requires_grad=True), torch.ones(size + 1, 2)
        (run(x, y) + (y * y).sum()).backward()
        return [x.grad, y.detach()]

    fast = hostjit.compile(function, dynamic=True)
    for size in (3, 4, 7):
        torch.testing.assert_close(gradient(fast, size), gradient(function, size))
    assert len(fast.specializations) == 1


def test_second_derivatives_raise() -> None:
    fast = hostjit.compile(product)
    x = torch.ones(3, requires_grad=True)
    found = fast(x, torch.ones(3))
    (gradient,) = torch.autograd.grad(found.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives of 'product' are not possible"):
        gradient.sum().backward()


COPIED_BEFORE: list[Function] = [
    lambda x, y: (x * y.clone(), y.add_(1))[0],
    lambda x, y: (x * y.t().clone(), y.mul_(3))[0].sin(),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", COPIED_BEFORE, ids=["whole", "view"])
def test_what_the_backward_pass_needs_is_as_it_was(function: Function, way: str) -> None:
    def gradient(run: Function) -> list[Any]:
        x, y = torch.full((3, 3), 2.0, requires_grad=True), torch.ones(3, 3)
        for _ in range(2):
            run(x, y).sum().backward()
        return [x.grad, y]

    torch.testing.assert_close(gradient(WAYS[way](function)), gradient(function))


class Held:
    def __init__(self) -> None:
        self.mean = torch.ones(3)


def scale_with_gradients(held: Held, x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        held.mean.mul_(x)
    return x.sum()


def set_a_part_with_gradients(held: Held, x: torch.Tensor) -> None:
    with torch.enable_grad():
        held.mean[0] = torch.dot(x, x)


def scale_and_return(held: Held, x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        held.mean.mul_(x)
        return held.mean * 2


def scale_without_gradients(held: Held, x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        y = x * 2
    held.mean.mul_(y)
    return y.detach() + 1


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("make", ["hostjit", "backend"])
@pytest.mark.parametrize(
    "function",
    [
        *(scale_with_gradients, set_a_part_with_gradients, scale_and_return),
        scale_without_gradients,
    ],
)
def test_gradients_switched_on_for_a_write(function: Any, make: str) -> None:
    """What is written needs a gradient from then on, also where the call is under `no_grad`."""
    torch._dynamo.reset()
    compiled = hostjit.compile(function)
    fast = torch.compile(function, backend="hostjit") if make == "backend" else compiled
    weight = torch.randn(3, requires_grad=True)
    for _ in range(3):
        x = weight * 1.5
        mine, other = Held(), Held()
        with torch.no_grad():
            found, expected = fast(mine, x), function(other, x)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(mine.mean, other.mean)
        assert mine.mean.requires_grad == other.mean.requires_grad
        if other.mean.requires_grad:
            gradients = [
                torch.autograd.grad(held.mean.sum(), weight, retain_graph=True)
                for held in (mine, other)
            ]
            torch.testing.assert_close(*gradients)
