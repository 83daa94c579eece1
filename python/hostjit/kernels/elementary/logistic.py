# SPDX-License-Identifier: Apache-2.0
"""The logistic function, and products with it; mish of `f32`.

1 + exp(-x) = (1 + 2**n) + 2**n * (exp(r) - 1) is rounded once where the first sum is exact. Far
below zero, where the 1 doesn't count and 2**n would overflow, numerator and denominator are both
scaled by a power of two, so that denormal results are right too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hostjit.kernels.dtypes import DType
from hostjit.kernels.elementary.exponential import reduce_exponential
from hostjit.kernels.elementary.pieces import FORMATS, multiply_add
from hostjit.kernels.operation import Value

__all__ = ["mish", "sigmoid", "times_sigmoid"]


@dataclass(frozen=True)
class _Limits:
    """Beyond `largest` sigmoid(x) is 1, below `smallest` x * sigmoid(x) is zero.

    Below `far` both sides of the fraction are scaled by 2**-shift.
    """

    smallest: float
    largest: float
    far: float
    shift: int


_LIMITS = {
    DType.F32: _Limits(-128.0, 80.0, -40.0, 64),
    DType.F64: _Limits(-1000.0, 80.0, -600.0, 600),
}
# From 9 on, mish(x) rounds to x.
_LARGE_FOR_MISH = 20.0


def sigmoid(x: Value) -> Value:
    """Compute 1 / (1 + exp(-x))."""
    scale, denominator = _scaled_denominator(_at_least(x, _LIMITS[x.dtype].smallest))
    return scale / denominator


def times_sigmoid(x: Value, y: Value) -> Value:
    """Compute x / (1 + exp(-y)), where y is below `smallest` if x is.

    For x = -inf it is NaN as in eager, though the limit is zero.
    """
    smallest = _LIMITS[x.dtype].smallest
    scale, denominator = _scaled_denominator(_at_least(y, smallest))
    product = _at_least(x, smallest) * scale / denominator
    return x.equals(-math.inf).where(math.nan, product)


def mish(x: Value) -> Value:
    """Compute x * tanh(log(1 + exp(x))).

    That is x * v / (v + 1), where v = w + w**2 / 2 and w = exp(x).
    """
    is_large = x > _LARGE_FOR_MISH
    limited = is_large.where(_LARGE_FOR_MISH, _at_least(x, -104.0))
    exponential = reduce_exponential(limited, bias=2 * FORMATS[x.dtype].bias)
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
    limits, bias = _LIMITS[x.dtype], FORMATS[x.dtype].bias
    is_far = x < limits.far
    scale = is_far.where(2.0**-limits.shift, 1.0, like=x)
    scaled_bias = is_far.where(float(bias - limits.shift), float(bias), like=x)
    limited = (x > limits.largest).where(limits.largest, x)
    exponential = reduce_exponential(-limited, scaled_bias)
    power = exponential.power
    return scale, multiply_add(power, exponential.growth, scale + power)
