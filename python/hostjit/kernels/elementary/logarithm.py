# SPDX-License-Identifier: Apache-2.0
"""Logarithms of `f32`.

log(x) = n * log(2) + log(1 + f), where 2**n * (1 + f) = x and 1 + f is in [c, 2 * c). The largest
terms are added exactly, as a sum and its rounding error. Other bases than e scale all terms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hostjit.kernels.dtypes import DType
from hostjit.kernels.elementary.exponential import reduce_exponential
from hostjit.kernels.elementary.pieces import (
    FORMATS,
    bits,
    from_bits,
    multiply_add,
    polynomial,
    shift_right_signed,
)
from hostjit.kernels.operation import Value, form

__all__ = ["log", "log1p", "log1p_exp", "log2", "log10", "with_edges"]

_F32 = FORMATS[DType.F32]
# The bits of numbers from which n is 0.
_TWO_THIRDS = 0x3F2AAAAB
_HIGHER = 0x3F3161E5  # 0.6929


@dataclass(frozen=True)
class _Base:
    """The terms of a logarithm to one base.

    `lowest` has the bits of c. At 2 * c, where n becomes 1, terms cancel most. A rounding counts
    most where the result is just below a power of two, as log10(4/3) is: hence another c there.

    `high` and `low` are the logarithm of 2 in two parts; n times the first is exact. That of 1 + f
    is f * (scale + scale_low) + f**2 * (square + f * P(f)), where `tail` is P.
    """

    lowest: int
    high: float
    low: float
    scale: float
    scale_low: float
    square: float
    tail: tuple[float, ...]


# Error relative to the logarithm of 1 + f: 2**-30.1.
_E = _Base(
    lowest=_TWO_THIRDS,
    high=_F32.log_2_high,
    low=_F32.log_2_low,
    scale=1.0,
    scale_low=0.0,
    square=-0.5,
    tail=(
        0.33333334,
        -0.24999826,
        0.19999684,
        -0.1667936,
        0.1430261,
        -0.12198549,
        0.10770794,
        -0.12833875,
        0.11953843,
    ),
)
# Error relative to the logarithm of 1 + f: 2**-30.
_TWO = _Base(
    lowest=_HIGHER,
    high=1.0,
    low=0.0,
    scale=1.44269502,
    scale_low=1.92596303e-08,
    square=-0.72134751,
    tail=(
        0.480898142,
        -0.360673219,
        0.288562566,
        -0.240534529,
        0.20536831,
        -0.177635476,
        0.168092623,
        -0.176377848,
        0.116553247,
    ),
)
# Error relative to the logarithm of 1 + f: 2**-30.2.
_TEN = _Base(
    lowest=_HIGHER,
    high=0.30103302001953125,
    low=-3.02435555e-06,
    scale=0.434294492,
    scale_low=-1.0103049952e-08,
    square=-0.217147246,
    tail=(
        0.144764766,
        -0.108572848,
        0.0868656859,
        -0.0724239722,
        0.0618368313,
        -0.0533014983,
        0.0503719747,
        -0.0537640303,
        0.036202006,
    ),
)

_EXPONENT_BITS = -(1 << 23)
_SMALLEST_NORMAL = 2.0**-126


@form(DType.F32)
def log(x: Value) -> Value:
    """Compute the natural logarithm."""
    return _logarithm(x, _E)


@form(DType.F32)
def log2(x: Value) -> Value:
    """Compute the logarithm to base 2."""
    return _logarithm(x, _TWO)


@form(DType.F32)
def log10(x: Value) -> Value:
    """Compute the logarithm to base 10."""
    return _logarithm(x, _TEN)


def _logarithm(x: Value, base: _Base) -> Value:
    is_denormal = x < _SMALLEST_NORMAL
    normal = is_denormal.where(x * 2.0**25, x)
    n, shifted_n = _exponent(normal, base.lowest)
    n = n + is_denormal.where(-25.0, 0.0, like=x)
    fraction = from_bits(bits(normal) - shifted_n) - 1.0
    return with_edges(x, _sum_of_logs(n, fraction, base=base))


@form(DType.F32)
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
    result = with_edges(sum_, _sum_of_logs(n, fraction, rounding_error))
    return (x.intrinsic("fabs") < 2.0**-25).where(x, result)


def log1p_exp(x: Value) -> Value:
    """Compute log(1 + exp(x)) for x <= 0 or NaN, precisely for very negative x too."""
    limited = (x < -104.0).where(-104.0, x)
    reduced = reduce_exponential(limited, bias=2 * _F32.bias)
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


def _exponent(x: Value, lowest: int = _TWO_THIRDS) -> tuple[Value, Value]:
    """Return n as a float, and n shifted to the place of the exponent."""
    above = bits(x) - lowest
    integer = shift_right_signed(above, 23)
    register = x.emitter.builder.sitofp(integer.register, x.register.type)
    return Value(x.emitter, DType.F32, register), above & above.of(_EXPONENT_BITS)


def _sum_of_logs(
    n: Value, fraction: Value, correction: Value | None = None, base: _Base = _E
) -> Value:
    """Compute n * log(2) + log(1 + fraction + correction)."""
    slope = multiply_add(fraction, polynomial(fraction, base.tail), base.square)
    multiple = n * base.high
    leading = fraction * base.scale
    large = multiple + leading
    # What is smaller than the last place of the large terms is added up first, rounded little.
    rest = leading - (large - multiple)
    if base.low:
        rest = multiply_add(n, base.low, rest)
    if base.scale != 1.0:
        product_error = multiply_add(fraction, base.scale, -leading)
        rest = rest + multiply_add(fraction, base.scale_low, product_error)
    if correction is not None:
        # The derivative of log(1 + f) is about 1 - f.
        rest = rest + multiply_add(-fraction, correction, correction)
    return large + multiply_add(fraction * slope, fraction, rest)


def with_edges(x: Value, log_of_x: Value) -> Value:
    """The logarithm of x for every x, where `log_of_x` is right for positive finite x."""
    unbounded = x.equals(math.inf).where(x, log_of_x)
    edge = x.equals(0.0).where(-math.inf, math.nan, like=x)
    return (x > 0.0).where(unbounded, edge)
