# SPDX-License-Identifier: Apache-2.0
"""Random numbers of Python, NumPy and torch are those of eager calls, and so is what comes next."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit
from hostjit.capturing.errors import CaptureFailure

pytestmark = pytest.mark.filterwarnings("ignore:hostjit", "ignore:Dynamo does not know")


def by_uniform(x: Tensor) -> Tensor:
    return x * random.uniform(0.5, 1.5)


def by_random(x: Tensor) -> Tensor:
    return x * random.random()


def by_integers(x: Tensor) -> tuple[Tensor, int, float]:
    return x * random.randint(0, 5), random.randrange(9), random.randint(1, 9) / 7


def by_integer(x: Tensor) -> Tensor:
    return x * random.randint(0, 5)


def by_choice(x: Tensor) -> tuple[Tensor, int]:
    return x * random.randint(0, 5), random.choice([1, 2, 3])


def by_index(x: Tensor) -> Tensor:
    return x[random.randint(0, 1)] * 2


def by_branch(x: Tensor) -> Tensor:
    if random.randint(0, 9) < 5:
        x = x.flip(-1)
    return x * random.uniform(0.5, 1.5)


def by_shuffle(x: Tensor) -> tuple[Tensor, list[int], list[int]]:
    order = list(range(6))
    random.shuffle(order)
    return x * order[0], order, random.sample(order, 3)


def by_numpy(x: Tensor) -> tuple[Tensor, float, int]:
    return x + np.random.rand(), np.random.randn(), np.random.randint(100)


def by_torch(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * torch.rand(()), torch.randn(3) + x[0]


def after_a_break(x: Tensor) -> tuple[Tensor, int, float]:
    y = x + random.randint(0, 100)
    print(end="")
    return y, random.randint(0, 100), random.gauss(0, 1)


FUNCTIONS = [
    *(by_uniform, by_random, by_integers, by_integer, by_choice, by_index, by_branch),
    *(by_shuffle, by_numpy, by_torch, after_a_break),
]
# A number takes part in type promotion as no tensor does.
OPERANDS = [
    torch.ones(2),
    torch.ones(2, dtype=torch.int64),
    torch.ones(2, dtype=torch.float64),
    torch.ones(2, dtype=torch.bfloat16),
    torch.ones(2, 1, dtype=torch.int8)[:, 0],
]


def seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def numbers_next() -> tuple[float, float, float]:
    return random.random(), np.random.rand(), torch.rand(()).item()


def stream(calls: list[Callable[..., Any]], x: Tensor) -> list[Any]:
    """Results of calls in a row, and the numbers that each generator gives between them."""
    seed(3)
    return [(call(x), numbers_next()) for call in calls]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_numbers_are_those_of_eager_calls(function: Callable[..., Any]) -> None:
    fast = hostjit.compile(function)
    with torch.no_grad():
        for x in OPERANDS:
            expected = stream([function] * 6, x)
            # The calls of one stream: the first of a signature, later ones, eager ones.
            assert_close(stream([fast, fast, function, fast, function, fast], x), expected)
            assert_close(stream([function, fast] * 3, x), expected)


@pytest.mark.parametrize("function", [by_uniform, by_integer])
def test_a_number_does_not_widen_a_tensor_without_dims(function: Callable[..., Any]) -> None:
    for dtype in (torch.float32, torch.int32, torch.float16):
        x = torch.ones((), dtype=dtype)
        assert_close(stream([hostjit.compile(function)] * 3, x), stream([function] * 3, x))


class OwnGenerator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = random.Random(3)

    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        return x * self.generator.random(), self.generator.randint(0, 5)


def test_a_generator_of_ones_own_goes_on_as_in_eager_calls() -> None:
    eager, compiled = OwnGenerator(), OwnGenerator()
    fast = hostjit.compile(compiled)
    x = torch.ones(2)
    for _ in range(4):
        assert_close(fast(x), eager(x))
        assert compiled.generator.getstate() == eager.generator.getstate()


def test_without_fallback_the_error_says_where_the_number_is_drawn() -> None:
    with pytest.raises(hostjit.CaptureError, match="random") as caught:
        hostjit.compile(by_uniform, fallback=False)(torch.ones(2))
    assert caught.value.failure is CaptureFailure.GRAPH_BREAK
    assert __file__ in str(caught.value.where)


def test_gradients_where_a_number_is_drawn_are_eagers() -> None:
    fast = hostjit.compile(by_uniform)
    for number in range(3):
        x, y = (torch.ones(2, requires_grad=True) for _ in range(2))
        for call, given in ((by_uniform, x), (fast, y)):
            seed(number)
            call(given).sum().backward()
        assert_close(y.grad, x.grad)


class MakesItsWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear: nn.Module | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.linear is None:
            self.linear = nn.Linear(5, 3)
        return self.linear(x)


class BehindABreak(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.LazyLinear(3)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 1
        print(end="")
        return self.linear(x)


def lazy_sequence() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyBatchNorm1d(), nn.LazyLinear(2))


@pytest.mark.parametrize(
    "make", [lambda: nn.LazyLinear(3), lazy_sequence, MakesItsWeight, BehindABreak]
)
def test_parameters_made_by_the_first_call_are_eagers(make: Callable[[], nn.Module]) -> None:
    x = torch.ones(2, 5)
    eager, compiled = make(), make()
    fast = hostjit.compile(compiled)
    with torch.no_grad():
        assert_close(stream([fast] * 3, x), stream([eager] * 3, x))
    assert_close(dict(compiled.state_dict()), dict(eager.state_dict()))


def test_a_lazy_module_is_compiled_from_its_second_call_on() -> None:
    fast = hostjit.compile(nn.LazyLinear(3), fallback=False)
    with torch.no_grad():
        for _ in range(3):
            fast(torch.ones(2, 5))
    assert len(fast.specializations) == 1


def attend_and_drop(x: Tensor, p: float) -> Tensor:
    return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=p)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("function", [nn.functional.dropout, torch.alpha_dropout, attend_and_drop])
@pytest.mark.parametrize("probabilities", [(1.0, 1.0), (0.1, 0.2, 0.3, 1.0, 0.4, 0.0)])
def test_dropout_of_all_draws_as_eager_does(
    function: Callable[..., Any], probabilities: tuple[float, ...], gradients: bool
) -> None:
    def drop(x: Tensor, p: float) -> Tensor:
        found: Tensor = function(x, p, True) if function is torch.alpha_dropout else function(x, p)
        return found

    fast = hostjit.compile(drop)
    for p in probabilities:
        x = torch.rand(2, 2, 4, 4, requires_grad=gradients)
        found, expected = (stream([functools.partial(call, p=p)], x) for call in (fast, drop))
        assert_close(found, expected)
