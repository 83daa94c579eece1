# SPDX-License-Identifier: Apache-2.0
"""Recorded calls that seed a generator which they are given, or make one."""

from __future__ import annotations

import operator
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from recorded_beside_eager import assert_same
from torch import Tensor
from torch.testing import assert_close

import hostjit

Function = Callable[[Tensor, torch.Generator], Any]


def seeded(x: Tensor, g: torch.Generator) -> Tensor:
    return x + torch.rand(3, generator=g.manual_seed(3))


def seeded_between(x: Tensor, g: torch.Generator) -> tuple[Tensor, Tensor]:
    drawn = torch.randn(3, generator=g)
    g.manual_seed(5)
    return drawn, x * torch.rand(3, generator=g) + torch.rand(3, generator=g)


def seeded_last(x: Tensor, g: torch.Generator) -> Tensor:
    drawn = x + torch.rand(3, generator=g)
    torch.Generator.manual_seed(g, 2**64 - 1)
    return drawn


def seeded_twice(x: Tensor, g: torch.Generator) -> Tensor:
    g.manual_seed(1)
    g.manual_seed(-2)
    return (x * 0).normal_(generator=g) + x


def read_behind_a_seed(x: Tensor, g: torch.Generator) -> Tensor:
    g.manual_seed(4)
    is_large = torch.rand((), generator=g) > 0.1
    return x + torch.rand(3, generator=g) if is_large else x


def of_its_own(x: Tensor, g: torch.Generator) -> Tensor:
    own = torch.Generator().manual_seed(0)
    return x + torch.randn(3, generator=own) * torch.rand(3, generator=own)


def never_seeded(x: Tensor, g: torch.Generator) -> Tensor:
    return x + torch.rand(3, generator=torch.Generator())


def two_of_its_own(x: Tensor, g: torch.Generator) -> Tensor:
    first, second = torch.Generator().manual_seed(1), torch.Generator("cpu").manual_seed(1)
    drawn = torch.rand(3, generator=first) - torch.rand(3, generator=second)
    first.manual_seed(9)
    return x + drawn + torch.rand(3, generator=first) + torch.rand(3, generator=second)


def beside_others(x: Tensor, g: torch.Generator) -> Tensor:
    own = torch.Generator().manual_seed(0)
    drawn = torch.rand(3, generator=own) + torch.rand(3, generator=g) + torch.rand(3)
    return x * torch.bernoulli(x.sigmoid(), generator=own) + drawn


def in_place(x: Tensor, g: torch.Generator) -> Tensor:
    return x.uniform_(generator=torch.Generator().manual_seed(7))


def in_a_try(x: Tensor, g: torch.Generator) -> Tensor:
    try:
        return x + torch.rand(3, generator=torch.Generator()) * torch.randn(3) + g.device.index
    except TypeError:
        return x + torch.rand(3, generator=g)


FUNCTIONS = [
    *(seeded, seeded_between, seeded_last, seeded_twice, read_behind_a_seed),
    *(of_its_own, never_seeded, two_of_its_own, beside_others, in_place, in_a_try),
]


def _beside_eager(function: Function, *, is_recorded: bool = True, **options: Any) -> Any:
    """Compare calls, and what they leave in the generators, with those of eager."""
    generators = [torch.Generator().manual_seed(5) for _ in "ab"]
    fast = hostjit.capture(lambda x: function(x, generators[1]), **options)
    for number in range(7):
        torch.manual_seed(number)
        given = torch.randn(3)
        results = []
        for run, generator in ((function, generators[0]), (fast, generators[1])):
            x = given.clone()
            if number == 4:
                torch.rand(number, generator=generator)
            torch.manual_seed(number)
            with warnings.catch_warnings():
                warnings.simplefilter("error" if is_recorded else "ignore")
                found = run(x) if run is fast else run(x, generator)
            results.append((found, x, generator.get_state(), torch.get_rng_state()))
        assert_same(results[1], results[0])
    assert (fast.captured is not None) == is_recorded
    return fast


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_seeds_of_generators(function: Function, runtime: str) -> None:
    fast = _beside_eager(function, runtime=runtime)
    assert len(fast.specializations) == 1
    _beside_eager(function, runtime=runtime, prune=True)


def test_each_seed_has_a_recording() -> None:
    def draw(x: Tensor, seed: int) -> Tensor:
        return x + torch.rand(3, generator=torch.Generator().manual_seed(seed))

    fast = hostjit.capture(draw)
    for seed in (1, 1, 1, 2, 2, 1, 2):
        x = torch.ones(3)
        assert torch.equal(fast(x, seed), draw(x, seed))
    assert len(fast.specializations) == 2


def test_gradients_of_what_is_computed_with_seeded_draws() -> None:
    weights = [torch.ones(3, requires_grad=True) for _ in "ab"]
    shared = torch.Generator()

    def function(weight: Tensor, x: Tensor) -> Tensor:
        own = torch.Generator().manual_seed(1)
        torch.rand(2, generator=own)  # of no use but to move it on
        noise = torch.rand(3, generator=own) + torch.rand(3, generator=shared.manual_seed(2))
        return (weight * x * noise).sin() * torch.rand(3, generator=own)

    fast = hostjit.capture(lambda x: function(weights[1], x))
    for _ in range(4):
        x = torch.randn(3)
        function(weights[0], x).sum().backward()
        fast(x).sum().backward()
        assert_close(weights[1].grad, weights[0].grad)
    assert fast.captured is not None


def test_threads_have_generators_of_their_own() -> None:
    def draw(x: Tensor) -> Tensor:
        own = torch.Generator().manual_seed(0)
        for _ in range(20):
            x = x + torch.rand(3, generator=own)
        return x

    fast = hostjit.capture(draw)
    x = torch.zeros(3)
    for _ in range(2):
        fast(x)
    expected, wrong = draw(x), []

    def call() -> None:
        for _ in range(200):
            if not torch.equal(fast(x), expected):
                wrong.append(True)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def _asks_for_the_seed(x: Tensor, g: torch.Generator) -> Tensor:
    return x + g.initial_seed()


def _seeded_by_the_system(x: Tensor, g: torch.Generator) -> Tensor:
    own = torch.Generator()
    own.seed()
    own.manual_seed(3)
    return x + torch.rand(3, generator=own)


def _set_to_a_state(x: Tensor, g: torch.Generator) -> Tensor:
    own = torch.Generator()
    own.set_state(g.get_state())
    return x + torch.rand(3, generator=own)


@pytest.mark.parametrize("function", [_asks_for_the_seed, _seeded_by_the_system, _set_to_a_state])
def test_other_states_run_eagerly(function: Function) -> None:
    _beside_eager(function, is_recorded=False)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("first", [1.0, -1.0])
def test_errors_of_draws_that_are_handled(first: float) -> None:
    def draw(x: Tensor) -> Tensor:
        try:
            return torch.multinomial(x, 2, generator=torch.Generator())
        except RuntimeError:
            return torch.zeros(2)

    fast = hostjit.capture(draw)
    for value in (first, first, first, -first, first):
        x = torch.full((4,), value)
        assert torch.equal(fast(x), draw(x))


def test_a_generator_that_is_returned_runs_eagerly() -> None:
    def call(x: Tensor) -> tuple[Tensor, torch.Generator]:
        own = torch.Generator().manual_seed(0)
        return x + torch.rand(3, generator=own), own

    fast = hostjit.capture(call)
    with pytest.warns(UserWarning, match="runs eagerly"):
        found = [fast(torch.zeros(3))[1] for _ in range(4)]
    assert len({id(generator) for generator in found}) == 4
    assert all(torch.equal(x.get_state(), found[0].get_state()) for x in found)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("function", FUNCTIONS)
def test_compiled_functions_that_run_in_parts(function: Function) -> None:
    generators = [torch.Generator().manual_seed(5) for _ in "ab"]
    fast = hostjit.compile(function)
    for number in range(8):
        x = torch.randn(3)
        results = []
        for run, generator in zip((function, fast), generators, strict=True):
            torch.manual_seed(number)
            results.append((run(x.clone(), generator), generator.get_state()))
        assert_same(results[1], results[0])


class _Slots:
    __slots__ = ("generator",)

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(5)


HELD = {"in": [_Slots()], "plain": torch.Generator().manual_seed(5)}


@pytest.mark.parametrize(
    "find",
    [
        lambda: HELD["in"][0].generator,
        lambda: globals()["HELD"]["plain"],
        lambda: getattr(HELD["in"][0], "gene" + "rator"),
        lambda: vars(sys.modules[__name__])["HELD"]["plain"],
        lambda: operator.itemgetter("plain")(HELD),
        lambda: next(iter(HELD["in"])).generator,
    ],
)
@pytest.mark.filterwarnings("ignore:hostjit")
def test_a_generator_that_is_found_is_not_one_that_is_made(find: Any) -> None:
    def call(x: Tensor) -> Tensor:
        return x + torch.rand(3, generator=find().manual_seed(3))

    fast = hostjit.capture(call)
    for _ in range(5):
        expected = torch.rand(3, generator=torch.Generator().manual_seed(3))
        assert torch.equal(fast(torch.zeros(3)), expected)
        after = find().get_state()
        torch.rand(3, generator=find())
        fast(torch.zeros(3))
        assert torch.equal(find().get_state(), after)


def test_a_recording_with_a_seeded_generator_is_not_saved(tmp_path: Path) -> None:
    generator = torch.Generator()

    def call(x: Tensor) -> Tensor:
        generator.manual_seed(3)
        return x * 2

    fast = hostjit.capture(call)
    for _ in range(2):
        fast(torch.ones(3))
    with pytest.raises(hostjit.Error, match="generator"):
        hostjit.save(fast, tmp_path / "program")
