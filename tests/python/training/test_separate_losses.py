# SPDX-License-Identifier: Apache-2.0
"""Results of one call whose backward passes run one after the other, as eager lets them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit


class Adversaries(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))
        self.critic = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))


def made_and_judged(model: Adversaries, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """What one network makes, and the loss of another, which sees it detached."""
    made = model.generator(z)
    return made, model.critic(x).square().mean() + model.critic(made.detach()).exp().mean()


def two_losses(model: Adversaries, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Two losses of the same parameters."""
    return model.critic(model.generator(z).detach()).exp().mean(), model.critic(x).square().mean()


def shared(model: Adversaries, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Two losses of the same values, and one of others."""
    features = model.generator(z).tanh()
    return features.square().mean(), features.exp().mean() + model.critic(x).mean()


Losses = Callable[[Adversaries, Tensor, Tensor], tuple[Tensor, Tensor]]


def by_compile(function: Callable[..., Any], runtime: str) -> Any:
    return hostjit.compile(function, runtime=runtime, fallback=False)


def by_torch(function: Callable[..., Any], runtime: str) -> Any:
    options = {"runtime": runtime, "fallback": False}
    return torch.compile(function, backend="hostjit", fullgraph=True, options=options)


both_ways = pytest.mark.parametrize("way", [by_compile, by_torch])


def pair(
    losses: Losses, runtime: str, way: Callable[..., Any] = by_compile
) -> list[tuple[Adversaries, Any]]:
    torch.manual_seed(0)
    model = Adversaries()
    other = copy.deepcopy(model)
    compiled = way(lambda z, x: losses(other, z, x), runtime)
    return [(model, lambda z, x: losses(model, z, x)), (other, compiled)]


def gradients(model: nn.Module) -> list[Tensor | None]:
    return [parameter.grad for parameter in model.parameters()]


@both_ways
@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(
    ("losses", "changes"), [(made_and_judged, False), (made_and_judged, True), (two_losses, False)]
)
def test_one_after_the_other(
    losses: Losses, first: int, changes: bool, runtime: str, way: Callable[..., Any]
) -> None:
    """Between them, parameters may change that only the first depends on.

    Eager refuses that for `two_losses`, which depend on the same ones.
    """
    z, x = torch.randn(2, 3), torch.randn(2, 4)
    found = []
    for model, call in pair(losses, runtime, way):
        seen = []
        for batch in (2, 1, 2):
            results = call(z[:batch], x[:batch])
            results[first].sum().backward()
            seen += copy.deepcopy(gradients(model))
            if changes:
                network = model.critic if first else model.generator
                with torch.no_grad():
                    for parameter in network.parameters():
                        parameter.mul_(0.5)
            results[1 - first].sum().backward()
            seen += copy.deepcopy(gradients(model))
        found.append(seen)
    torch.testing.assert_close(found[1], found[0])


@both_ways
@pytest.mark.parametrize("losses", [made_and_judged, two_losses, shared])
def test_a_second_pass_is_an_error(losses: Losses, way: Callable[..., Any]) -> None:
    for _, call in pair(losses, "jit", way):
        results = call(torch.randn(2, 3), torch.randn(2, 4))
        results[0].sum().backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            results[0].sum().backward()
        if losses is shared:
            with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                results[1].backward()
            continue
        results[1].backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            results[1].backward()


@both_ways
def test_retained_graphs(way: Callable[..., Any]) -> None:
    found = []
    for model, call in pair(made_and_judged, "jit", way):
        torch.manual_seed(1)
        made, judged = call(torch.randn(2, 3), torch.randn(2, 4))
        judged.backward(retain_graph=True)
        made.sum().backward(retain_graph=True)
        judged.backward()
        made.sum().backward()
        found.append(gradients(model))
    torch.testing.assert_close(found[1], found[0])


@both_ways
def test_a_write_of_what_is_needed_is_an_error(way: Callable[..., Any]) -> None:
    for model, call in pair(made_and_judged, "jit", way):
        made, judged = call(torch.randn(2, 3), torch.randn(2, 4))
        judged.backward()
        with torch.no_grad():
            list(model.generator.parameters())[2].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            made.sum().backward()


def test_what_was_saved_goes_with_the_last_pass() -> None:
    from torch.autograd.graph import saved_tensors_hooks

    class Kept:
        alive = 0

        def __init__(self, tensor: Tensor) -> None:
            self.tensor = tensor
            Kept.alive += 1

        def __del__(self) -> None:
            Kept.alive -= 1

    _, (_, call) = pair(made_and_judged, "jit")
    with saved_tensors_hooks(Kept, lambda kept: kept.tensor):
        made, judged = call(torch.randn(2, 3), torch.randn(2, 4))
    judged.backward()
    assert Kept.alive
    made.sum().backward()
    assert not Kept.alive


@pytest.mark.filterwarnings("ignore:hostjit")
def test_a_step_of_two_networks_in_parts() -> None:
    def trained(compile: Callable[[Any], Any]) -> tuple[list[Tensor], dict[str, Tensor]]:
        torch.manual_seed(0)
        model = Adversaries()
        optimizers = [
            torch.optim.SGD(network.parameters(), lr=0.1)
            for network in (model.critic, model.generator)
        ]

        @compile
        def step(z: Tensor, x: Tensor) -> Tensor:
            made = model.generator(z)
            judged = model.critic(x).square().mean() + model.critic(made.detach()).exp().mean()
            optimizers[0].zero_grad()
            judged.backward()
            optimizers[0].step()
            fooled = model.critic(made).square().mean()
            optimizers[1].zero_grad()
            fooled.backward()
            optimizers[1].step()
            total: Tensor = judged.detach() + fooled.detach()
            return total

        results = [step(torch.randn(2 + n % 3, 3), torch.randn(2 + n % 3, 4)) for n in range(6)]
        return results, dict(model.state_dict())

    torch.testing.assert_close(trained(hostjit.compile), trained(lambda step: step))


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("way", ["compile", "torch.compile"])
def test_the_temperature_of_an_actor(way: str) -> None:
    """Soft actor-critic: the losses of the temperature, the critic and the actor in one update.

    What is read for a log comes between the losses and their passes, which then are parts.
    """

    def trained(compile: Callable[[Any], Any]) -> tuple[list[float], dict[str, Tensor]]:
        torch.manual_seed(0)
        model = Adversaries()
        temperature = torch.zeros((), requires_grad=True)
        groups = [[temperature], [*model.critic.parameters()], [*model.generator.parameters()]]
        optimizers = [torch.optim.Adam(group, lr=0.01) for group in groups]
        log: list[float] = []

        def descend(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
            log.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        @compile
        def update(z: Tensor, x: Tensor) -> None:
            made = model.generator(z).tanh()
            likelihood = -made.square().sum(1)
            weight = temperature.detach().exp()
            descend(-(temperature * (likelihood + 2.0).detach()).mean(), optimizers[0])
            descend((model.critic(x) - weight).square().mean(), optimizers[1])
            descend((weight * likelihood - model.critic(made)[:, 0]).mean(), optimizers[2])

        for n in range(12):
            update(torch.randn(2 + n % 3, 3), torch.randn(2 + n % 3, 4))
        return log, {**model.state_dict(), "temperature": temperature.detach()}

    def compiled(function: Callable[..., Any]) -> Any:
        if way == "compile":
            return hostjit.compile(function)
        return torch.compile(function, backend="hostjit")

    torch.testing.assert_close(trained(compiled), trained(lambda step: step), rtol=1e-4, atol=1e-5)
