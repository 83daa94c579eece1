# SPDX-License-Identifier: Apache-2.0
"""Conversions between element types, and between memory and registers.

Every conversion is defined for every value, as eager's is on x86: a float that does not fit an
integer becomes the integer's minimum (the narrow types take the low bits of a wider conversion).
LLVM's own conversion would be poison there.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit.kernels.dtypes import DType
from hostjit.kernels.operation import Emitter, Value

__all__ = ["cast", "load", "store"]

_I16 = ir.IntType(16)
_I32 = ir.IntType(32)


def cast(x: Value, target: DType) -> Value:
    """Convert to `target`; for the half types, round to them and keep the value in `f32`."""
    converted = _to_register(x, target.register)
    if target is target.register:
        return converted
    return _widen(x.emitter, _narrow(converted, target), target)


def load(emitter: Emitter, pointer: Any, dtype: DType) -> Value:
    """Load one element."""
    loaded = emitter.builder.load(pointer, align=dtype.itemsize, typ=dtype.memory_type())
    if dtype is DType.BOOL:
        bit = emitter.builder.icmp_unsigned("!=", loaded, ir.Constant(loaded.type, 0))
        return Value(emitter, dtype, bit)
    return _widen(emitter, loaded, dtype)


def store(x: Value, pointer: Any, dtype: DType) -> None:
    """Store one element; `x` has the register type of `dtype`."""
    builder = x.emitter.builder
    if dtype is DType.BOOL:
        stored = builder.zext(x.register, dtype.memory_type())
    else:
        stored = _narrow(x, dtype)
    builder.store(stored, pointer, align=dtype.itemsize)


def _widen(emitter: Emitter, stored: Any, dtype: DType) -> Value:
    builder = emitter.builder
    if dtype is DType.F16:
        return Value(emitter, DType.F32, builder.fpext(stored, ir.FloatType()))
    if dtype is DType.BF16:
        bits = builder.shl(builder.zext(stored, _I32), ir.Constant(_I32, 16))
        return Value(emitter, DType.F32, builder.bitcast(bits, ir.FloatType()))
    return Value(emitter, dtype, stored)


def _narrow(x: Value, dtype: DType) -> Any:
    builder = x.emitter.builder
    if dtype is DType.F16:
        return builder.fptrunc(x.register, ir.HalfType())
    if dtype is DType.BF16:
        bits = builder.bitcast(x.register, _I32)
        high = builder.lshr(bits, ir.Constant(_I32, 16))
        odd = builder.and_(high, ir.Constant(_I32, 1))
        bias = builder.add(odd, ir.Constant(_I32, 0x7FFF))
        rounded = builder.lshr(builder.add(bits, bias), ir.Constant(_I32, 16))
        nan = ir.Constant(_I32, 0x7FC0)
        return builder.trunc(builder.select(x.isnan().register, nan, rounded), _I16)
    return x.register


def _to_register(x: Value, target: DType) -> Value:
    if x.dtype is target:
        return x
    builder = x.emitter.builder
    type_ = target.register_type()
    if target is DType.BOOL:
        return x.differs(0)
    if x.dtype is DType.BOOL:
        opcode = builder.uitofp if target.is_float else builder.zext
        return Value(x.emitter, target, opcode(x.register, type_))
    if x.dtype.is_float and target.is_float:
        opcode = builder.fpext if target is DType.F64 else builder.fptrunc
        return Value(x.emitter, target, opcode(x.register, type_))
    if target.is_float:
        opcode = builder.sitofp if x.dtype.is_signed else builder.uitofp
        return Value(x.emitter, target, opcode(x.register, type_))
    if x.dtype.is_float:
        wide = DType.I64 if target in (DType.I64, DType.U8) else DType.I32
        return _resize(_float_to_integer(x, wide), target)
    return _resize(x, target)


def _float_to_integer(x: Value, target: DType) -> Value:
    """Truncate to `target`, giving its minimum for NaN and for what does not fit."""
    limit = float(1 << (target.bits - 1))
    fits = (x < limit) & (x >= -limit)
    if x.dtype is DType.F64 and target is DType.I32:
        fits = (x < limit) & (x > -limit - 1.0)
    register = x.emitter.builder.fptosi(x.register, target.register_type())
    minimum = -(1 << (target.bits - 1))
    return fits.where(Value(x.emitter, target, register), minimum)


def _resize(x: Value, target: DType) -> Value:
    builder = x.emitter.builder
    type_ = target.register_type()
    if target.bits > x.dtype.bits:
        opcode = builder.sext if x.dtype.is_signed else builder.zext
        return Value(x.emitter, target, opcode(x.register, type_))
    register = builder.trunc(x.register, type_) if target.bits < x.dtype.bits else x.register
    return Value(x.emitter, target, register)
