# SPDX-License-Identifier: Apache-2.0
"""Second derivatives of what draws random numbers take the numbers that the call drew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close
from ways_to_differentiate import COMPILERS, in_each_way, leaf

import hostjit


def dropped(x: Tensor) -> Tensor:
    return F.dropout(F.dropout(x, 0.5).sin(), 0.3) * x


def noisy(x: Tensor) -> Tensor:
    return (x * torch.rand_like(x) + torch.randn(3, dtype=x.dtype)).tanh()


def permuted(x: Tensor) -> Tensor:
    unused = torch.rand(3)
    return x.sin()[torch.randperm(len(x))] * x + 0 * unused.sum()


def chosen(x: Tensor) -> Tensor:
    return x.sin()[torch.multinomial(x.detach().exp(), 2).squeeze(-1)] * x.sum()


FUNCTIONS = [
    *(dropped, noisy, permuted),
    lambda x: F.alpha_dropout(x.sin(), 0.3, training=True),
    lambda x: F.rrelu(x, training=True) * x,
    lambda x: x.sin() * torch.bernoulli(x.detach().sigmoid()),
    lambda x: F.gumbel_softmax(x, dim=-1),
]


def derivatives(run: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    """Return the first to the third, with other numbers drawn in between."""
    y = run(x)
    found = [y]
    for _ in range(3):
        torch.rand(7)
        (y,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        found.append(y)
    return [*found, torch.get_rng_state()]


def compare(way: str, function: Callable[[Tensor], Tensor], *sizes: int, twin: Any = None) -> None:
    fast = COMPILERS[way](function)
    for number in range(4):
        x = leaf(*sizes)
        found = []
        for run in (fast, twin or function):
            torch.manual_seed(number)
            found.append(derivatives(run, x))
        assert_close(*found)


@in_each_way
@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_second_derivatives(number: int, way: str) -> None:
    compare(way, FUNCTIONS[number], 5, 3)


@in_each_way
def test_indices_that_are_drawn(way: str) -> None:
    compare(way, chosen, 5)


@in_each_way
def test_a_model_with_dropout(way: str) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.4), nn.Linear(6, 3)).double()
    compare(way, model, 5, 4)


@pytest.mark.parametrize("way", ["compile", "evaluator", "capture"])
def test_attention_with_dropout(way: str) -> None:
    attention = nn.MultiheadAttention(8, 2, dropout=0.3, batch_first=True).double()
    compare(way, lambda x: attention(x, x, x)[0], 2, 4, 8)


@in_each_way
def test_two_calls_before_their_gradients(way: str) -> None:
    fast = COMPILERS[way](dropped)
    for number in range(4):
        x, z = leaf(5, 3), leaf(5, 3)
        found = []
        for run in (fast, dropped):
            torch.manual_seed(number)
            first, second = run(x), run(z)
            gradients = [
                torch.autograd.grad(y.square().sum(), of, create_graph=True)[0]
                for y, of in ((second, z), (first, x))
            ]
            found.append(
                [*gradients, *torch.autograd.grad(sum(g.sum() for g in gradients), (x, z))]
            )
        assert_close(*found)


@in_each_way
@pytest.mark.parametrize("create_graph", [False, True])
def test_many_gradients_at_once(way: str, create_graph: bool) -> None:
    fast = COMPILERS[way](dropped)
    rows = torch.eye(6, dtype=torch.float64).reshape(6, 2, 3)
    for number in range(4):
        x = leaf(2, 3)
        found = []
        for run in (fast, dropped):
            torch.manual_seed(number)
            y = run(x)
            (jacobian,) = torch.autograd.grad(
                y, x, rows, is_grads_batched=True, create_graph=create_graph
            )
            found.append((jacobian, torch.get_rng_state()))
        assert_close(*found)


def test_any_size() -> None:
    fast = hostjit.compile(dropped)
    for number in range(2, 7):
        x = leaf(number, 3)
        found = []
        for run in (fast, dropped):
            torch.manual_seed(number)
            found.append(derivatives(run, x))
        assert_close(*found)


def test_operators_of_other_libraries_may_draw_from_anywhere() -> None:
    with torch.library._scoped_library("hostjit_draws", "DEF") as library:
        library.define("noise(Tensor x) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
        library.impl("noise", torch.rand_like, "CompositeExplicitAutograd")
        torch.library.register_fake("hostjit_draws::noise", torch.empty_like, lib=library)
        fast = hostjit.compile(lambda x: x.sin() * torch.ops.hostjit_draws.noise(x.detach()))
        x = leaf(3)
        (gradient,) = torch.autograd.grad(fast(x).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match=r"second derivatives of '.*' are not possible"):
            torch.autograd.grad(gradient.sum(), x)
