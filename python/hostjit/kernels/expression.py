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
    "KernelBuilder",
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


class KernelBuilder:
    """Builds a PointwiseKernel; equal values are made once.

    Example:
        b = KernelBuilder("relu_add", (4, 8))
        x, y, out = b.input(DType.F32), b.input(DType.F32), b.output(DType.F32)
        total = b.apply("add", b.load(x, (8, 1)), b.load(y, (0, 1)))
        b.store(out, b.apply("relu", total), (8, 1))
        kernel = b.build()
    """

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name = name
        self.shape = shape
        self.inputs: list[Operand] = []
        self.outputs: list[Operand] = []
        self.values: list[Expression] = []
        self.stores: list[Store] = []
        self._dtypes: list[DType] = []
        self._known: dict[str, int] = {}

    def input(self, dtype: DType) -> int:
        """Add an input buffer and return its position among the inputs."""
        self.inputs.append(Operand(dtype))
        return len(self.inputs) - 1

    def output(self, dtype: DType, *, may_alias: bool = False) -> int:
        """Add an output buffer and return its position among the outputs."""
        self.outputs.append(Operand(dtype, may_alias))
        return len(self.outputs) - 1

    def dtype(self, value: int) -> DType:
        """The register type of a value."""
        return self._dtypes[value]

    def load(self, operand: int, strides: tuple[int, ...], offset: int = 0) -> int:
        dtype = self.inputs[operand].dtype
        return self._add(Load(operand, dtype, strides, offset), dtype.register)

    def constant(self, dtype: DType, number: Number) -> int:
        return self._add(Constant(dtype, number), dtype.register)

    def scalar_argument(self, position: int, dtype: DType) -> int:
        return self._add(ScalarArgument(position, dtype), dtype)

    def index(self, strides: tuple[int, ...], offset: int = 0) -> int:
        return self._add(Index(strides, offset), DType.I64)

    def cast(self, value: int, dtype: DType) -> int:
        """Convert; nothing happens if the value has that type already."""
        if self.dtype(value) is dtype:
            return value
        return self._add(Cast(value, dtype), dtype.register)

    def apply(self, name: str, *operands: int) -> int:
        dtype = result_dtype(name, tuple(self.dtype(operand) for operand in operands))
        return self._add(Apply(name, operands), dtype)

    def store(self, operand: int, value: int, strides: tuple[int, ...], offset: int = 0) -> None:
        self.stores.append(Store(operand, self.outputs[operand].dtype, value, strides, offset))

    def build(self) -> PointwiseKernel:
        return PointwiseKernel(
            self.name,
            self.shape,
            tuple(self.inputs),
            tuple(self.outputs),
            tuple(self.values),
            tuple(self.stores),
        )

    def _add(self, value: Expression, dtype: DType) -> int:
        # The text tells -0.0 from 0.0, which equality does not.
        key = repr(value)
        if key not in self._known:
            self._known[key] = len(self.values)
            self.values.append(value)
            self._dtypes.append(dtype)
        return self._known[key]
