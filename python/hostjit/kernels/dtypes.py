# SPDX-License-Identifier: Apache-2.0
"""Element types of kernels: how each is stored in memory and held in a register."""

from __future__ import annotations

from enum import Enum
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

__all__ = ["FLOATS", "INTEGERS", "DType"]


class DType(Enum):
    """An element type, named as in Host IR.

    `f16` and `bf16` exist only in memory: a loaded value is widened to `f32`, computed on in
    `f32`, and rounded once when it is stored or explicitly cast. `bool` is one byte in memory
    (any non-zero byte is true) and one bit in a register.
    """

    F64 = "f64"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    I8 = "i8"
    U8 = "u8"
    BOOL = "bool"

    @property
    def is_float(self) -> bool:
        return self in (DType.F64, DType.F32, DType.F16, DType.BF16)

    @property
    def is_integer(self) -> bool:
        return not self.is_float and self is not DType.BOOL

    @property
    def is_signed(self) -> bool:
        """True for integers in two's complement; false for `u8` and `bool`."""
        return self in (DType.I64, DType.I32, DType.I16, DType.I8)

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory."""
        return _ITEMSIZE[self]

    @property
    def bits(self) -> int:
        return 8 * self.itemsize

    @property
    def register(self) -> DType:
        """The type that a loaded value of this type has: `f32` for the half types."""
        return DType.F32 if self in (DType.F16, DType.BF16) else self

    def memory_type(self) -> Any:
        """The LLVM type of one element in memory."""
        return _MEMORY[self]

    def register_type(self) -> Any:
        """The LLVM type of a value of `self.register`."""
        return ir.IntType(1) if self is DType.BOOL else _MEMORY[self.register]


_ITEMSIZE = {
    DType.F64: 8,
    DType.F32: 4,
    DType.F16: 2,
    DType.BF16: 2,
    DType.I64: 8,
    DType.I32: 4,
    DType.I16: 2,
    DType.I8: 1,
    DType.U8: 1,
    DType.BOOL: 1,
}

# bf16 is moved as 16 bits: the conversions are integer arithmetic, because the hardware's
# conversion instruction flushes denormals and eager does not.
_MEMORY = {
    DType.F64: ir.DoubleType(),
    DType.F32: ir.FloatType(),
    DType.F16: ir.HalfType(),
    DType.BF16: ir.IntType(16),
    DType.I64: ir.IntType(64),
    DType.I32: ir.IntType(32),
    DType.I16: ir.IntType(16),
    DType.I8: ir.IntType(8),
    DType.U8: ir.IntType(8),
    DType.BOOL: ir.IntType(8),
}

FLOATS = (DType.F64, DType.F32)
INTEGERS = (DType.I64, DType.I32, DType.I16, DType.I8, DType.U8)
