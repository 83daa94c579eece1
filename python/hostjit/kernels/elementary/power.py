# SPDX-License-Identifier: Apache-2.0
"""x**y of `f32`, as 2**(y * log2(|x|)) in `f64`.

The exponent reaches 150, so that a logarithm in `f32` would leave no more than 16 bits. In `f64`
denormal operands are normal, no power overflows, and the result is rounded once.

log2(2**n * m) = n + s * P(s**2), where m is in [sqrt(1/2), sqrt(2)) and s = (m - 1) / (m + 1).
"""

from __future__ import annotations

import math

from hostjit.kernels.dtypes import DType
from hostjit.kernels.elementary.pieces import (
    FORMATS,
    bits,
    from_bits,
    multiply_add,
    polynomial,
    rounded,
    shift_left,
    split_power_of_2,
    widened,
)
from hostjit.kernels.operation import Value, form

__all__ = ["pow_"]

# log2((1 + s) / (1 - s)) / s in powers of s**2 for |s| <= 0.1716; relative error 2**-37.7.
_LOG2 = (
    2.88539008179008,
    0.961796673350169,
    0.5770835832322321,
    0.4116728295664431,
    0.340727955398124,
)
# 2**r on |r| <= 0.5; relative error 2**-29.
_POWER = (
    1.0000000005542484,
    0.693147205736992,
    0.24022646890024632,
    0.055503287774092504,
    0.009618489023127265,
    0.001339993104928913,
    0.00015345793249907572,
)
# Powers beyond are infinite or zero in `f32`.
_LIMIT = 200.0
_F64 = FORMATS[DType.F64]


def _log2(x: Value) -> Value:
    """log2 of a positive finite `f64` that is an `f32`."""
    n, m = split_power_of_2(x, math.sqrt(0.5))
    s = (m - 1.0) / (m + 1.0)
    return multiply_add(s, polynomial(s * s, _LOG2), n)


def _exp2(x: Value) -> Value:
    """2**x for |x| of at most _LIMIT, or NaN."""
    shift = _F64.round + _F64.bias
    biased = x + shift
    rest = x - (biased - shift)
    return polynomial(rest, _POWER) * from_bits(shift_left(bits(biased), _F64.fraction_bits))


@form(DType.F32)
def pow_(x: Value, y: Value) -> Value:
    """Compute x**y with all special cases of C."""
    magnitude = widened(x.intrinsic("fabs"))
    wide_y = widened(y)
    logarithm = _log2(magnitude)
    logarithm = (magnitude > 0.0).where(logarithm, -math.inf)
    logarithm = (magnitude < math.inf).where(logarithm, magnitude)
    exponent = wide_y * logarithm
    exponent = (exponent > _LIMIT).where(_LIMIT, exponent)
    exponent = (exponent < -_LIMIT).where(-_LIMIT, exponent)
    # Also where the other operand is NaN, and where infinity times zero has no limit.
    is_one = magnitude.equals(1.0) | wide_y.equals(0.0)
    result = rounded(_exp2(is_one.where(0.0, exponent)))
    half = y * 0.5
    is_integer = y.intrinsic("trunc").equals(y)
    is_odd = is_integer & half.intrinsic("trunc").differs(half)
    result = is_odd.where(result.intrinsic("copysign", x), result)
    is_undefined = (x < 0.0) & (x > -math.inf) & ~is_integer
    return is_undefined.where(math.nan, result)
