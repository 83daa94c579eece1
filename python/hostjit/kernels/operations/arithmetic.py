# SPDX-License-Identifier: Apache-2.0
"""Arithmetic with eager's meaning: wrapping integers, Python's and C's divisions, NaN rules."""

from __future__ import annotations

from typing import Any

from hostjit.kernels.dtypes import FLOATS, INTEGERS, DType
from hostjit.kernels.operation import Value, apply, operation

NUMBERS = FLOATS + INTEGERS
ALL = (*NUMBERS, DType.BOOL)


def _binary(x: Value, y: Value, float_op: str, integer_op: str, bool_op: str = "") -> Value:
    opcode = float_op if x.dtype.is_float else integer_op if x.dtype.is_integer else bool_op
    register: Any = getattr(x.emitter.builder, opcode)(x.register, y.register)
    return Value(x.emitter, x.dtype, register)


@operation("TT>T", ALL)
def add(x: Value, y: Value) -> Value:
    return _binary(x, y, "fadd", "add", "or_")


@operation("TT>T", NUMBERS)
def sub(x: Value, y: Value) -> Value:
    return _binary(x, y, "fsub", "sub")


@operation("TT>T", ALL)
def mul(x: Value, y: Value) -> Value:
    return _binary(x, y, "fmul", "mul", "and_")


@operation("T>T", NUMBERS)
def neg(x: Value) -> Value:
    if x.dtype.is_float:
        return Value(x.emitter, x.dtype, x.emitter.builder.fneg(x.register))
    return x.of(0) - x


@operation("T>T", NUMBERS)
def abs_(x: Value) -> Value:
    if x.dtype.is_float:
        return x.intrinsic("fabs")
    return (x < 0).where(-x, x) if x.dtype.is_signed else x


@operation("TT>T", FLOATS)
def div(x: Value, y: Value) -> Value:
    """True division; integers are converted before it."""
    return _binary(x, y, "fdiv", "")


def _integer_divide(x: Value, y: Value, opcode: str) -> Value:
    """`sdiv`, `udiv`, `srem` or `urem` that is defined for every operand.

    Division by zero gives what division by one gives: callers that must raise for it do not fuse
    it. Division by -1 wraps.
    """
    safe = y.equals(0).where(1, y)
    if not x.dtype.is_signed:
        register = getattr(x.emitter.builder, "u" + opcode)(x.register, safe.register)
        return Value(x.emitter, x.dtype, register)
    minus_one = y.equals(-1)
    safe = minus_one.where(1, safe)
    register = getattr(x.emitter.builder, "s" + opcode)(x.register, safe.register)
    result = Value(x.emitter, x.dtype, register)
    return minus_one.where(-x, result) if opcode == "div" else result


@operation("TT>T", NUMBERS)
def div_trunc(x: Value, y: Value) -> Value:
    """Division rounded towards zero."""
    if x.dtype.is_float:
        return (x / y).intrinsic("trunc")
    return _integer_divide(x, y, "div")


@operation("TT>T", NUMBERS)
def fmod(x: Value, y: Value) -> Value:
    """The remainder with the sign of the dividend."""
    return x.math("fmod", y) if x.dtype.is_float else _integer_divide(x, y, "rem")


def _signs_differ(modulus: Value, divisor: Value) -> Value:
    return modulus.differs(0) & ((divisor < 0) ^ (modulus < 0))


@operation("TT>T", NUMBERS)
def div_floor(x: Value, y: Value) -> Value:
    """Python's `//`, with the corrections for rounding that eager makes."""
    if not x.dtype.is_float:
        quotient = _integer_divide(x, y, "div")
        if not x.dtype.is_signed:
            return quotient
        modulus = _integer_divide(x, y, "rem")
        return _signs_differ(modulus, y).where(quotient - 1, quotient)
    modulus = x.math("fmod", y)
    # Sleef's fmod gives NaN where the quotient overflows.
    overflows = apply("isinf", x / y) & apply("isfinite", x)
    quotient = overflows.where(x, x - modulus) / y
    quotient = _signs_differ(modulus, y).where(quotient - 1.0, quotient)
    floor = quotient.intrinsic("floor")
    floor = (quotient - floor > 0.5).where(floor + 1.0, floor)
    zero = x.of(0.0).intrinsic("copysign", x / y)
    result = quotient.differs(0.0).where(floor, zero)
    return y.equals(0.0).where(x / y, result)


@operation("TT>T", NUMBERS)
def remainder(x: Value, y: Value) -> Value:
    """Python's `%`: the remainder with the sign of the divisor."""
    modulus = x.math("fmod", y) if x.dtype.is_float else _integer_divide(x, y, "rem")
    if x.dtype is DType.U8:
        return modulus
    return _signs_differ(modulus, y).where(modulus + y, modulus)


@operation("TT>T", ALL)
def maximum(x: Value, y: Value) -> Value:
    """The larger, of equals the second; NaN if either is NaN."""
    if x.dtype is DType.BOOL:
        return x | y
    larger = (x > y).where(x, y)
    return x.isnan().where(x, larger) if x.dtype.is_float else larger


@operation("TT>T", ALL)
def minimum(x: Value, y: Value) -> Value:
    """The smaller, of equals the second; NaN if either is NaN."""
    if x.dtype is DType.BOOL:
        return x & y
    smaller = (x < y).where(x, y)
    return x.isnan().where(x, smaller) if x.dtype.is_float else smaller


@operation("TT>T", ALL)
def fmax(x: Value, y: Value) -> Value:
    """The larger; a NaN loses against a number."""
    if not x.dtype.is_float:
        return maximum(x, y)
    return y.isnan().where(x, (x > y).where(x, y))


@operation("TT>T", ALL)
def fmin(x: Value, y: Value) -> Value:
    """The smaller; a NaN loses against a number."""
    if not x.dtype.is_float:
        return minimum(x, y)
    return y.isnan().where(x, (x < y).where(x, y))


@operation("TTT>T", NUMBERS)
def clamp(x: Value, low: Value, high: Value) -> Value:
    """Of two zeros, `x` keeps its sign."""
    return minimum(high, maximum(low, x))


@operation("T>T", FLOATS)
def reciprocal(x: Value) -> Value:
    return 1.0 / x


@operation("T>T", NUMBERS)
def square(x: Value) -> Value:
    return x * x


@operation("T>T", FLOATS)
def sqrt(x: Value) -> Value:
    return x.intrinsic("sqrt")


@operation("T>T", FLOATS)
def rsqrt(x: Value) -> Value:
    return 1.0 / x.intrinsic("sqrt")


@operation("TTT>T", FLOATS)
def lerp(start: Value, end: Value, weight: Value) -> Value:
    """Interpolate from the nearer end, as eager does for accuracy."""
    difference = end - start
    near_start = multiply_add(weight, difference, start)
    near_end = multiply_add(weight - 1.0, difference, end)
    return (weight.intrinsic("fabs") < 0.5).where(near_start, near_end)


@operation("TTT>T", FLOATS)
def multiply_add(x: Value, y: Value, z: Value) -> Value:
    """Multiply and add, rounded once where the host has such an instruction."""
    return x.intrinsic("fmuladd", y, z)


@operation("TTTT>T", NUMBERS)
def addcmul(x: Value, y: Value, z: Value, factor: Value) -> Value:
    product = factor * y
    return multiply_add(product, z, x) if x.dtype.is_float else x + product * z


@operation("TTTT>T", FLOATS)
def addcdiv(x: Value, y: Value, z: Value, factor: Value) -> Value:
    return x + factor * y / z
