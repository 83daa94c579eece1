# SPDX-License-Identifier: Apache-2.0
"""What the elementary functions are built of: polynomials and the bits of an `f32`."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit.kernels.dtypes import DType
from hostjit.kernels.operation import Value

__all__ = [
    "bits",
    "careful_polynomial",
    "from_bits",
    "multiply_add",
    "polynomial",
    "shift_left",
    "shift_right",
    "shift_right_signed",
]

_I32 = ir.IntType(32)


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
    """Return the bits of an `f32` as an `i32`."""
    return Value(x.emitter, DType.I32, x.emitter.builder.bitcast(x.register, _I32))


def from_bits(x: Value) -> Value:
    """Return the `f32` with the bits of an `i32`."""
    register = x.emitter.builder.bitcast(x.register, DType.F32.register_type())
    return Value(x.emitter, DType.F32, register)


def shift_left(x: Value, amount: int) -> Value:
    """Shift an `i32` left; what leaves it is lost."""
    shifted = x.emitter.builder.shl(x.register, ir.Constant(_I32, amount))
    return Value(x.emitter, DType.I32, shifted)


def shift_right(x: Value, amount: int) -> Value:
    """Shift an `i32` right; zeros enter."""
    shifted = x.emitter.builder.lshr(x.register, ir.Constant(_I32, amount))
    return Value(x.emitter, DType.I32, shifted)


def shift_right_signed(x: Value, amount: int) -> Value:
    """Shift an `i32` right; copies of the sign enter."""
    shifted = x.emitter.builder.ashr(x.register, ir.Constant(_I32, amount))
    return Value(x.emitter, DType.I32, shifted)
