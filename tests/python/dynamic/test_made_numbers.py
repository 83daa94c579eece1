# SPDX-License-Identifier: Apache-2.0
"""Numbers that Python makes of open numbers before an operator takes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hostjit

FUNCTIONS: dict[str, Callable[[torch.Tensor, float], Any]] = {
    "exp": lambda x, t: x * math.exp(-t),
    "log": lambda x, t: (x * math.log(t), math.log(t) + 1),
    "whole": lambda x, t: (x * int(t), int(t)),
    "floor": lambda x, t: x[: math.floor(t) + 1] + math.ceil(t),
    "rounded": lambda x, t: (x * round(t, 1), round(t)),
    "power": lambda x, t: x * math.pow(t, 1.5),
    "of two": lambda x, t: x + math.atan2(t, 2) - math.hypot(t, t),
    "one of the other": lambda x, t: x * math.exp(math.log1p(t) * 0.5) + t,
    "quotient": lambda x, t: x * (t // 0.5) - t % 0.5,
    "binary logarithm": lambda x, t: x * math.log2(t),
    "operator without a kernel": lambda x, t: torch.nn.functional.threshold(x, math.exp(t) - 2, t),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_program_for_all_values(name: str, runtime: str) -> None:
    function = FUNCTIONS[name]
    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    x = torch.randn(7, dtype=torch.float64)
    for t in (1.5, 2.25, 0.75, 3.1, 1.1, 2.5, 0.3, 4.7, 5.2, 1.9):
        found, expected = compiled(x, t), function(x, t)
        if isinstance(expected, tuple):
            assert repr(found[1]) == repr(expected[1])
            found, expected = found[0], expected[0]
        torch.testing.assert_close(found, expected)
    # Slices of 0 and 1 elements are programs of their own.
    assert len(compiled.specializations) <= (4 if name == "floor" else 2)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore:hostjit")
def test_values_that_python_refuses(name: str) -> None:
    function = FUNCTIONS[name]
    compiled = hostjit.compile(function)
    x = torch.randn(7)
    for t in (1.5, 2.5, -1.0, 0.0, -0.0, 1e300, math.inf, math.nan, 3, True, 2.25):
        outcomes = []
        for call in (compiled, function):
            try:
                found = call(x, t)
                outcomes.append(found if isinstance(found, tuple) else (found, None))
            except (ArithmeticError, ValueError, RuntimeError, IndexError) as error:
                outcomes.append(type(error))
        if isinstance(outcomes[1], type):
            assert outcomes[0] is outcomes[1]
        else:
            torch.testing.assert_close(outcomes[0][0], outcomes[1][0], equal_nan=True)
            assert repr(outcomes[0][1]) == repr(outcomes[1][1])


def test_a_decision_on_one() -> None:
    def function(x: torch.Tensor, t: float) -> torch.Tensor:
        return x * 2 if math.exp(t) > 2 else x * math.exp(t)

    compiled = hostjit.compile(function, fallback=False)
    x = torch.randn(7)
    for t in (0.5, 0.25, 0.9, math.log(2), 0.1, 1.0):
        torch.testing.assert_close(compiled(x, t), function(x, t))


@torch.enable_grad()
def test_with_gradients(runtime: str) -> None:
    def function(x: torch.Tensor, t: float) -> torch.Tensor:
        return (x * math.exp(-t)).sin() * int(t)

    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    x, y = (torch.ones(7, requires_grad=True) for _ in range(2))
    for t in (1.5, 2.25, -3.75, 3.1, -1.1):
        x.grad = y.grad = None
        compiled(x, t).sum().backward()
        function(y, t).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    assert len(compiled.specializations) == 2


def test_a_schedule(runtime: str) -> None:
    class Noise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = 0
            self.last: torch.Tensor | None = None
            self.coefficients = [0.5, 0.25]

        def forward(self, x: torch.Tensor) -> Any:
            self.step += 1
            rate = 0.05 + 0.9 * math.exp(-self.step / 200)
            self.last = x * rate + self.coefficients[0]
            return self.last - self.coefficients[1], rate

    model, eager = Noise(), Noise()
    compiled = hostjit.compile(model, runtime=runtime, fallback=False)
    x = torch.randn(7)
    for index in range(12):
        model.coefficients[0] = eager.coefficients[0] = index / 8
        found, expected = compiled(x), eager(x)
        torch.testing.assert_close(found[0], expected[0])
        assert repr(found[1]) == repr(expected[1])
        assert model.step == eager.step and model.last is not None
        torch.testing.assert_close(model.last, eager.last)
    assert len(compiled.specializations) == 2


def test_another_list_in_the_place_of_one() -> None:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = [0.5, 2.0]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weights[0] + self.weights[-1]

    model = Weighted()
    compiled = hostjit.compile(model, fallback=False)
    x = torch.randn(7)

    def compare() -> None:
        expected = x * model.weights[0] + model.weights[-1]
        torch.testing.assert_close(compiled(x), expected, rtol=0, atol=0)

    for value in (0.5, 0.25, 0.75, -3.0):
        model.weights[0] = value
        compare()
    model.weights[1] = 7.0
    compare()
    model.weights = [1.5, 2.5]
    compare()
    model.weights[0] = 3.5
    compare()
    model.weights.append(4.5)
    compare()
    model.weights[0] = 3
    compare()
    model.weights[:] = [1.0]
    compare()


def test_saving_a_function_that_returns_numbers(tmp_path: Path) -> None:
    def function(x: torch.Tensor, t: float, n: int) -> Any:
        return x * math.exp(t), t * 0.5 + 1, n + 1

    compiled = hostjit.compile(function, fallback=False)
    x = torch.randn(7)
    for t, n in ((0.5, 2), (1.5, 3), (2.5, 4)):
        compiled(x, t, n)
    hostjit.save(compiled, tmp_path / "numbers.hostjit")
    loaded = hostjit.load(tmp_path / "numbers.hostjit")
    for t, n in ((0.5, 2), (-1.25, 7), (3.0, -4)):
        found, expected = loaded(x, t, n), function(x, t, n)
        torch.testing.assert_close(found[0], expected[0])
        assert repr(found[1:]) == repr(expected[1:])
