# SPDX-License-Identifier: Apache-2.0
"""The dtypes of a fusion, by nvFuser's names."""

from __future__ import annotations

import enum
import math
from typing import Any

import torch

from hostjit._C import Error

__all__ = ["DataType"]


class DataType(enum.Enum):
    """A dtype as nvFuser names it; `torch_dtype` is PyTorch's, `Index` an int64.

    `Null` stands for "none given" where a dtype is optional. nvFuser's `Float4_e2m1fn` has no
    counterpart in PyTorch, its packed form `Float4_e2m1fn_x2` has.

    Example:
        DataType.of(torch.bfloat16) is DataType.BFloat16
    """

    Double = "Double"
    Float = "Float"
    Half = "Half"
    Int = "Int"
    Int32 = "Int32"
    UInt64 = "UInt64"
    Index = "Index"
    Bool = "Bool"
    BFloat16 = "BFloat16"
    Float8_e4m3fn = "Float8_e4m3fn"
    Float8_e5m2 = "Float8_e5m2"
    Float8_e8m0fnu = "Float8_e8m0fnu"
    Float4_e2m1fn = "Float4_e2m1fn"
    Float4_e2m1fn_x2 = "Float4_e2m1fn_x2"
    ComplexFloat = "ComplexFloat"
    ComplexDouble = "ComplexDouble"
    Null = "Null"

    def __repr__(self) -> str:
        return str(self)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of PyTorch; raises hostjit.Error for those that it lacks."""
        found = _TORCH.get(self)
        if found is None:
            raise Error(f"{self} has no dtype of PyTorch")
        return found

    @classmethod
    def of(cls, dtype: torch.dtype) -> DataType:
        """Return the DataType of a dtype of PyTorch; raises hostjit.Error for those without."""
        found = _DATA_TYPES.get(dtype)
        if found is None:
            raise Error(f"nvFuser has no DataType for {dtype}")
        return found

    @property
    def is_complex(self) -> bool:
        """Whether values are complex."""
        return self in (DataType.ComplexFloat, DataType.ComplexDouble)

    @property
    def is_floating(self) -> bool:
        """Whether values are real floating point numbers."""
        found = _TORCH.get(self)
        return found is not None and found.is_floating_point

    @property
    def is_integral(self) -> bool:
        """Whether values are integers; Bool is none."""
        return self in _INTEGRAL

    @property
    def is_narrow(self) -> bool:
        """Whether nvFuser computes in Float instead: half types and shorter."""
        return self.is_floating and self not in (DataType.Float, DataType.Double)

    @property
    def rank_of_kind(self) -> int:
        """0 for Bool, 1 for integers, 2 for floating point, 3 for complex: each holds the last."""
        if self.is_complex:
            return 3
        if self.is_floating:
            return 2
        return 1 if self.is_integral else 0

    @property
    def real(self) -> DataType:
        """The dtype of the parts of a complex one; any other as it is."""
        parts = {DataType.ComplexFloat: DataType.Float, DataType.ComplexDouble: DataType.Double}
        return parts.get(self, self)

    def convert(self, value: Any) -> bool | int | float | complex:
        """Return a Python number as one of this kind, as a cast does."""
        if self.is_complex:
            return complex(value)
        if isinstance(value, complex):
            raise Error(f"the complex number {value} is no {self}")
        if self.is_floating:
            return float(value)
        if self.is_integral and not math.isfinite(value):
            raise Error(f"{value} is no {self}")
        return int(value) if self.is_integral else bool(value)


_INTEGRAL = (DataType.Int, DataType.Int32, DataType.UInt64, DataType.Index)
_NAMES = {
    DataType.Double: "float64",
    DataType.Float: "float32",
    DataType.Half: "float16",
    DataType.Int: "int64",
    DataType.Int32: "int32",
    DataType.UInt64: "uint64",
    DataType.Bool: "bool",
    DataType.BFloat16: "bfloat16",
    DataType.Float8_e4m3fn: "float8_e4m3fn",
    DataType.Float8_e5m2: "float8_e5m2",
    DataType.Float8_e8m0fnu: "float8_e8m0fnu",
    DataType.Float4_e2m1fn_x2: "float4_e2m1fn_x2",
    DataType.ComplexFloat: "complex64",
    DataType.ComplexDouble: "complex128",
}
_DATA_TYPES: dict[torch.dtype, DataType] = {
    getattr(torch, name): data_type for data_type, name in _NAMES.items() if hasattr(torch, name)
}
_TORCH = {data_type: dtype for dtype, data_type in _DATA_TYPES.items()}
_TORCH[DataType.Index] = torch.int64
