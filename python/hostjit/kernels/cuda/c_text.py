# SPDX-License-Identifier: Apache-2.0
"""Types, numbers and sizes as CUDA C++."""

from __future__ import annotations

import ctypes
import math
import struct
from functools import cache
from pathlib import Path

from hostjit.kernels.dtypes import DType
from hostjit.kernels.operation import Number
from hostjit.kernels.sizes import Size, Symbol, SymbolicSize

__all__ = ["MEMORY_TYPES", "REGISTER_TYPES", "literal", "narrowed", "prelude", "text_of", "widened"]

MEMORY_TYPES = {
    DType.F64: "double",
    DType.F32: "float",
    DType.F16: "f16",
    DType.BF16: "bf16",
    DType.I64: "long long",
    DType.I32: "int",
    DType.I16: "short",
    DType.I8: "signed char",
    DType.U8: "unsigned char",
    DType.BOOL: "unsigned char",
}
REGISTER_TYPES = {
    **MEMORY_TYPES,
    DType.F16: "float",
    DType.BF16: "float",
    DType.BOOL: "bool",
}
_PARTS = ("elements.cuh", "arithmetic.cuh", "groups.cuh")


@cache
def prelude() -> str:
    """What every kernel begins with: its functions, once also where sources are put together."""
    here = Path(__file__).parent
    parts = "".join((here / part).read_text() for part in _PARTS)
    return f"#ifndef HOSTJIT_CUDA_PRELUDE\n#define HOSTJIT_CUDA_PRELUDE\n{parts}#endif\n"


def literal(dtype: DType, number: Number) -> str:
    """A number, wrapped or rounded to the register type of `dtype`."""
    register = dtype.register
    if register is DType.BOOL:
        return "true" if number else "false"
    if register.is_float:
        return _float_literal(float(number), register)
    bits = int(number) & ((1 << dtype.bits) - 1)
    if dtype.is_signed and bits >> (dtype.bits - 1):
        bits -= 1 << dtype.bits
    least = -(1 << 63)
    digits = f"({least + 1}ll - 1)" if bits == least else f"{bits}ll"
    return f"static_cast<{REGISTER_TYPES[dtype]}>({digits})"


def _float_literal(number: float, dtype: DType) -> str:
    if dtype is DType.F32:
        number = ctypes.c_float(number).value
    if math.isfinite(number):
        return f"({number.hex()}{'f' if dtype is DType.F32 else ''})"
    if dtype is DType.F32:
        return f"__int_as_float(0x{struct.pack('>f', number).hex()})"
    return f"__longlong_as_double(0x{struct.pack('>d', number).hex()}ll)"


def widened(stored: str, dtype: DType) -> str:
    """What is in memory, as a register holds it."""
    return f"to_bool({stored})" if dtype is DType.BOOL else f"widen({stored})"


def narrowed(register: str, dtype: DType) -> str:
    """A register as memory holds it."""
    if dtype in (DType.F16, DType.BF16):
        return f"to_{dtype.value}({register})"
    return register


def text_of(size: Size, symbols: list[Symbol]) -> str:
    """A size as an expression of type `long long`, or a number; symbol i is parameter `n<i>`."""
    if not isinstance(size, SymbolicSize):
        return str(size)
    terms = []
    for product, factor in size.terms:
        factors = [f"n{symbols.index(symbol)}" for symbol in product]
        if factor != 1 or not factors:
            factors.append(f"({factor}ll)")
        terms.append(" * ".join(factors))
    return f"({' + '.join(terms)})"
