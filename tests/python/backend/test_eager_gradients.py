# SPDX-License-Identifier: Apache-2.0
"""torch.compile: gradients that are differentiated again, or that nothing arrives for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

Function = Callable[..., Any]


def _compiled(function: Function, runtime: str) -> Function:
    options = {"runtime": runtime, "fallback": False}
    return torch.compile(function, backend="hostjit", options=options)


def _energy(u: Tensor, weight: Tensor) -> Tensor:
    return (u @ weight).tanh().square().sum()


def _product_with_hessian(function: Function, u: Tensor, weight: Tensor) -> Tensor:
    """Of the gradient and what else there is: nothing but u is asked for."""
    (gradient,) = torch.autograd.grad(function(u, weight), u, create_graph=True)
    penalty = gradient.square().sum() + function(u, weight)
    (found,) = torch.autograd.grad(penalty, u)
    return found


def test_a_term_of_a_sum_is_not_lost(runtime: str) -> None:
    fast, weight = _compiled(_energy, runtime), torch.randn(4, 4)
    for _ in range(3):
        u = torch.randn(4, requires_grad=True)
        found = _product_with_hessian(fast, u, weight)
        assert_close(found, _product_with_hessian(_energy, u, weight))


def test_sizes_and_numbers(runtime: str) -> None:
    def function(u: Tensor, scale: float) -> tuple[Tensor, Tensor, int]:
        return (u * scale).sin().sum(0), (u**3).sum(), u.shape[0]

    fast = _compiled(function, runtime)
    for step in range(4):
        u = torch.randn(2 + step, 3, requires_grad=True)
        found = []
        for run in (fast, function):
            wave, cubes, _ = run(u, 0.5 + step)
            (gradient,) = torch.autograd.grad(wave.sum() + cubes, u, create_graph=True)
            found.append((gradient, *torch.autograd.grad(gradient.exp().sum(), u)))
        assert_close(found[0], found[1])


def test_a_penalty_on_gradients_trains(runtime: str) -> None:
    def steps(wrap: Callable[[nn.Module], Function]) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 8), nn.Softplus(), nn.Linear(8, 1))
        critic = wrap(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            x = torch.randn(5, 3, requires_grad=True)
            score = critic(x)
            (gradient,) = torch.autograd.grad(score.sum(), x, create_graph=True)
            loss = score.mean() + (gradient.norm(dim=1) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return [parameter.detach() for parameter in model.parameters()]

    assert_close(steps(lambda model: _compiled(model, runtime)), steps(lambda model: model))


def test_third_derivatives(runtime: str) -> None:
    def function(u: Tensor) -> Tensor:
        return u.pow(5).sum()

    u = torch.randn(3, requires_grad=True)
    value = _compiled(function, runtime)(u)
    for _ in range(3):
        (gradient,) = torch.autograd.grad(value, u, create_graph=True)
        value = gradient.sum()
    assert_close(gradient, 60 * u.square())


def _with_an_effect(u: Tensor, weight: Tensor) -> Tensor:
    weight.mul_(1.5)
    return (u @ weight).tanh().square().sum()


def test_what_cannot_run_again_raises(runtime: str) -> None:
    fast = _compiled(_with_an_effect, runtime)
    u = torch.randn(400, requires_grad=True)
    (gradient,) = torch.autograd.grad(fast(u, torch.randn(400, 400)), u, create_graph=True)
    with pytest.raises(RuntimeError, match=r"second derivatives of 'graph_.*' are not possible"):
        torch.autograd.grad(gradient.square().sum() + u.sum(), u)


def test_an_input_that_was_changed_since_raises(runtime: str) -> None:
    weight = torch.randn(4, 4)
    u = torch.randn(4, requires_grad=True)
    value = _compiled(_energy, runtime)(u, weight)
    with torch.no_grad():
        u.add_(1)
    (gradient,) = torch.autograd.grad(value, u, create_graph=True)
    with pytest.raises(RuntimeError, match="an input was changed since"):
        torch.autograd.grad(gradient.square().sum() + u.sum(), u)


def test_gradients_without_a_graph_are_the_programs(runtime: str) -> None:
    fast, weight = _compiled(_energy, runtime), torch.randn(4, 4)
    u = torch.randn(4, requires_grad=True)
    value = fast(u, weight)
    (first,) = torch.autograd.grad(value, u, retain_graph=True)
    (second,) = torch.autograd.grad(value, u)
    assert not first.requires_grad
    assert_close(second, first)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(value, u)


class _Heads(nn.Module):
    """Results of their own, views of one another, integers and None, of several parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> dict[str, Any]:
        hidden = self.norm(self.body(x))
        other = self.head(hidden.detach())
        pair = (hidden[:, 0], hidden.sum())
        return {"hidden": hidden.relu(), "other": other, "best": hidden.argmax(-1), "pair": pair}


_LOSSES: dict[str, Callable[[dict[str, Any]], Tensor]] = {
    "one": lambda results: results["hidden"].sum(),
    "another": lambda results: results["other"].square().sum(),
    "a view": lambda results: results["pair"][0].exp().sum(),
    "both": lambda results: (results["hidden"] * results["other"]).sum(),
}


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("of", _LOSSES)
def test_what_a_loss_does_not_depend_on_has_no_gradient(of: str, again: bool, runtime: str) -> None:
    def steps(wrap: Callable[[nn.Module], Function]) -> list[list[Tensor | None]]:
        torch.manual_seed(0)
        model = _Heads()
        run = wrap(model)
        found = []
        for step in range(3):
            x = torch.randn(5 + step, 4, requires_grad=step > 0)
            model.zero_grad()
            loss = _LOSSES[of](run(x))
            if again:
                loss.backward(retain_graph=True)
            loss.backward()
            found.append([x.grad, *(parameter.grad for parameter in model.parameters())])
        return found

    expected, found = steps(lambda model: model), steps(lambda model: _compiled(model, runtime))
    for gradients, wanted in zip(found, expected, strict=True):
        assert [g is None for g in gradients] == [w is None for w in wanted]
        assert_close([g for g in gradients if g is not None], [w for w in wanted if w is not None])


def test_results_that_look_like_views_of_others(runtime: str) -> None:
    """As of attention, which turns its result."""
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def function(x: Tensor) -> Tensor:
        found: Tensor = attention(x, x, x)[0]
        return found

    fast = _compiled(function, runtime)
    for _ in range(2):
        x, found = torch.randn(2, 5, 8, requires_grad=True), []
        for run in (fast, function):
            (gradient,) = torch.autograd.grad(run(x).square().sum(), x, create_graph=True)
            found.append((gradient, *torch.autograd.grad(gradient.square().sum(), x)))
        assert_close(found[0], found[1])
