# SPDX-License-Identifier: Apache-2.0
"""What passes of PyTorch's make of Python's numbers, and of tensors that are numbers to them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit
from hostjit.compiling.specializer import Specializer

COMPILERS: dict[str, Callable[[Any], Any]] = {
    "compile": hostjit.compile,
    "backend": lambda function: torch.compile(function, backend="hostjit"),
}
in_each_way = pytest.mark.parametrize("way", list(COMPILERS))
WRITES: dict[str, Callable[[Tensor, Tensor, float], Any]] = {
    "add": lambda b, g, lr: b.add_(g),
    "add_scaled": lambda b, g, lr: b.add_(g, alpha=0.1),
    "subtract_by_rate": lambda b, g, lr: b.sub_(g, alpha=lr),
    "average": lambda b, g, lr: b.mul_(0.9).add_(g, alpha=0.1),
    "squares": lambda b, g, lr: b.addcmul_(g, g, value=0.1),
    "quotients": lambda b, g, lr: b.addcdiv_(g, g + 1, value=0.1),
    "interpolate": lambda b, g, lr: b.lerp_(g, 0.1),
    "copy": lambda b, g, lr: b.copy_(0.9 * b + 0.1 * g),
    "out": lambda b, g, lr: torch.add(b, g, alpha=0.1, out=b),
    "zero": lambda b, g, lr: b.zero_(),
}
# Of a time in seconds, or in billionths of them, and a period.
RATES: dict[str, Callable[[int, int], float]] = {
    "since": lambda t, period: (t - 1_700_000_000) * 0.1,
    "since_in_billionths": lambda t, period: (
        (t * 1_000_000_000 + t - 1_700_000_000_000_000_000) * 1e-9
    ),
    "power": lambda t, period: 0.99 ** (t - 1_700_000_000),
    "cosine": lambda t, period: 1 - 0.1 * math.cos(math.pi * (t % period) / period),
    "whole_quotient": lambda t, period: (t // period) * 0.5,
    "square": lambda t, period: (t - 1_699_990_000) * (t - 1_699_990_000) * 1e-6,
    "root": lambda t, period: math.sqrt(t + 1.0),
    "root_of_an_int": lambda t, period: math.sqrt(t),
    "exponential": lambda t, period: math.exp(-(t - 1_700_000_000) * 1e-3),
    "quotient": lambda t, period: (t - 1_699_000_000) / period,
    "least": lambda t, period: min(t, 1_700_000_003) * 1e-3,
}


@in_each_way
@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", list(WRITES))
def test_writes_are_kept(name: str, dtype: torch.dtype, shape: tuple[int, ...], way: str) -> None:
    write = WRITES[name]

    def step(b: Tensor, g: Tensor, rate: float) -> Tensor:
        write(b, g, rate)
        return b * rate

    torch._dynamo.reset()
    compiled = COMPILERS[way](step)
    mine, eagers = torch.ones(shape, dtype=dtype), torch.ones(shape, dtype=dtype)
    for number in range(5):
        g = torch.full(shape, 1.0 + number, dtype=dtype)
        rate = 0.1 * number + 0.05
        assert_close(compiled(mine, g, rate), step(eagers, g, rate))
        assert_close(mine, eagers)


@pytest.mark.filterwarnings("ignore:hostjit. .* runs in parts")
def test_writes_are_kept_in_frames_below_a_call() -> None:
    def step(b: Tensor, g: Tensor, t: int) -> Tensor:
        with contextlib.suppress(ValueError):
            print("step", t)
            rate = 0.9**t
            b.add_(g)
            return b * rate
        return b

    compiled = hostjit.compile(step)
    mine, eagers = (torch.ones((), dtype=torch.float64) for _ in range(2))
    for t in range(8):
        g = torch.tensor(1.0 + t, dtype=torch.float64)
        assert_close(compiled(mine, g, t), step(eagers, g, t))
        assert_close(mine, eagers)


@in_each_way
@pytest.mark.parametrize("needs_grad", [True, False])
@pytest.mark.parametrize("name", list(RATES))
def test_floats_that_are_made_of_ints(name: str, needs_grad: bool, way: str) -> None:
    rate = RATES[name]

    def weigh(w: Tensor, t: int, period: int) -> Tensor:
        return w * rate(t, period)

    torch._dynamo.reset()
    compiled = COMPILERS[way](weigh)
    w = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=needs_grad)
    for number in range(6):
        t = 1_700_000_000 + 3 * number
        found, expected = compiled(w, t, 10), weigh(w, t, 10)
        assert_close(found, expected, rtol=1e-15, atol=0)
        if needs_grad:
            (found,), (expected,) = (torch.autograd.grad(y.sum(), w) for y in (found, expected))
            assert_close(found, expected, rtol=1e-15, atol=0)


FACTORS: dict[str, Any] = {
    "add": lambda x, y, z, rate: x.add(y, alpha=rate),
    "sub": lambda x, y, z, rate: x.sub(y, alpha=1 - rate),
    "addcmul": lambda x, y, z, rate: x.addcmul(y, z, value=-rate),
    "addcdiv": lambda x, y, z, rate: x.addcdiv(y, z, value=rate * 0.1),
    "average": lambda x, y, z, rate: x.mul_(rate).add_(y, alpha=1 - rate),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", FACTORS)
def test_factors_by_keyword(name: str, dtype: torch.dtype) -> None:
    """One program for all of them, which rounds as eager does."""
    torch.compiler.reset()

    def function(x: Tensor, y: Tensor, z: Tensor, rate: float) -> Any:
        return FACTORS[name](x, y, z, rate)

    fast = torch.compile(function, backend="hostjit")
    for index in range(6):
        if index == 2:
            programs = Specializer.num_programs
        x, y = torch.randn(16, 16).to(dtype), torch.randn(16, 16).to(dtype)
        z = (torch.rand(16, 16) + 0.5).to(dtype)
        rate = 0.3 + 0.07 * index
        expected = function(x.clone(), y, z, rate)
        assert torch.equal(fast(x.clone(), y, z, rate), expected)
    assert Specializer.num_programs == programs
