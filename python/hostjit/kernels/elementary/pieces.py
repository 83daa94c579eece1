# SPDX-License-Identifier: Apache-2.0
"""What the elementary functions are built of: polynomials and the bits of floats."""

from __future__ import annotations

from collections.abc import Sequence

from hostjit.kernels.dtypes import DType
from hostjit.kernels.operation import Value

__all__ = [
    "bits",
    "careful_polynomial",
    "from_bits",
    "multiply_add",
    "polynomial",
    "rounded",
    "shift_left",
    "shift_right",
    "shift_right_signed",
    "widened",
]


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


def widened(x: Value) -> Value:
    """Return an `f32` as an `f64`."""
    register = x.emitter.builder.fpext(x.register, DType.F64.register_type())
    return Value(x.emitter, DType.F64, register)


def rounded(x: Value) -> Value:
    """Return the `f32` nearest to an `f64`."""
    register = x.emitter.builder.fptrunc(x.register, DType.F32.register_type())
    return Value(x.emitter, DType.F32, register)
