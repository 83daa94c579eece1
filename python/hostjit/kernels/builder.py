# SPDX-License-Identifier: Apache-2.0
"""Builds kernels value by value."""

from __future__ import annotations

from hostjit.kernels.dtypes import DType
from hostjit.kernels.expression import (
    Apply,
    Bounded,
    Cast,
    Constant,
    Expression,
    Index,
    Load,
    Operand,
    PointwiseKernel,
    Reduce,
    ScalarArgument,
    SizeNumber,
    Store,
)
from hostjit.kernels.operation import Number, result_dtype
from hostjit.kernels.reduction import reduced_dtype
from hostjit.kernels.sizes import Size

__all__ = ["KernelBuilder"]


class KernelBuilder:
    """Builds a PointwiseKernel; equal values are made once.

    Example:
        b = KernelBuilder("relu_add", (4, 8))
        x, y, out = b.input(DType.F32), b.input(DType.F32), b.output(DType.F32)
        total = b.apply("add", b.load(x, (8, 1)), b.load(y, (0, 1)))
        b.store(out, b.apply("relu", total), (8, 1))
        kernel = b.build()
    """

    def __init__(self, name: str, shape: tuple[Size, ...], num_reduced: int = 0) -> None:
        self.name = name
        self.shape = shape
        self.num_reduced = num_reduced
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

    def load(
        self,
        operand: int,
        strides: tuple[Size, ...],
        offset: Size = 0,
        terms: tuple[tuple[int, Size], ...] = (),
    ) -> int:
        dtype = self.inputs[operand].dtype
        return self._add(Load(operand, dtype, strides, offset, terms), dtype.register)

    def bounded(self, value: int, size: Size, error: str, *, wraps: bool = False) -> int:
        """An `i64` value as a place among `size`; where it is none, the kernel fails."""
        return self._add(Bounded(value, size, wraps, error), DType.I64)

    def constant(self, dtype: DType, number: Number) -> int:
        return self._add(Constant(dtype, number), dtype.register)

    def scalar_argument(self, name: str, dtype: DType) -> int:
        return self._add(ScalarArgument(name, dtype), dtype)

    def size(self, size: Size) -> int:
        """A size as a number of type `i64`."""
        return self._add(SizeNumber(size), DType.I64)

    def index(self, strides: tuple[Size, ...], offset: Size = 0) -> int:
        return self._add(Index(strides, offset), DType.I64)

    def cast(self, value: int, dtype: DType) -> int:
        """Convert, rounding to the half types; nothing happens if the value is one of `dtype`."""
        made = self.values[value]
        is_exact = isinstance(made, Load | Cast) and made.dtype is dtype
        if self.dtype(value) is dtype or is_exact:
            return value
        return self._add(Cast(value, dtype), dtype.register)

    def apply(self, name: str, *operands: int) -> int:
        dtype = result_dtype(name, tuple(self.dtype(operand) for operand in operands))
        return self._add(Apply(name, operands), dtype)

    def reduce(self, name: str, value: int) -> int:
        """Combine a value over the points of a row."""
        return self._add(Reduce(name, value), reduced_dtype(name, self.dtype(value)))

    def store(
        self,
        operand: int,
        value: int,
        strides: tuple[Size, ...],
        offset: Size = 0,
        terms: tuple[tuple[int, Size], ...] = (),
        condition: int | None = None,
        combine: str = "",
    ) -> None:
        dtype = self.outputs[operand].dtype
        made = self.values[value]
        if isinstance(made, Cast) and made.dtype is dtype is not dtype.register:
            # The store rounds; once is enough.
            value = made.operand if self.dtype(made.operand) is dtype.register else value
        self.stores.append(Store(operand, dtype, value, strides, offset, terms, condition, combine))

    def build(self) -> PointwiseKernel:
        return PointwiseKernel(
            self.name,
            self.shape,
            tuple(self.inputs),
            tuple(self.outputs),
            tuple(self.values),
            tuple(self.stores),
            self.num_reduced,
        )

    def _add(self, value: Expression, dtype: DType) -> int:
        # The text tells -0.0 from 0.0, which equality does not.
        key = repr(value)
        if key not in self._known:
            self._known[key] = len(self.values)
            self.values.append(value)
            self._dtypes.append(dtype)
        return self._known[key]
