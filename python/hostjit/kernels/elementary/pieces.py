# SPDX-License-Identifier: Apache-2.0
"""What the elementary functions are built of: polynomials and the bits of floats."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from hostjit.kernels.dtypes import DType
from hostjit.kernels.operation import Value

__all__ = [
    "FORMATS",
    "FloatFormat",
    "bits",
    "careful_polynomial",
    "from_bits",
    "multiply_add",
    "polynomial",
    "rounded",
    "shift_left",
    "shift_right",
    "shift_right_signed",
    "split_power_of_2",
    "widened",
]


@dataclass(frozen=True)
class FloatFormat:
    """What the bits of a type mean, and log(2) in two parts.

    n times the first part is exact for the n of any exponent, so that no fused multiplication is
    needed.
    """

    fraction_bits: int
    bias: int
    log_2_high: float
    log_2_low: float

    @property
    def round(self) -> float:
        """A number; adding it rounds a small one to an integer, in the low bits of the sum."""
        return 1.5 * 2.0**self.fraction_bits


FORMATS = {
    DType.F32: FloatFormat(23, 127, 0.693145751953125, 1.4286067653302e-06),
    DType.F64: FloatFormat(52, 1023, 0.6931471805582987, 1.6465949582897082e-12),
}


def multiply_add(x: Value, y: Value | float, z: Value | float) -> Value:
    """Return x * y + z, rounded once where the host has such an instruction.

    Elsewhere it is two instructions, never a call: formulas must stay right when the product is
    rounded, and then lose at most about one more unit in the last place.
    """
    return x.intrinsic("fmuladd", x.like(y), x.like(z))


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Evaluate a polynomial, lowest power first, by Estrin's scheme: few steps in a row."""
    terms = [x.of(coefficient) for coefficient in coefficients]
    power = x
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=False)
        rest = terms[-1:] if len(terms) % 2 else []
        terms = [multiply_add(power, high, low) for low, high in pairs] + rest
        if len(terms) > 1:
            power = power * power
    return terms[0]


def careful_polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Evaluate a polynomial, its two lowest terms last and one by one: fewer roundings count."""
    lowest, second, *rest = coefficients
    slope = multiply_add(x, polynomial(x, rest), second)
    return multiply_add(x, slope, lowest)


def bits(x: Value) -> Value:
    """Return the bits of an `f32` as an `i32`, of an `f64` as an `i64`."""
    dtype = DType.I32 if x.dtype is DType.F32 else DType.I64
    return Value(x.emitter, dtype, x.emitter.builder.bitcast(x.register, dtype.register_type()))


def from_bits(x: Value) -> Value:
    """Return the `f32` with the bits of an `i32`, the `f64` with those of an `i64`."""
    dtype = DType.F32 if x.dtype is DType.I32 else DType.F64
    return Value(x.emitter, dtype, x.emitter.builder.bitcast(x.register, dtype.register_type()))


def shift_left(x: Value, amount: int) -> Value:
    """Shift an integer left; what leaves it is lost."""
    return Value(x.emitter, x.dtype, x.emitter.builder.shl(x.register, x.of(amount).register))


def shift_right(x: Value, amount: int) -> Value:
    """Shift an integer right; zeros enter."""
    return Value(x.emitter, x.dtype, x.emitter.builder.lshr(x.register, x.of(amount).register))


def shift_right_signed(x: Value, amount: int) -> Value:
    """Shift an integer right; copies of the sign enter."""
    return Value(x.emitter, x.dtype, x.emitter.builder.ashr(x.register, x.of(amount).register))


def split_power_of_2(x: Value, lowest: float) -> tuple[Value, Value]:
    """Split a positive normal `f64` into n and m in [lowest, 2 * lowest), where x is 2**n * m.

    `lowest` is in (1/2, 1].
    """
    numbers = FORMATS[DType.F64]
    bits_of_lowest = int.from_bytes(struct.pack(">d", lowest))
    above = bits(x) + ((numbers.bias << numbers.fraction_bits) - bits_of_lowest)
    exponent = shift_right(above, numbers.fraction_bits)
    # In the low bits of 2**52 an integer needs no conversion.
    first_whole = 2.0**numbers.fraction_bits
    n = from_bits(exponent | bits(x.of(first_whole))) - (first_whole + numbers.bias)
    fraction = above & above.of((1 << numbers.fraction_bits) - 1)
    return n, from_bits(fraction + bits_of_lowest)


def widened(x: Value) -> Value:
    """Return an `f32` as an `f64`."""
    register = x.emitter.builder.fpext(x.register, DType.F64.register_type())
    return Value(x.emitter, DType.F64, register)


def rounded(x: Value) -> Value:
    """Return the `f32` nearest to an `f64`."""
    register = x.emitter.builder.fptrunc(x.register, DType.F32.register_type())
    return Value(x.emitter, DType.F32, register)
