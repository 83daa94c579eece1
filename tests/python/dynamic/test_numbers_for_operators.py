# SPDX-License-Identifier: Apache-2.0
"""Open numbers that operators take: computed ones, those of gradients, and ints of many bits."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import hostjit

VALUES = tuple(0.1 + 0.07 * index for index in range(12))
MATRIX = torch.linspace(-1, 1, 64).view(8, 8)

OPERATORS: dict[str, Callable[[torch.Tensor, float], Any]] = {
    "a product": lambda x, t: torch.addmm(x[0], x, MATRIX, beta=t, alpha=1 - t),
    "products": lambda x, t: torch.baddbmm(x[None], x[None], MATRIX[None], beta=t, alpha=t * t),
    "a product with a vector": lambda x, t: torch.addmv(x[0], x, x[1], beta=1 / t, alpha=t),
    "an operator without a kernel": lambda x, t: torch.nn.functional.hardshrink(x, t * 0.5 + 0.1),
    "interpolation": lambda x, t: torch.lerp(x, x.detach() * 2, t) + x.detach().lerp(x, 1 - t),
    "powers": lambda x, t: (
        (x.abs() + 0.1) ** t + (x * x + 0.1).pow(-t) + t**x + torch.pow(x.abs(), t)
    ),
    "samples": lambda x, t: x * t**0.5 + (1 - t) ** 0.5 * x.sin(),
}


def outcome(call: Callable[..., Any], x: torch.Tensor, t: float) -> list[torch.Tensor]:
    x = x.clone().requires_grad_(torch.is_grad_enabled())
    result = call(x, t)
    if not result.requires_grad:
        return [result]
    return [result.detach(), *torch.autograd.grad(result.sin().sum(), x)]


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_one_program_for_all_values(name: str, gradients: bool, runtime: str) -> None:
    function, x = OPERATORS[name], torch.randn(8, 8)
    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    with torch.set_grad_enabled(gradients):
        for t in VALUES:
            torch.testing.assert_close(outcome(compiled, x, t), outcome(function, x, t))
    assert len(compiled.specializations) == 2


@torch.enable_grad()
def test_gradients_of_powers_at_the_ends(runtime: str) -> None:
    def function(x: torch.Tensor, t: float) -> torch.Tensor:
        return x**t

    compiled = hostjit.compile(function, runtime=runtime)
    for t in (0.5, 0.25, 1.0, 2.0, 3.0, 0.0, -1.0, -0.5):
        found, expected = (
            torch.autograd.grad(call(x, t).sum(), x)
            for call in (compiled, function)
            for x in [torch.tensor([0.0, 1.0, 2.5, -1.0, -0.0], requires_grad=True)]
        )
        torch.testing.assert_close(found, expected, equal_nan=True)


@torch.enable_grad()
def test_second_derivatives_of_powers() -> None:
    def function(x: torch.Tensor, t: float) -> torch.Tensor:
        return x**t + t**x

    compiled = hostjit.compile(function)
    for t in VALUES[:4]:
        found = []
        for call in (compiled, function):
            x = torch.linspace(0.5, 2.0, 5, requires_grad=True)
            (first,) = torch.autograd.grad(call(x, t).sum(), x, create_graph=True)
            found.append(torch.autograd.grad(first.sum(), x))
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("make", [torch.tensor, torch.as_tensor])
@pytest.mark.parametrize("dtype", [None, torch.float64, torch.int64])
@pytest.mark.parametrize("values", [(3, 5, -7, 100, 2**29), (0.5, 1.5, -2.25, 3.75, 1e6)])
def test_a_tensor_of_a_number(make: Any, dtype: Any, values: Any, runtime: str) -> None:
    def function(x: torch.Tensor, t: Any) -> tuple[torch.Tensor, ...]:
        number = make(t, dtype=dtype)
        return x * number, number, x + make(t + 1)

    compiled, x = hostjit.compile(function, runtime=runtime, fallback=False), torch.randn(7)
    for t in values:
        torch.testing.assert_close(compiled(x, t), function(x, t))
    assert len(compiled.specializations) == 2


NOW = 1_700_000_000_123_456_789
INTS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "seconds": lambda x, n: (x * (n * 1e-9), n),
    "since": lambda x, n: (x * ((n - NOW) / 1e9), n - NOW),
    "remainder": lambda x, n: (x * (n % 1000), n // 1000),
    "of ints": lambda x, n: ((x * 10).long() + n, n * n),
    "comparison": lambda x, n: (x * n > 0, -n),
}


@pytest.mark.parametrize("name", INTS)
def test_ints_of_63_bits(name: str, runtime: str) -> None:
    function, x = INTS[name], torch.randn(7, dtype=torch.float64)
    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    for index in range(12):
        n = NOW + index * 10_000_019
        found, expected = compiled(x, n), function(x, n)
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
    assert len(compiled.specializations) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int32, torch.float16])
@pytest.mark.parametrize("function", [operator.add, operator.mul])
@pytest.mark.filterwarnings("ignore:hostjit")
def test_ints_that_do_not_fit(dtype: torch.dtype, function: Any) -> None:
    x = (torch.arange(5) - 2).to(dtype)
    compiled = hostjit.compile(lambda x, n: function(x, n * 3))
    for n in (2**29, 2**30, 2**31 + 5, 2**40, -(2**52) - 1, 2**61 + 3, 2**62, 2**63 - 1, 2**70):
        outcomes = []
        for call in (compiled, lambda x, n: function(x, n * 3)):
            try:
                outcomes.append(call(x, n))
            except (RuntimeError, OverflowError) as error:
                outcomes.append(type(error))
        if isinstance(outcomes[1], type):
            assert outcomes[0] is outcomes[1]
        else:
            assert torch.equal(*outcomes)


DIVISIONS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "remainder": lambda x, n: x % n + x,
    "floor": lambda x, n: x // n + x,
    "fmod": torch.fmod,
    "truncated": lambda x, n: torch.div(x, n, rounding_mode="trunc"),
}


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("name", DIVISIONS)
def test_divisions_of_integers(name: str, runtime: str) -> None:
    """A program is for any divisor but 0, for which eager raises."""
    function, x = DIVISIONS[name], torch.arange(-4, 4)
    compiled = hostjit.compile(function, runtime=runtime)
    for n in range(3, 12):
        torch.testing.assert_close(compiled(x, n), function(x, n))
    assert len(compiled.specializations) == 2
    for n in (0, 7, 0, 1, -3, -1, 2**40):
        if n == 0:
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                compiled(x, n)
        else:
            torch.testing.assert_close(compiled(x, n), function(x, n))
