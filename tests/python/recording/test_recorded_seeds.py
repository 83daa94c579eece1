# SPDX-License-Identifier: Apache-2.0
"""Recorded calls that seed the default generator."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from recorded_beside_eager import check
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit

randn = torch.randn


def first(x: Tensor) -> Tensor:
    torch.manual_seed(3)
    return x + torch.rand(4)


def between(x: Tensor) -> tuple[Tensor, ...]:
    drawn = torch.rand(4)
    torch.manual_seed(3)
    return drawn, x + torch.randn(4)


def last(x: Tensor) -> Tensor:
    drawn = x + torch.rand(4)
    torch.default_generator.manual_seed(12)
    return drawn


def forked(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(9)
        drawn = torch.rand(4)
    return drawn, x * torch.rand(4)


def of_64_bits(x: Tensor) -> list[Tensor]:
    found = [x]
    for seed in (-5, 2**64 - 1, 2**63 + 5, 2**63 - 1, 0):
        torch.manual_seed(seed)
        found.append(torch.rand(2))
    return found


def drawn_from_what_it_returns(x: Tensor) -> Tensor:
    generator = torch.manual_seed(3)
    return x + torch.rand(4, generator=generator) * torch.rand(4)


def refused(x: Tensor) -> Tensor:
    try:
        torch.manual_seed(2**70)
    except (OverflowError, RuntimeError, ValueError):
        return x + torch.rand(4)
    return x


@pytest.mark.parametrize(
    "function", [first, between, last, forked, of_64_bits, drawn_from_what_it_returns, refused]
)
def test_seeds(function: Callable[..., Any]) -> None:
    check(function, [(randn(4),) for _ in range(5)])
    check(function, [(randn(4),) for _ in range(5)], prune=True)


def test_each_seed_has_a_recording() -> None:
    def call(x: Tensor, seed: int) -> Tensor:
        torch.manual_seed(seed)
        return x + torch.rand(4)

    check(call, [(randn(4), seed) for seed in (3, 3, 3, 4, 4, 3, 4)], recordings=2)


def test_numbers_that_are_read_behind_a_seed() -> None:
    def call(x: Tensor) -> Tensor:
        torch.manual_seed(1 if x.sum() > 0 else 2)
        is_large = torch.rand(()) > 0.5
        return x + torch.rand(4) if is_large else x - torch.rand(4)

    calls = [(sign * torch.ones(4),) for sign in (1, 1, 1, -1, -1, 1, -1)]
    check(call, calls, recordings=2)


def test_a_training_step_that_seeds() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.Linear(5, 1))

    def call(x: Tensor) -> list[Any]:
        torch.manual_seed(7)
        model.zero_grad()
        model(x).sum().backward()
        return [parameter.grad for parameter in model.parameters()]

    check(call, [(randn(4),) for _ in range(5)])


class Holder:
    def __init__(self) -> None:
        self.generator = torch.Generator()


holder = Holder()
SEED = torch.default_generator.manual_seed


def _by_map(x: Tensor) -> Tensor:
    list(map(torch.default_generator.manual_seed, [5]))
    return x + torch.rand(4)


def _by_partial(x: Tensor) -> Tensor:
    functools.partial(torch.default_generator.manual_seed, 5)()
    return x + torch.rand(4)


def _by_a_global(x: Tensor) -> Tensor:
    list(map(SEED, [5]))
    return x + torch.rand(4)


def _of_the_class(x: Tensor) -> Tensor:
    list(map(torch.Generator.manual_seed, [torch.default_generator], [5]))
    return x + torch.rand(4)


def _of_another(x: Tensor) -> Tensor:
    list(map(holder.generator.manual_seed, [5]))
    return x + torch.rand(4, generator=holder.generator)


@pytest.mark.parametrize(
    "function", [_by_map, _by_partial, _by_a_global, _of_the_class, _of_another]
)
def test_seeds_that_c_code_sets_run_eagerly(function: Callable[..., Any]) -> None:
    check(function, [(randn(4),) for _ in range(5)], recordings=None)


def test_a_saved_recording_seeds(tmp_path: Path) -> None:
    fast = hostjit.capture(between)
    for _ in range(3):
        fast(torch.zeros(4))
    hostjit.save(fast, tmp_path / "drawn.hostjit")
    loaded = hostjit.load(tmp_path / "drawn.hostjit")
    for seed in range(3):
        x, found = randn(4), []
        for run in (loaded, between):
            torch.manual_seed(seed)
            found.append((run(x), torch.get_rng_state()))
        assert_close(*found)


MODEL = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5))
GENERATOR = torch.Generator()


def _seeded_model(x: Tensor) -> Tensor:
    torch.manual_seed(7)
    return MODEL(x)


def _forked_model(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        drawn = MODEL(x)
    return drawn, MODEL(x) * torch.rand(5)


def _seeded_around_a_model(x: Tensor) -> Tensor:
    before = torch.rand(4)
    torch.manual_seed(3)
    with torch.no_grad():
        torch.manual_seed(5)
        noise = torch.rand(4)
    result = MODEL(x * before + noise)
    torch.manual_seed(9)
    GENERATOR.manual_seed(4)
    return result


def _state_that_was_read(x: Tensor) -> Tensor:
    state = torch.get_rng_state()
    first = MODEL(x)
    torch.set_rng_state(state)
    return first + MODEL(x) * 2


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize(
    "function", [_seeded_model, _forked_model, _seeded_around_a_model, _state_that_was_read]
)
def test_gradients_of_results_behind_a_seed(function: Callable[..., Any], runtime: str) -> None:
    fast = hostjit.capture(function, runtime=runtime)
    for number in range(5):
        given, found = randn(3, 4), []
        for run in (function, fast):
            torch.manual_seed(number)
            GENERATOR.manual_seed(number)
            x = given.clone().requires_grad_()
            results = run(x)
            states = torch.get_rng_state(), GENERATOR.get_state()
            loss = sum(y.square().sum() for y in (results if type(results) is tuple else [results]))
            gradients = torch.autograd.grad(loss, [x, *MODEL.parameters()])
            found.append((results, states, gradients))
        assert_close(*found)
    assert fast.captured is not None
    assert len(fast.specializations) == 1
