# SPDX-License-Identifier: Apache-2.0
"""Bitwise and logical operations; shifts by any amount are defined as in eager."""

from __future__ import annotations

from typing import Any

from hostjit.kernels.dtypes import INTEGERS, DType
from hostjit.kernels.operation import Value, operation

BITS = (*INTEGERS, DType.BOOL)
BOOLS = (DType.BOOL,)


def _binary(x: Value, y: Value, opcode: str) -> Value:
    register: Any = getattr(x.emitter.builder, opcode)(x.register, y.register)
    return Value(x.emitter, x.dtype, register)


@operation("TT>T", BITS)
def bitwise_and(x: Value, y: Value) -> Value:
    return _binary(x, y, "and_")


@operation("TT>T", BITS)
def bitwise_or(x: Value, y: Value) -> Value:
    return _binary(x, y, "or_")


@operation("TT>T", BITS)
def bitwise_xor(x: Value, y: Value) -> Value:
    return _binary(x, y, "xor")


@operation("T>T", BITS)
def bitwise_not(x: Value) -> Value:
    return x ^ x.of(-1)


@operation("TT>T", BOOLS)
def logical_and(x: Value, y: Value) -> Value:
    return x & y


@operation("TT>T", BOOLS)
def logical_or(x: Value, y: Value) -> Value:
    return x | y


@operation("TT>T", BOOLS)
def logical_xor(x: Value, y: Value) -> Value:
    return x ^ y


@operation("T>T", BOOLS)
def logical_not(x: Value) -> Value:
    return ~x


def _beyond(amount: Value, limit: int) -> Value:
    """True where a shift amount is negative or at least `limit`."""
    too_large = amount >= limit
    return too_large | (amount < 0) if amount.dtype.is_signed else too_large


@operation("TT>T", INTEGERS)
def shift_left(x: Value, amount: Value) -> Value:
    """Shift left; zero for an amount outside the width."""
    beyond = _beyond(amount, x.dtype.bits)
    return beyond.where(0, _binary(x, beyond.where(0, amount), "shl"))


@operation("TT>T", INTEGERS)
def shift_right(x: Value, amount: Value) -> Value:
    """Arithmetic shift right; all sign bits (or zero) for an amount outside the width."""
    if not x.dtype.is_signed:
        beyond = _beyond(amount, x.dtype.bits)
        return beyond.where(0, _binary(x, beyond.where(0, amount), "lshr"))
    limit = x.dtype.bits - 1
    return _binary(x, _beyond(amount, limit).where(limit, amount), "ashr")
