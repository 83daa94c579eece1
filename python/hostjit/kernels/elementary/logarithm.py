# SPDX-License-Identifier: Apache-2.0
"""Logarithms of `f32`.

log(x) = n * log(2) + log(1 + f), where 2**n * (1 + f) = x and 1 + f is in [2/3, 4/3). The largest
terms are added exactly, as a sum and its rounding error.
"""

from __future__ import annotations

import math

from hostjit.kernels.dtypes import DType
from hostjit.kernels.elementary.exponential import reduce_exponential
from hostjit.kernels.elementary.float32 import (
    bits,
    from_bits,
    multiply_add,
    polynomial,
    shift_right_signed,
)
from hostjit.kernels.operation import Value, float32_form

__all__ = ["log", "log1p", "log1p_exp"]

# (log(1 + f) - f + f**2 / 2) / f**3 on |f| <= 0.3334; error relative to log(1 + f): 2**-30.1.
_TAIL = (
    0.33333334,
    -0.24999826,
    0.19999684,
    -0.1667936,
    0.1430261,
    -0.12198549,
    0.10770794,
    -0.12833875,
    0.11953843,
)
# log(2) in two parts; n times the first is exact.
_LOG_2_HIGH = 0.693145751953125
_LOG_2_LOW = 1.4286067653302e-06

_BITS_OF_TWO_THIRDS = 0x3F2AAAAB
_EXPONENT_BITS = -(1 << 23)
_SMALLEST_NORMAL = 2.0**-126


@float32_form
def log(x: Value) -> Value:
    """Compute the natural logarithm."""
    is_denormal = x < _SMALLEST_NORMAL
    normal = is_denormal.where(x * 2.0**25, x)
    n, shifted_n = _exponent(normal)
    n = n + is_denormal.where(-25.0, 0.0, like=x)
    fraction = from_bits(bits(normal) - shifted_n) - 1.0
    return _with_edges(x, _sum_of_logs(n, fraction))


@float32_form
def log1p(x: Value) -> Value:
    """Compute log(1 + x), precisely for small x too."""
    sum_ = x + 1.0
    n, shifted_n = _exponent(sum_)
    # Four times 2**-n is never denormal.
    scale = from_bits(bits(x.of(4.0)) - shifted_n)
    quarter = x * 0.25
    rest = multiply_add(scale, 0.25, -1.0)
    fraction = multiply_add(quarter, scale, rest)
    rounding_error = multiply_add(quarter, scale, rest - fraction)
    result = _with_edges(sum_, _sum_of_logs(n, fraction, rounding_error))
    return (x.intrinsic("fabs") < 2.0**-25).where(x, result)


def log1p_exp(x: Value) -> Value:
    """Compute log(1 + exp(x)) for x <= 0 or NaN, precisely for very negative x too."""
    limited = (x < -104.0).where(-104.0, x)
    reduced = reduce_exponential(limited, bias=2 * 127)
    fraction, power = reduced.fraction, reduced.wide_power()
    exponential = fraction * power
    rounding_error = (reduced.growth - (fraction - 1.0)) * power
    # 1 + exp(x) is in [1, 2], so that n is 0 or 1.
    halve = exponential > 1.0 / 3.0
    scale = halve.where(0.5, 1.0, like=x)
    rest = halve.where(-0.5, 0.0, like=x)
    fraction = multiply_add(exponential, scale, rest)
    correction = multiply_add(exponential, scale, rest - fraction)
    correction = multiply_add(rounding_error, scale, correction)
    return _sum_of_logs(halve.where(1.0, 0.0, like=x), fraction, correction)


def _exponent(x: Value) -> tuple[Value, Value]:
    """Return n as a float, and n shifted to the place of the exponent."""
    above = bits(x) - _BITS_OF_TWO_THIRDS
    integer = shift_right_signed(above, 23)
    register = x.emitter.builder.sitofp(integer.register, x.register.type)
    return Value(x.emitter, DType.F32, register), above & above.of(_EXPONENT_BITS)


def _sum_of_logs(n: Value, fraction: Value, correction: Value | None = None) -> Value:
    """Compute n * log(2) + log(1 + fraction + correction)."""
    slope = multiply_add(fraction, polynomial(fraction, _TAIL), -0.5)
    multiple = n * _LOG_2_HIGH
    large = multiple + fraction
    rounding_error = fraction - (large - multiple)
    small = multiply_add(n, _LOG_2_LOW, fraction * fraction * slope)
    if correction is not None:
        # The derivative of log(1 + f) is about 1 - f.
        rounding_error = rounding_error + multiply_add(-fraction, correction, correction)
    return large + (small + rounding_error)


def _with_edges(x: Value, log_of_x: Value) -> Value:
    """The logarithm of x for every x, where `log_of_x` is right for positive finite x."""
    unbounded = x.equals(math.inf).where(x, log_of_x)
    edge = x.equals(0.0).where(-math.inf, math.nan, like=x)
    return (x > 0.0).where(unbounded, edge)
