# SPDX-License-Identifier: Apache-2.0
"""The input of the kernel generator: a typed expression graph over one iteration space."""

from __future__ import annotations

from dataclasses import dataclass

from hostjit.kernels import operations as _fill_table  # noqa: F401
from hostjit.kernels.dtypes import DType
from hostjit.kernels.operation import Number, result_dtype

__all__ = [
    "Apply",
    "Cast",
    "Constant",
    "Expression",
    "Index",
    "Load",
    "Operand",
    "PointwiseKernel",
    "ScalarArgument",
    "Store",
]


@dataclass(frozen=True)
class Operand:
    """A buffer argument. `may_alias` says that an output may share memory with an input."""

    dtype: DType
    may_alias: bool = False


@dataclass(frozen=True)
class Load:
    """The element of input `operand` at `offset + sum(strides[d] * coordinate[d])`."""

    operand: int
    dtype: DType
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True)
class Constant:
    """A number of type `dtype`."""

    dtype: DType
    number: Number


@dataclass(frozen=True)
class ScalarArgument:
    """A number known only at the call: scalar argument `position`, `i64` or `f64`."""

    position: int
    dtype: DType


@dataclass(frozen=True)
class Index:
    """The `i64` number `offset + sum(strides[d] * coordinate[d])`: arange, masks."""

    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True)
class Cast:
    """Value `operand` converted to `dtype`; rounds to it also where registers are wider."""

    operand: int
    dtype: DType


@dataclass(frozen=True)
class Apply:
    """Operation `name` of the table applied to earlier values."""

    name: str
    operands: tuple[int, ...]


Expression = Load | Constant | ScalarArgument | Index | Cast | Apply


@dataclass(frozen=True)
class Store:
    """Write `value` to output `operand` at `offset + sum(strides[d] * coordinate[d])`."""

    operand: int
    dtype: DType
    value: int
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True)
class PointwiseKernel:
    """One fused pointwise kernel over `shape`.

    `values` are in SSA order; operands refer to positions in it. For each point all values are
    computed before the first store, so an output may be the same buffer as an input that is
    read at the same place (`may_alias`). Constructing an invalid kernel raises ValueError.
    """

    name: str
    shape: tuple[int, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    values: tuple[Expression, ...]
    stores: tuple[Store, ...]

    def __post_init__(self) -> None:
        dtypes = self.value_dtypes()
        for value in self.values:
            if isinstance(value, Load):
                self._check_access("load", value, self.inputs)
            elif isinstance(value, Index):
                self._check_rank("index", value.strides)
        for store in self.stores:
            self._check_access("store", store, self.outputs)
            found = dtypes[store.value]
            if found is not store.dtype.register:
                raise ValueError(
                    f"kernel '{self.name}': store to output {store.operand} has a value of type "
                    f"{found.value}, expected {store.dtype.register.value}"
                )

    def _check_rank(self, what: str, strides: tuple[int, ...]) -> None:
        if len(strides) != len(self.shape):
            raise ValueError(
                f"kernel '{self.name}': {what} has {len(strides)} strides, "
                f"expected {len(self.shape)}"
            )

    def _check_access(self, what: str, access: Load | Store, operands: tuple[Operand, ...]) -> None:
        self._check_rank(what, access.strides)
        if not 0 <= access.operand < len(operands):
            raise ValueError(
                f"kernel '{self.name}': {what} of operand {access.operand}, "
                f"there are {len(operands)}"
            )
        expected = operands[access.operand].dtype
        if access.dtype is not expected:
            raise ValueError(
                f"kernel '{self.name}': {what} of operand {access.operand} as "
                f"{access.dtype.value}, expected {expected.value}"
            )
        if access.offset < 0 or any(stride < 0 for stride in access.strides):
            raise ValueError(
                f"kernel '{self.name}': {what} of operand {access.operand} has a negative "
                "stride or offset"
            )

    def value_dtypes(self) -> list[DType]:
        """The register type of each value."""
        dtypes: list[DType] = []
        for position, value in enumerate(self.values):
            operands: tuple[int, ...] = ()
            if isinstance(value, Apply):
                operands = value.operands
            elif isinstance(value, Cast):
                operands = (value.operand,)
            if any(not 0 <= operand < position for operand in operands):
                raise ValueError(
                    f"kernel '{self.name}': value {position} uses a value not yet defined"
                )
            if isinstance(value, Apply):
                dtypes.append(result_dtype(value.name, tuple(dtypes[i] for i in operands)))
            elif isinstance(value, Index):
                dtypes.append(DType.I64)
            else:
                dtypes.append(value.dtype.register)
        return dtypes

    def scalars(self) -> list[DType]:
        """The types of the scalar arguments, in order."""
        used = {v.position: v.dtype for v in self.values if isinstance(v, ScalarArgument)}
        return [used.get(position, DType.I64) for position in range(max(used, default=-1) + 1)]
