# SPDX-License-Identifier: Apache-2.0
"""Rounding and sign operations. Integers are their own rounding."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit.kernels.dtypes import FLOATS, INTEGERS, DType
from hostjit.kernels.operation import Value, operation

NUMBERS = FLOATS + INTEGERS
ALL = (*NUMBERS, DType.BOOL)


@operation("T>T", NUMBERS)
def floor(x: Value) -> Value:
    return x.intrinsic("floor") if x.dtype.is_float else x


@operation("T>T", NUMBERS)
def ceil(x: Value) -> Value:
    return x.intrinsic("ceil") if x.dtype.is_float else x


@operation("T>T", NUMBERS)
def trunc(x: Value) -> Value:
    return x.intrinsic("trunc") if x.dtype.is_float else x


@operation("T>T", NUMBERS)
def round_(x: Value) -> Value:
    """Round half to even."""
    return x.intrinsic("roundeven") if x.dtype.is_float else x


@operation("T>T", FLOATS)
def frac(x: Value) -> Value:
    return x - x.intrinsic("trunc")


@operation("T>T", ALL)
def sign(x: Value) -> Value:
    """-1, 0 or 1; zero for NaN."""
    if x.dtype is DType.BOOL:
        return x
    positive = (x > 0).where(1, 0, like=x)
    return (x < 0).where(-1, positive) if x.dtype.is_float or x.dtype.is_signed else positive


@operation("T>B", ALL)
def signbit(x: Value) -> Value:
    if not x.dtype.is_float:
        return x < 0 if x.dtype.is_signed else x.emitter.constant(DType.BOOL, False)
    builder = x.emitter.builder
    integer = ir.IntType(x.dtype.bits)
    bits = builder.bitcast(x.register, integer)
    register: Any = builder.icmp_signed("<", bits, ir.Constant(integer, 0))
    return Value(x.emitter, DType.BOOL, register)


@operation("TT>T", FLOATS)
def copysign(x: Value, y: Value) -> Value:
    return x.intrinsic("copysign", y)
