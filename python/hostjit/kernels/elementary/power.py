# SPDX-License-Identifier: Apache-2.0
"""x**y of `f32`, as 2**(y * log2(|x|)) in `f64`.

The exponent reaches 150, so that a logarithm in `f32` would leave no more than 16 bits. In `f64`
denormal operands are normal, no power overflows, and the result is rounded once.

log2(2**n * m) = n + s * P(s**2), where m is in [sqrt(1/2), sqrt(2)) and s = (m - 1) / (m + 1).
"""

from __future__ import annotations

import math

from hostjit.kernels.elementary.pieces import (
    bits,
    from_bits,
    multiply_add,
    polynomial,
    rounded,
    shift_left,
    shift_right,
    widened,
)
from hostjit.kernels.operation import Value, float32_form

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
# Adding 1.5 * 2**52 to a small double rounds it to an integer in the low bits of the sum.
_ROUND = 1.5 * 2.0**52
_FRACTION_BITS = 52
_BIAS = 1023
_BITS_OF_ROOT_OF_HALF = 0x3FE6A09E667F3BCD
_BITS_OF_ONE = 0x3FF0000000000000
_BITS_OF_2_TO_52 = 0x4330000000000000


def _log2(x: Value) -> Value:
    """log2 of a positive finite `f64` that is an `f32`."""
    above = bits(x) + (_BITS_OF_ONE - _BITS_OF_ROOT_OF_HALF)
    exponent = shift_right(above, _FRACTION_BITS)
    # In the low bits of 2**52 an integer needs no conversion.
    n = from_bits(exponent | exponent.of(_BITS_OF_2_TO_52)) - (2.0**52 + _BIAS)
    fraction = above & above.of((1 << _FRACTION_BITS) - 1)
    m = from_bits(fraction + _BITS_OF_ROOT_OF_HALF)
    s = (m - 1.0) / (m + 1.0)
    return multiply_add(s, polynomial(s * s, _LOG2), n)


def _exp2(x: Value) -> Value:
    """2**x for |x| of at most _LIMIT, or NaN."""
    biased = x + (_ROUND + _BIAS)
    rest = x - (biased - (_ROUND + _BIAS))
    return polynomial(rest, _POWER) * from_bits(shift_left(bits(biased), _FRACTION_BITS))


@float32_form
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
