# SPDX-License-Identifier: Apache-2.0
"""Exponentials of `f32`.

exp(x) = 2**n * exp(r), where n is the integer nearest to x / log(2) and |r| <= log(2) / 2.

n comes from an addition that leaves it, plus a bias, in the low bits of a float. No conversion is
needed, so NaN does no harm: it reaches the result through r.
"""

from __future__ import annotations

from dataclasses import dataclass

from hostjit.kernels.elementary.pieces import (
    bits,
    careful_polynomial,
    from_bits,
    multiply_add,
    polynomial,
    shift_left,
    shift_right,
)
from hostjit.kernels.operation import Value, float32_form

__all__ = [
    "Reduced",
    "ReducedExponential",
    "exp",
    "exp2",
    "expm1",
    "reduce_exponential",
    "reduce_power_of_2",
]

_LOG2_E = 1.44269504
_LOG_2 = 0.693147181
# log(2) in two parts; n times the first is exact, so that no fused multiplication is needed.
_LOG_2_HIGH = 0.693145751953125
_LOG_2_LOW = 1.4286067653302e-06
# Adding 1.5 * 2**23 to a small float rounds it to an integer in the low bits of the sum.
_ROUND = 12582912.0

# (exp(r) - 1 - r) / r**2 on |r| <= 0.3475; error relative to exp(r): 2**-28.2.
_EXP_TAIL = (0.49999994, 0.16666521, 0.041668292, 0.0083687156, 0.0013818698)

# (2**r - 1 - r * log(2)) / r**2 on |r| <= 0.501; error relative to 2**r: 2**-28.2.
_POWER_TAIL = (0.24022648, 0.055503622, 0.0096185105, 0.0013390253, 0.00015324695)

# (exp(r) - 1 - r) / r**2 on |r| <= 0.3475; error relative to exp(r) - 1: 2**-31.1.
_EXPM1_TAIL = (0.5, 0.16666666, 0.041666493, 0.0083335433, 0.0013932381, 0.00019764414)

# exp is infinite above 88.73 and zero below -103.98.
_LARGEST_EXPONENT = 89.0
_SMALLEST_EXPONENT = -104.0
# expm1 is -1 below -17.4.
_SMALLEST_EXPM1 = -20.0


@dataclass(frozen=True)
class Reduced:
    """A power as 2**n * fraction."""

    biased: Value  # an f32 whose lowest nine bits are n plus the bias
    rest: Value  # r
    slope: Value  # (fraction - 1) / r

    @property
    def fraction(self) -> Value:
        """Between 0.7 and 1.42."""
        return multiply_add(self.rest, self.slope, 1.0)

    @property
    def power(self) -> Value:
        """2**n for a reduction with bias 127, where n is in [-126, 127]."""
        return from_bits(shift_left(bits(self.biased), 23))

    def added_to(self, number: Value | float) -> Value:
        """The sum with a number, for a reduction with bias 127."""
        power = self.power
        return multiply_add(power * self.rest, self.slope, power + number)

    def taken_from(self, number: float) -> Value:
        """The difference to a number, for a reduction with bias 127."""
        power = self.power
        return multiply_add(power * -self.rest, self.slope, number - power)

    def scaled(self, vanishes: Value) -> Value:
        """The number for a reduction with bias 254, where n is in [-252, 252]; 0 if it `vanishes`.

        Two factors reach every result, denormal or infinite. Products that underflow cost a
        hundred cycles, and masked attention is full of zeros: those are not computed.
        """
        first, second = self._halves()
        return self.fraction * vanishes.where(0.0, first) * second

    def wide_power(self) -> Value:
        """2**n for a reduction with bias 254; it may be denormal, zero or infinite."""
        first, second = self._halves()
        return first * second

    def _halves(self) -> tuple[Value, Value]:
        """Two factors of 2**n for a reduction with bias 254."""
        both = bits(self.biased)
        first = shift_right(both, 1)
        return from_bits(shift_left(first, 23)), from_bits(shift_left(both - first, 23))


@dataclass(frozen=True)
class ReducedExponential(Reduced):
    """exp(x) as 2**n * exp(r)."""

    growth: Value  # exp(r) - 1


def _nearest(x: Value, bias: int | Value) -> tuple[Value, Value, Value]:
    """Return n plus the bias in the low bits of an f32, n, and x - n * _LOG_2_HIGH exactly."""
    shift = x.like(bias) + _ROUND
    biased = multiply_add(x, _LOG2_E, shift)
    n = biased - shift
    return biased, n, multiply_add(n, -_LOG_2_HIGH, x)


def reduce_exponential(x: Value, bias: int | Value = 127) -> ReducedExponential:
    """Split exp(x); |x| is at most 128, or x is NaN."""
    biased, n, rest = _nearest(x, bias)
    rest = multiply_add(n, -_LOG_2_LOW, rest)
    tail = polynomial(rest, _EXP_TAIL)
    slope = multiply_add(rest, tail, 1.0)
    return ReducedExponential(biased, rest, slope, multiply_add(rest * rest, tail, rest))


def reduce_power_of_2(x: Value, factor: float = 1.0) -> Reduced:
    """Split 2**(factor * x); |factor * x| is at most 126, or x is NaN.

    This has the fewest steps in a row, for what is rounded again by adding a larger number.
    """
    shift = _ROUND + 127
    biased = multiply_add(x, factor, shift)
    rest = multiply_add(x, factor, shift - biased)
    return Reduced(biased, rest, polynomial(rest, (_LOG_2, *_POWER_TAIL)))


@float32_form
def exp(x: Value) -> Value:
    """Compute e**x."""
    x = (x > _LARGEST_EXPONENT).where(_LARGEST_EXPONENT, x)
    vanishes = x < _SMALLEST_EXPONENT
    x = vanishes.where(_SMALLEST_EXPONENT, x)
    return reduce_exponential(x, bias=2 * 127).scaled(vanishes)


@float32_form
def exp2(x: Value) -> Value:
    """Compute 2**x."""
    x = (x > 129.0).where(129.0, x)
    vanishes = x < -151.0
    x = vanishes.where(-151.0, x)
    shift = _ROUND + 2 * 127
    biased = x + shift
    rest = x - (biased - shift)
    slope = multiply_add(rest, polynomial(rest, _POWER_TAIL), _LOG_2)
    return Reduced(biased, rest, slope).scaled(vanishes)


@float32_form
def expm1(x: Value) -> Value:
    """Compute e**x - 1, precisely for small x too."""
    x = (x > _LARGEST_EXPONENT).where(_LARGEST_EXPONENT, x)
    limited = (x < _SMALLEST_EXPM1).where(_SMALLEST_EXPM1, x)
    # Half of 2**n is never infinite.
    biased, n, rest = _nearest(limited, bias=127 - 1)
    half = from_bits(shift_left(bits(biased), 23))
    # exp(rest + low) - 1 = rest + (the tail) + low * exp(rest), where rest is exact.
    low = n * -_LOG_2_LOW
    tail, square = careful_polynomial(rest, _EXPM1_TAIL), rest * rest
    growth = multiply_add(square, tail, rest)
    tail = multiply_add(square, tail, multiply_add(low, growth, low))
    base = half - 0.5
    large = multiply_add(half, rest, base)
    rounding_error = multiply_add(half, rest, base - large) + ((half - base) - 0.5)
    result = large + multiply_add(half, tail, rounding_error)
    return (x.intrinsic("fabs") < 2.0**-25).where(x, result + result)
