# SPDX-License-Identifier: Apache-2.0
"""Comparisons, tests for special values, and selection."""

from __future__ import annotations

import math
from typing import Any

from hostjit.kernels.dtypes import FLOATS, INTEGERS, DType
from hostjit.kernels.operation import Value, operation

ALL = (*FLOATS, *INTEGERS, DType.BOOL)


def _compare(x: Value, y: Value, predicate: str) -> Value:
    """Compare; with NaN only `!=` is true."""
    builder = x.emitter.builder
    register: Any
    if x.dtype.is_float:
        compare = builder.fcmp_unordered if predicate == "!=" else builder.fcmp_ordered
        register = compare(predicate, x.register, y.register)
    elif x.dtype.is_signed:
        register = builder.icmp_signed(predicate, x.register, y.register)
    else:
        register = builder.icmp_unsigned(predicate, x.register, y.register)
    return Value(x.emitter, DType.BOOL, register)


@operation("TT>B", ALL)
def eq(x: Value, y: Value) -> Value:
    return _compare(x, y, "==")


@operation("TT>B", ALL)
def ne(x: Value, y: Value) -> Value:
    return _compare(x, y, "!=")


@operation("TT>B", ALL)
def lt(x: Value, y: Value) -> Value:
    return _compare(x, y, "<")


@operation("TT>B", ALL)
def le(x: Value, y: Value) -> Value:
    return _compare(x, y, "<=")


@operation("TT>B", ALL)
def gt(x: Value, y: Value) -> Value:
    return _compare(x, y, ">")


@operation("TT>B", ALL)
def ge(x: Value, y: Value) -> Value:
    return _compare(x, y, ">=")


@operation("BTT>T", ALL)
def where(condition: Value, yes: Value, no: Value) -> Value:
    register = condition.emitter.builder.select(condition.register, yes.register, no.register)
    return Value(condition.emitter, yes.dtype, register)


@operation("T>B", ALL)
def isnan(x: Value) -> Value:
    if not x.dtype.is_float:
        return x.emitter.constant(DType.BOOL, False)
    register = x.emitter.builder.fcmp_unordered("uno", x.register, x.register)
    return Value(x.emitter, DType.BOOL, register)


@operation("T>B", ALL)
def isinf(x: Value) -> Value:
    if not x.dtype.is_float:
        return x.emitter.constant(DType.BOOL, False)
    return x.intrinsic("fabs").equals(math.inf)


@operation("T>B", ALL)
def isfinite(x: Value) -> Value:
    if not x.dtype.is_float:
        return x.emitter.constant(DType.BOOL, True)
    return x.intrinsic("fabs") < math.inf


@operation("TTTT>T", FLOATS)
def nan_to_num(x: Value, nan: Value, positive: Value, negative: Value) -> Value:
    finite = x.equals(math.inf).where(positive, x.equals(-math.inf).where(negative, x))
    return x.isnan().where(nan, finite)


@operation("TT>T", ALL)
def heaviside(x: Value, at_zero: Value) -> Value:
    if x.dtype is DType.BOOL:
        return x | at_zero
    return x.equals(0).where(at_zero, (x > 0).where(1, 0, like=x))


@operation("TTT>T", (*FLOATS, *INTEGERS))
def threshold(x: Value, limit: Value, replacement: Value) -> Value:
    """`replacement` where `x <= limit`; NaN stays."""
    return (x <= limit).where(replacement, x)
