# SPDX-License-Identifier: Apache-2.0
"""Recordings draw from the generators that operators are given, as eager mode does."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from recorded_beside_eager import assert_same

import hostjit

Function = Callable[..., Any]

# Of a tensor of three elements and a generator.
DRAWS: dict[str, Function] = {
    "rand": lambda x, g: x * torch.rand(3, generator=g),
    "randn": lambda x, g: x * torch.randn(3, 2, 3, generator=g),
    "randint": lambda x, g: x * torch.randint(0, 10, (3,), generator=g),
    "randperm": lambda x, g: x[torch.randperm(3, generator=g)],
    "normal_of_tensors": lambda x, g: torch.normal(x, x.abs() + 1, generator=g),
    "normal_of_tensor_and_number": lambda x, g: torch.normal(x, 2.0, generator=g),
    "poisson": lambda x, g: torch.poisson(x.abs() * 5, generator=g),
    "multinomial": lambda x, g: torch.multinomial(x.softmax(0), 2, generator=g),
    "bernoulli": lambda x, g: torch.bernoulli(x.sigmoid(), generator=g),
    "bernoulli_in_place": lambda x, g: (x * 0).bernoulli_(x.sigmoid(), generator=g),
    "uniform": lambda x, g: (x * 0).uniform_(generator=g),
    "exponential": lambda x, g: (x * 0).exponential_(generator=g),
    "cauchy": lambda x, g: (x * 0).cauchy_(generator=g),
    "geometric": lambda x, g: (x * 0).geometric_(0.3, generator=g),
    "log_normal": lambda x, g: (x * 0).log_normal_(generator=g),
    "random": lambda x, g: (x * 0).random_(0, 9, generator=g),
    "argument": lambda x, g: x.normal_(1.0, 2.0, generator=g),
    "with_gaps": lambda x, g: (x.repeat(4)[::2].normal_(generator=g), x),
    "transposed": lambda x, g: x.repeat(3, 2).t().uniform_(generator=g),
    "initialised": lambda x, g: torch.nn.init.xavier_uniform_(torch.empty(3, 3), generator=g) @ x,
    "twice": lambda x, g: torch.rand(3, generator=g) - torch.rand(3, generator=g) + x,
    "beside_the_default": lambda x, g: torch.rand(3, generator=g) - torch.rand(3) + x,
    "the_default": lambda x, g: x * torch.rand(3, generator=torch.default_generator),
    "read_elsewhere": lambda x, g: (x if x.sum() > 0 else -x) + torch.rand(3, generator=g),
    "read": lambda x, g: x if (torch.rand(3, generator=g) + x).sum() > 0 else -x,
}


def _beside_eager(
    make: Callable[[torch.Generator], Function],
    between: Callable[[torch.Generator, int], object] = lambda g, i: None,
    *,
    is_recorded: bool = True,
    runtime: str = "jit",
) -> None:
    eager_generator, generator = (torch.Generator().manual_seed(5) for _ in "ab")
    eager, fast = make(eager_generator), hostjit.capture(make(generator), runtime=runtime)
    for number in range(7):
        between(eager_generator, number)
        between(generator, number)
        torch.manual_seed(number)
        x = torch.randn(3)
        given = x.clone()
        expected = eager(given)
        state = torch.get_rng_state()
        torch.manual_seed(number)
        torch.randn(3)
        with warnings.catch_warnings():
            warnings.simplefilter("error" if is_recorded else "ignore")
            found = fast(x)
        assert_same((found, x), (expected, given))
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(generator.get_state(), eager_generator.get_state())
    assert (fast.captured is not None) == is_recorded


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("name", list(DRAWS))
def test_a_replay_draws_what_eager_draws(name: str, runtime: str) -> None:
    function = DRAWS[name]
    _beside_eager(lambda g: lambda x: function(x, g), runtime=runtime)


def test_others_may_seed_it_and_draw_from_it() -> None:
    def between(generator: torch.Generator, number: int) -> None:
        if number in (3, 5):
            generator.manual_seed(number)
        torch.rand(number + 1, generator=generator)

    _beside_eager(lambda g: lambda x: x * torch.rand(3, generator=g), between)


@pytest.mark.parametrize("make", [lambda g: g.clone_state(), copy.copy, copy.deepcopy])
def test_a_copy_of_a_generator_is_not_frozen(make: Any) -> None:
    _beside_eager(lambda g: lambda x: x * torch.rand(3, generator=make(g)), is_recorded=False)


def test_each_argument_has_a_recording() -> None:
    def function(x, generator=None):
        return x + torch.rand(3, generator=generator)

    fast = hostjit.capture(function)
    generators, others = ([torch.Generator().manual_seed(i) for i in range(2)] for _ in "ab")
    for number in range(8):
        torch.manual_seed(number)
        expected = function(torch.zeros(3), generator=[*generators, None][number % 3])
        torch.manual_seed(number)
        found = fast(torch.zeros(3), generator=[*others, None][number % 3])
        assert torch.equal(found, expected)
    assert len(fast.specializations) == 3


def test_an_attribute_may_be_replaced() -> None:
    class Noise(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.generator = torch.Generator().manual_seed(1)

        def forward(self, x):
            return x + torch.randn(3, generator=self.generator)

    eager, module = Noise(), Noise()
    fast = hostjit.capture(module)
    for number in range(8):
        if number == 4:
            for noise in (eager, module):
                noise.generator = torch.Generator().manual_seed(2)
        assert torch.equal(fast(torch.ones(3)), eager(torch.ones(3)))
    assert len(fast.specializations) == 2


def test_gradients_of_what_is_computed_with_draws() -> None:
    weights = [torch.ones(3, requires_grad=True) for _ in "ab"]
    generators = [torch.Generator().manual_seed(1) for _ in "ab"]

    def make(weight, generator):
        return lambda x: (weight * x * torch.rand(3, generator=generator)).sin()

    eager, function = map(make, weights, generators)
    fast = hostjit.capture(function)
    for _ in range(4):
        x = torch.randn(3)
        eager(x).sum().backward()
        fast(x).sum().backward()
        torch.testing.assert_close(weights[1].grad, weights[0].grad)
    assert fast.captured is not None


def test_a_recording_that_draws_from_a_generator_is_not_saved(tmp_path: Path) -> None:
    generator = torch.Generator()
    fast = hostjit.capture(lambda x: x * torch.rand(3, generator=generator))
    for _ in range(2):
        fast(torch.ones(3))
    with pytest.raises(hostjit.Error, match="draws from a generator that an operator is given"):
        hostjit.save(fast, tmp_path / "program")
