# SPDX-License-Identifier: Apache-2.0
"""Floats among the arguments that differ from call to call: one program for all of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import many_calls
import pytest
import torch
from torch.nn import functional

import hostjit

check = functools.partial(many_calls.check, programs=2)

STEPS = (0.1, 0.25, -0.3, 7.5, 1.0, 0.0)


def test_a_step_of_an_integrator(runtime: str) -> None:
    def step(x: torch.Tensor, v: torch.Tensor, dt: float) -> tuple[torch.Tensor, ...]:
        v = v - dt * x.sin() - 0.1 * v * dt
        return x + dt * v, v

    x, v = torch.randn(7), torch.randn(7)
    compiled = check(step, [(x, v, dt) for dt in STEPS], runtime=runtime)
    program = compiled.specializations[0].program
    assert program is not None and program.num_rows == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_operators_that_take_a_number(runtime: str, dtype: torch.dtype) -> None:
    def function(x: torch.Tensor, t: float) -> tuple[torch.Tensor, ...]:
        return (
            torch.add(x, x, alpha=t),
            torch.sub(x, 1.5, alpha=t),
            torch.addcmul(x, x, x, value=t),
            functional.leaky_relu(x, t),
            functional.elu(x, t),
            functional.softplus(x, t + 1.0),
            torch.lerp(x, x + 1, t),
            x.clamp(max=t),
            torch.full((3,), t, dtype=x.dtype),
            torch.where(x > t, x, t),
            x / (t + 10.0),
            x.fmod(t + 10.0),
        )

    x = torch.randn(9).to(dtype)
    check(function, [(x, t) for t in (0.125, 0.25, 0.75, 0.5)], runtime=runtime)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_powers_by_numbers_with_roots_of_their_own(runtime: str, dtype: torch.dtype) -> None:
    def function(x: torch.Tensor, t: float) -> torch.Tensor:
        return x**t

    x = torch.tensor([0.0, -0.0, 1, 2.5, math.inf, -math.inf, math.nan, -1]).to(dtype)
    compiled = hostjit.compile(function, runtime=runtime)
    for t in (0.1, 0.2, 0.5, -0.5, 1.0, 2.0, 3.0, -1.0, -2.0, 0.0):
        torch.testing.assert_close(compiled(x, t), function(x, t), equal_nan=True)
    assert len(compiled.specializations) == 2


def test_floats_are_computed_in_the_order_of_python(runtime: str) -> None:
    def function(x: torch.Tensor, t: float) -> tuple[torch.Tensor, ...]:
        return x * ((t + 1e16) - 1e16), x * ((t * 0.1) * 3.0), x * (math.sin(t) + max(t, 0.5))

    x = torch.randn(5, dtype=torch.float64)
    compiled = hostjit.compile(function, runtime=runtime)
    for t in STEPS:
        exact = zip(compiled(x, t)[:2], function(x, t)[:2], strict=True)
        assert all(torch.equal(found, expected) for found, expected in exact)
        torch.testing.assert_close(compiled(x, t), function(x, t), rtol=1e-14, atol=0)


def test_a_decision_makes_a_program_for_either_side(runtime: str) -> None:
    def function(x: torch.Tensor, t: float) -> torch.Tensor:
        return x + t if t > 0.5 else x - t

    x = torch.randn(5)
    calls = [(x, t) for t in (0.1, 0.2, 0.3, 0.7, 0.8, 0.5, 0.05, 0.9, math.nextafter(0.5, 1))]
    check(function, calls, programs=3, runtime=runtime)


@pytest.mark.filterwarnings("ignore:hostjit")  # Dynamo fails on OverflowError
@pytest.mark.parametrize(
    ("function", "raising"),
    [
        (lambda x, t: x * (1 / t), [0.0]),
        (lambda x, t: x * (t % 2.0) / (3.0 % t), [0.0]),
        (lambda x, t: x * math.sqrt(t), [-1.0, -1e-300]),
        (lambda x, t: x * math.asin(t), [1.5, -2.0]),
        (lambda x, t: x * math.cosh(t), [1000.0]),
        (lambda x, t: x * t**3, [1e200]),
        (lambda x, t: x * t**-2, [0.0]),
    ],
)
def test_what_python_refuses_raises(
    function: Callable[..., torch.Tensor], raising: list[float]
) -> None:
    x = torch.randn(4, dtype=torch.float64)
    compiled = hostjit.compile(function)
    for t in (0.25, 0.5, 0.75, *raising, 0.3):
        try:
            expected = function(x, t)
        except (ArithmeticError, ValueError) as error:
            with pytest.raises(type(error)):
                compiled(x, t)
        else:
            torch.testing.assert_close(compiled(x, t), expected)


def test_infinity_and_what_a_type_does_not_hold(runtime: str) -> None:
    def function(x: torch.Tensor, t: float) -> torch.Tensor:
        return x + t

    x = torch.randn(5).half()
    compiled = hostjit.compile(function, runtime=runtime)
    for t in (1.0, 2.0, math.inf, -math.inf, 70000.0, 3.0, math.nan, 1e300):
        torch.testing.assert_close(compiled(x, t), function(x, t), equal_nan=True)
    filled = hostjit.compile(lambda x, t: torch.full_like(x, t), runtime=runtime)
    for t in (1.0, 2.0, 3.0):
        filled(x, t)
    with pytest.raises(RuntimeError, match="overflow"):
        filled(x, 1e300)


@pytest.mark.parametrize(
    ("dtype", "numbers", "refused"),
    [
        (torch.uint8, (1.5, 2.5, 3.5), (300.0, -1.5)),
        (torch.int32, (1.5, 2.5, 3.5), (1e10,)),
        (torch.int64, (1.5, 2.5, 3.5), (1e30,)),
        (torch.float16, (1, 2, 3), (70000, -70000)),
    ],
)
def test_numbers_that_a_type_does_not_hold_raise(
    dtype: torch.dtype, numbers: tuple[float, ...], refused: tuple[float, ...], runtime: str
) -> None:
    def function(x: torch.Tensor, t: float) -> tuple[torch.Tensor, torch.Tensor]:
        return x.masked_fill(x > 1, t), torch.full_like(x, t)

    x = torch.arange(4).to(dtype)
    compiled = hostjit.compile(function, runtime=runtime)
    for t in numbers:
        torch.testing.assert_close(compiled(x, t), function(x, t))
    assert len(compiled.specializations) == 2  # of the first number, and of any
    for t in refused:
        with pytest.raises(RuntimeError, match="overflow"):
            function(x, t)
        with pytest.raises(RuntimeError, match="overflow"):
            compiled(x, t)


def test_floats_that_become_something_else(runtime: str) -> None:
    def function(x: torch.Tensor, t: float) -> tuple[torch.Tensor, float]:
        return x[: int(t)] * t, t * 2

    x = torch.randn(9)
    check(function, [(x, t) for t in (1.1, 2.2, 3.7)], programs=2, runtime=runtime)


def test_integer_tensors(runtime: str) -> None:
    def function(x: torch.Tensor, t: float) -> tuple[torch.Tensor, ...]:
        return x + t, x * t, x.sum() * t, x // t, x > t

    check(function, [(torch.arange(6), t) for t in (0.5, 1.5, -2.5, 300.0)], runtime=runtime)


def test_operators_without_kernels(runtime: str) -> None:
    def function(x: torch.Tensor, t: float) -> torch.Tensor:
        return functional.hardshrink(x, t) + torch.special.zeta(x.abs() + 2, t)

    check(function, [(torch.randn(6), t) for t in (1.5, 2.25, 1.75)], runtime=runtime)


def test_floats_in_containers_and_beside_other_numbers(runtime: str) -> None:
    def function(x: torch.Tensor, options: dict[str, Any], *, n: int) -> torch.Tensor:
        return x[:n] * options["scale"] + options["shift"][0] / n

    compiled = hostjit.compile(function, runtime=runtime)
    x = torch.randn(12)
    for number, scale in enumerate((0.5, 0.75, 0.9, 3.5)):
        options = {"scale": scale, "shift": [scale - 1, "fixed"]}
        found = compiled(x, options, n=number + 2)
        torch.testing.assert_close(found, function(x, options, n=number + 2))
    assert len(compiled.specializations) == 2


def test_any_shape_and_any_float(runtime: str) -> None:
    def function(x: torch.Tensor, temperature: float) -> torch.Tensor:
        return (x / temperature).softmax(-1)

    calls = [(torch.randn(n, 2 * n), 1.0 / n) for n in (2, 3, 5, 9)]
    check(function, calls, runtime=runtime)


def test_an_int_where_a_float_was_is_another_call(runtime: str) -> None:
    def function(x: torch.Tensor, t: float) -> torch.Tensor:
        return x * t

    x = torch.arange(4)
    compiled = hostjit.compile(function, runtime=runtime)
    for t in (0.5, 1.5, 2, 3, 2.5, True):
        torch.testing.assert_close(compiled(x, t), function(x, t))


def test_dynamic_opens_floats_at_once_but_not_0_and_1(runtime: str) -> None:
    def function(x: torch.Tensor, t: float) -> torch.Tensor:
        return x * t

    x = torch.randn(4)
    check(function, [(x, t) for t in STEPS], programs=1, dynamic=True, runtime=runtime)
    check(function, [(x, t) for t in STEPS], programs=6, dynamic=False, runtime=runtime)
