# SPDX-License-Identifier: Apache-2.0
"""What Python computes of open sizes and ints: one program for all, and one for either side."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import many_calls
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import hostjit

SIZES = [(4, 6), (5, 7), (7, 9), (12, 14), (6, 31), (9, 11)]
NUMBERS: dict[str, Callable[[Tensor], Any]] = {
    "common divisor": lambda x: (x * math.gcd(x.shape[0], 12), math.gcd(*x.shape)),
    "common multiple": lambda x: x + math.lcm(x.shape[0], 4),
    "a size": lambda x: x[:, : math.gcd(x.shape[1], 3) + 1] * 2,
    "root": lambda x: (x[: math.isqrt(x.shape[0])] + 1, math.isqrt(x.numel())),
    "ways": lambda x: x * math.comb(x.shape[0], 2) + math.factorial(3),
    "bits": lambda x: (x * (x.shape[0] & 3), x.shape[1] | 8, x.shape[0] ^ x.shape[1]),
    "shifted": lambda x: x[: x.shape[0] >> 1] + (x.shape[1] << 2),
    "quotient and rest": lambda x: (divmod(x.shape[1], 3), x + divmod(x.shape[0], x.shape[1])[1]),
    "sorted": lambda x: (x * sorted(x.shape)[0], sorted([x.shape[1], 2, x.shape[0]])),
    "decision": lambda x: x * (x.shape[0] > 2) + (x.shape[1] > 1) * 2.0,
    "decision of a function": lambda x: torch.add(x, x.shape[0] > 2),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_any_size(name: str, runtime: str) -> None:
    calls = [(torch.randn(n, m),) for n, m in SIZES]
    many_calls.check(NUMBERS[name], calls, programs=1, dynamic=True, runtime=runtime)


# By floats whose products with sizes are exact.
SCALES = [0.5, 2.0, 1.5, 0.25, 3]
RESIZED: dict[str, Callable[[Tensor, float], Tensor]] = {
    "nearest": lambda x, scale: functional.interpolate(x[None, None], scale_factor=scale),
    "recomputed": lambda x, scale: functional.interpolate(
        x[None, None], scale_factor=scale, recompute_scale_factor=True
    ),
    "bilinear": lambda x, scale: functional.interpolate(
        x[None, None], scale_factor=(scale, 0.5), mode="bilinear"
    ),
    "a row": lambda x, scale: functional.interpolate(x[None], scale_factor=scale, mode="linear"),
    "area": lambda x, scale: functional.interpolate(x[None, None], scale_factor=scale, mode="area"),
}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", RESIZED)
def test_interpolation_by_a_scale(name: str, scale: float) -> None:
    def resized(x: Tensor) -> Tensor:
        return RESIZED[name](x, scale)

    sizes = [(8, 12), *((n + 4, m + 4) for n, m in SIZES)]
    many_calls.check(resized, [(torch.randn(n, m),) for n, m in sizes], programs=1, dynamic=True)


def test_there_is_a_program_for_either_side() -> None:
    def call(x: Tensor) -> Tensor:
        return x * (x.shape[0] > 5) + sorted([x.shape[0], 7])[0]

    calls = [(torch.randn(n),) for n in (3, 9, 4, 12, 5, 8, 6)]
    many_calls.check(call, calls, programs=3, dynamic=True)


def test_open_ints(runtime: str) -> None:
    def call(x: Tensor, n: int) -> Any:
        return x * (n & 6) + math.gcd(n, 12), divmod(n, 4), n << 3, 3**n, x + (n > 2)

    calls = [(torch.randn(3), n) for n in (3, 5, 8, 12, 31, 4)]
    many_calls.check(call, calls, programs=2, runtime=runtime)


@pytest.mark.filterwarnings("ignore:hostjit")
def test_ints_that_python_refuses() -> None:
    def call(x: Tensor, n: int) -> Any:
        return x + math.isqrt(n - 3) + (1 << (n - 3))

    fast = hostjit.compile(call)
    for n in (4, 6, 2, 9, 1, 12):
        x = torch.randn(3)
        if n < 3:
            with pytest.raises(ValueError):
                fast(x, n)
        else:
            torch.testing.assert_close(fast(x, n), call(x, n))
