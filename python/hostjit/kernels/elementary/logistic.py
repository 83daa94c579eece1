# SPDX-License-Identifier: Apache-2.0
"""The logistic function of `f32`, and products with it.

1 + exp(-x) = (1 + 2**n) + 2**n * (exp(r) - 1) is rounded once where the first sum is exact. Below
-40, where the 1 doesn't count and 2**n would overflow, numerator and denominator are both scaled by
2**-64, so that denormal results are right too.
"""

from __future__ import annotations

import math

from hostjit.kernels.elementary.exponential import reduce_exponential
from hostjit.kernels.elementary.pieces import multiply_add
from hostjit.kernels.operation import Value

__all__ = ["mish", "sigmoid", "times_sigmoid"]

# Beyond these, sigmoid(x) is 1, and x * sigmoid(x) is zero.
_LARGEST = 80.0
_SMALLEST = -128.0
_FAR = -40.0
# From 9 on, mish(x) rounds to x.
_LARGE_FOR_MISH = 20.0


def sigmoid(x: Value) -> Value:
    """Compute 1 / (1 + exp(-x))."""
    scale, denominator = _scaled_denominator(_at_least(x, _SMALLEST))
    return scale / denominator


def times_sigmoid(x: Value, y: Value) -> Value:
    """Compute x / (1 + exp(-y)), where y is so much below zero for x < -128 that it is zero.

    For x = -inf it is NaN as in eager, though the limit is zero.
    """
    scale, denominator = _scaled_denominator(_at_least(y, _SMALLEST))
    product = _at_least(x, _SMALLEST) * scale / denominator
    return x.equals(-math.inf).where(math.nan, product)


def mish(x: Value) -> Value:
    """Compute x * tanh(log(1 + exp(x))).

    That is x * v / (v + 1), where v = w + w**2 / 2 and w = exp(x).
    """
    is_large = x > _LARGE_FOR_MISH
    limited = is_large.where(_LARGE_FOR_MISH, _at_least(x, -104.0))
    exponential = reduce_exponential(limited, bias=2 * 127)
    growth, power = exponential.growth, exponential.wide_power()
    w = multiply_add(growth, power, power)
    rounding_error = multiply_add(growth, power, power - w)
    rest = multiply_add(w * 0.5, w, rounding_error)
    numerator = multiply_add(x, w, x * rest)
    return is_large.where(x, numerator / (1.0 + (w + rest)))


def _at_least(x: Value, limit: float) -> Value:
    return (x < limit).where(limit, x)


def _scaled_denominator(x: Value) -> tuple[Value, Value]:
    """Return a power of two and its product with 1 + exp(-x)."""
    is_far = x < _FAR
    scale = is_far.where(2.0**-64, 1.0, like=x)
    bias = is_far.where(127.0 - 64.0, 127.0, like=x)
    exponential = reduce_exponential(-(x > _LARGEST).where(_LARGEST, x), bias)
    power = exponential.power
    return scale, multiply_add(power, exponential.growth, scale + power)
