# SPDX-License-Identifier: Apache-2.0
"""Exponentials of `f32`, and exp of `f64`.

exp(x) = 2**n * exp(r), where n is the integer nearest to x / log(2) and |r| <= log(2) / 2.

n comes from an addition that leaves it, plus a bias, in the low bits of a float. No conversion is
needed, so NaN does no harm: it reaches the result through r.
"""

from __future__ import annotations

from dataclasses import dataclass

from hostjit.kernels.dtypes import DType
from hostjit.kernels.elementary.pieces import (
    FORMATS,
    bits,
    careful_polynomial,
    from_bits,
    multiply_add,
    polynomial,
    shift_left,
    shift_right,
)
from hostjit.kernels.operation import Value, form

__all__ = [
    "Reduced",
    "ReducedExponential",
    "exp",
    "exp2",
    "expm1",
    "reduce_exponential",
    "reduce_power_of_2",
]

_LOG_2 = 0.693147181
_LOG2_E = {DType.F32: 1.44269504, DType.F64: 1.4426950408889634}
_F32 = FORMATS[DType.F32]

# (exp(r) - 1 - r) / r**2 on |r| <= 0.3475; error relative to exp(r): 2**-28.2 and 2**-57.9.
_EXP_TAIL = {
    DType.F32: (0.49999994, 0.16666521, 0.041668292, 0.0083687156, 0.0013818698),
    DType.F64: (
        0.5000000000000011,
        0.1666666666666644,
        0.04166666666652704,
        0.008333333333477326,
        0.0013888888944315065,
        0.00019841269542114024,
        2.480149248213595e-05,
        2.7557555680780013e-06,
        2.763044439939811e-07,
        2.5009518158524587e-08,
    ),
}

# (2**r - 1 - r * log(2)) / r**2 on |r| <= 0.501; error relative to 2**r: 2**-28.2.
_POWER_TAIL = (0.24022648, 0.055503622, 0.0096185105, 0.0013390253, 0.00015324695)

# (exp(r) - 1 - r) / r**2 on |r| <= 0.3475; error relative to exp(r) - 1: 2**-31.1.
_EXPM1_TAIL = (0.5, 0.16666666, 0.041666493, 0.0083335433, 0.0013932381, 0.00019764414)

# exp is zero below the first, -103.98 or -745.1, and infinite above the second, 88.73 or 709.8.
_EXPONENTS = {DType.F32: (-104.0, 89.0), DType.F64: (-746.0, 710.0)}
# expm1 is -1 below -17.4.
_SMALLEST_EXPM1 = -20.0


@dataclass(frozen=True)
class Reduced:
    """A power as 2**n * fraction; n is added to the bias of the type, or to twice the bias."""

    biased: Value  # whose lowest bits are n plus the bias
    rest: Value  # r
    slope: Value  # (fraction - 1) / r

    @property
    def fraction(self) -> Value:
        """Between 0.7 and 1.42."""
        return multiply_add(self.rest, self.slope, 1.0)

    @property
    def power(self) -> Value:
        """2**n for a reduction with one bias, where it is a normal number."""
        return _power(bits(self.biased), self.biased.dtype)

    def added_to(self, number: Value | float) -> Value:
        """The sum with a number, for a reduction with one bias."""
        power = self.power
        return multiply_add(power * self.rest, self.slope, power + number)

    def taken_from(self, number: float) -> Value:
        """The difference to a number, for a reduction with one bias."""
        power = self.power
        return multiply_add(power * -self.rest, self.slope, number - power)

    def wide_power(self) -> Value:
        """2**n for a reduction with twice the bias; it may be denormal, zero or infinite."""
        first, second = _halves(self.biased)
        return first * second


@dataclass(frozen=True)
class ReducedExponential(Reduced):
    """exp(x) as 2**n * exp(r)."""

    growth: Value  # exp(r) - 1


def _power(exponent: Value, dtype: DType) -> Value:
    """The power of two whose biased exponent is in the lowest bits."""
    return from_bits(shift_left(exponent, FORMATS[dtype].fraction_bits))


def _halves(biased: Value) -> tuple[Value, Value]:
    """Two factors of 2**n for a reduction with twice the bias."""
    both = bits(biased)
    first = shift_right(both, 1)
    return _power(first, biased.dtype), _power(both - first, biased.dtype)


def _scaled(fraction: Value, biased: Value, vanishes: Value) -> Value:
    """2**n * fraction for a reduction with twice the bias, or 0 if it `vanishes`.

    Two factors reach every result, denormal or infinite. Products that underflow cost a hundred
    cycles, and masked attention is full of zeros: those are not computed.
    """
    first, second = _halves(biased)
    return fraction * vanishes.where(0.0, first) * second


def _nearest(x: Value, bias: int | Value) -> tuple[Value, Value, Value]:
    """Return n plus the bias in the low bits of a float, n, and x - n * log_2_high exactly."""
    numbers = FORMATS[x.dtype]
    shift = x.like(bias) + numbers.round
    biased = multiply_add(x, _LOG2_E[x.dtype], shift)
    n = biased - shift
    return biased, n, multiply_add(n, -numbers.log_2_high, x)


def reduce_exponential(x: Value, bias: int | Value) -> ReducedExponential:
    """Split exp(x), which must be a normal number if the bias is that of the type."""
    biased, n, rest = _nearest(x, bias)
    rest = multiply_add(n, -FORMATS[x.dtype].log_2_low, rest)
    tail = polynomial(rest, _EXP_TAIL[x.dtype])
    slope = multiply_add(rest, tail, 1.0)
    return ReducedExponential(biased, rest, slope, multiply_add(rest * rest, tail, rest))


def reduce_power_of_2(x: Value, factor: float = 1.0) -> Reduced:
    """Split 2**(factor * x), which means nothing where |factor * x| is more than 126.

    This has the fewest steps in a row, for what is rounded again by adding a larger number.
    """
    shift = _F32.round + _F32.bias
    biased = multiply_add(x, factor, shift)
    rest = multiply_add(x, factor, shift - biased)
    return Reduced(biased, rest, polynomial(rest, (_LOG_2, *_POWER_TAIL)))


def _within(x: Value) -> tuple[Value, Value]:
    """Limit x to where exp is neither zero nor infinite, or just; whether it is zero."""
    smallest, largest = _EXPONENTS[x.dtype]
    x = (x > largest).where(largest, x)
    vanishes = x < smallest
    return vanishes.where(smallest, x), vanishes


@form(DType.F32)
def exp(x: Value) -> Value:
    """Compute e**x."""
    x, vanishes = _within(x)
    reduced = reduce_exponential(x, bias=2 * _F32.bias)
    return _scaled(reduced.fraction, reduced.biased, vanishes)


@form(DType.F64, name="exp")
def precise_exp(x: Value) -> Value:
    """Compute e**x. What r and 1 + r have lost is added to the tail, which has bits to spare."""
    x, vanishes = _within(x)
    numbers = FORMATS[x.dtype]
    biased, n, exact = _nearest(x, 2 * numbers.bias)
    rest = multiply_add(n, -numbers.log_2_low, exact)
    lost = multiply_add(n, -numbers.log_2_low, exact - rest)
    large = rest + 1.0
    lost = (rest - (large - 1.0)) + lost
    fraction = large + multiply_add(rest * rest, careful_polynomial(rest, _EXP_TAIL[x.dtype]), lost)
    return _scaled(fraction, biased, vanishes)


@form(DType.F32)
def exp2(x: Value) -> Value:
    """Compute 2**x."""
    x = (x > 129.0).where(129.0, x)
    vanishes = x < -151.0
    x = vanishes.where(-151.0, x)
    shift = _F32.round + 2 * _F32.bias
    biased = x + shift
    rest = x - (biased - shift)
    slope = multiply_add(rest, polynomial(rest, _POWER_TAIL), _LOG_2)
    return _scaled(multiply_add(rest, slope, 1.0), biased, vanishes)


@form(DType.F32)
def expm1(x: Value) -> Value:
    """Compute e**x - 1, precisely for small x too."""
    _, largest = _EXPONENTS[x.dtype]
    x = (x > largest).where(largest, x)
    limited = (x < _SMALLEST_EXPM1).where(_SMALLEST_EXPM1, x)
    # Half of 2**n is never infinite.
    biased, n, rest = _nearest(limited, bias=_F32.bias - 1)
    half = _power(bits(biased), x.dtype)
    # exp(rest + low) - 1 = rest + (the tail) + low * exp(rest), where rest is exact.
    low = n * -_F32.log_2_low
    tail, square = careful_polynomial(rest, _EXPM1_TAIL), rest * rest
    growth = multiply_add(square, tail, rest)
    tail = multiply_add(square, tail, multiply_add(low, growth, low))
    base = half - 0.5
    large = multiply_add(half, rest, base)
    rounding_error = multiply_add(half, rest, base - large) + ((half - base) - 0.5)
    result = large + multiply_add(half, tail, rounding_error)
    return (x.intrinsic("fabs") < 2.0**-25).where(x, result + result)
