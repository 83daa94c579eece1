# SPDX-License-Identifier: Apache-2.0
"""Long rows as many short ones and rows of their results, so that threads or blocks share them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hostjit.kernels.builder import KernelBuilder
from hostjit.kernels.dtypes import DType
from hostjit.kernels.expression import (
    Apply,
    Bounded,
    Cast,
    Constant,
    Index,
    Load,
    PointwiseKernel,
    Reduce,
    ScalarArgument,
    SizeNumber,
)
from hostjit.kernels.iteration import Strides
from hostjit.kernels.reduction_plan import make_plan
from hostjit.kernels.sizes import magnitude, quotient

__all__ = ["SplitRow", "split_row"]

# Parts are enough for the threads of most machines, and few beside the elements of each.
_PARTS = 128
# How many times more or fewer there may be than were asked for, if sizes divide no better.
_MORE = 32
_FEWER = 8


@dataclass(frozen=True)
class SplitRow:
    """Two kernels that do the work of one, over all of its inputs.

    `first` writes the outputs `elements` of the original, then one buffer of `partial_size`
    elements for each of `partials`. `second` reads those buffers after the inputs, and writes
    `results`.
    """

    first: PointwiseKernel
    second: PointwiseKernel
    elements: tuple[int, ...]
    results: tuple[int, ...]
    partials: tuple[DType, ...]
    partial_size: int


def split_row(kernel: PointwiseKernel, parts: int = _PARTS) -> SplitRow | None:
    """Split the rows of a kernel into about so many parts each.

    None for more than one pass, where no size can be divided, and for rows whose number is not
    known.
    """
    kept = len(kernel.shape) - kernel.num_reduced
    known = isinstance(math.prod(kernel.shape[:kept]), int)
    if not known or not kernel.num_reduced or len(make_plan(kernel, 1).passes) != 1:
        return None
    loads = [value for value in kernel.values if isinstance(value, Load)]
    # Each part is to be a piece of memory, so the farthest dimension is cut.
    dims = range(kept, len(kernel.shape))
    for dim in sorted(dims, key=lambda dim: [-magnitude(load.strides[dim]) for load in loads]):
        size = kernel.shape[dim]
        found = _divisor(size, parts) if isinstance(size, int) else None
        if found:
            return _Splitter(kernel, dim, found).split()
    return None


def _divisor(size: int, parts: int) -> int | None:
    possible = range(max(2, parts // _FEWER), min(size, parts * _MORE) + 1)
    divisors = [n for n in possible if size % n == 0]
    return min(divisors, key=lambda n: abs(n - parts), default=None)


class _Splitter:
    def __init__(self, kernel: PointwiseKernel, dim: int, parts: int) -> None:
        self.kernel = kernel
        self.dim = dim
        self.parts = parts
        self.dtypes = kernel.value_dtypes()
        kept = len(kernel.shape) - kernel.num_reduced
        self.rows = [n for n in range(kept) if kernel.shape[n] != 1]
        self.inner = [n for n in range(kept, len(kernel.shape)) if n != dim]
        rows, sizes = ([kernel.shape[n] for n in dims] for dims in (self.rows, self.inner))
        each = self.each = quotient(kernel.shape[dim], parts) or 1
        self.first = KernelBuilder(kernel.name, (parts, *rows, each, *sizes), 1 + len(sizes))
        self.second = KernelBuilder(f"{kernel.name}_end", (*rows, parts), 1)
        # Of a partial result: parts one after the other, each with all rows.
        number = math.prod(rows)
        assert isinstance(number, int)
        self.num_rows = number
        self.row_steps = tuple(math.prod(rows[n + 1 :]) for n in range(len(rows)))
        for operand in kernel.inputs:
            self.first.input(operand.dtype)
            self.second.input(operand.dtype)
        self.before: dict[int, int] = {}
        self.after: dict[int, int] = {}

    def split(self) -> SplitRow:
        kernel = self.kernel
        moving = [store for store in kernel.stores if kernel.moves_in_row(store.strides)]
        still = [store for store in kernel.stores if not kernel.moves_in_row(store.strides)]
        for store in moving:
            output = self.first.output(store.dtype)
            value = self._first(store.value)
            self.first.store(output, value, self._strides(store.strides), store.offset)
        reductions = sorted(n for n in self._live() if isinstance(kernel.values[n], Reduce))
        for number in reductions:
            reduce = kernel.values[number]
            assert isinstance(reduce, Reduce)
            dtype = self.dtypes[number]
            partial = self.first.reduce(reduce.name, self._first(reduce.operand))
            place = (self.num_rows, *self.row_steps, 0, *[0] * len(self.inner))
            self.first.store(self.first.output(dtype), partial, place)
            loaded = self.second.load(self.second.input(dtype), (*self.row_steps, self.num_rows))
            self.after[number] = self.second.reduce(reduce.name, loaded)
        for store in still:
            output = self.second.output(store.dtype)
            place = self._strides_of_rows(store.strides)
            self.second.store(output, self._second(store.value), place, store.offset)
        return SplitRow(
            self.first.build(),
            self.second.build(),
            tuple(store.operand for store in moving),
            tuple(store.operand for store in still),
            tuple(self.dtypes[number] for number in reductions),
            self.parts * self.num_rows,
        )

    def _live(self) -> set[int]:
        plan = make_plan(self.kernel, 1)
        return {value for pass_ in plan.passes for value in pass_.reductions}

    def _strides(self, strides: Strides) -> Strides:
        step = strides[self.dim]
        rows, inner = ([strides[n] for n in dims] for dims in (self.rows, self.inner))
        return (step * self.each, *rows, step, *inner)

    def _strides_in(self, builder: KernelBuilder, strides: Strides) -> Strides:
        return self._strides(strides) if builder is self.first else self._strides_of_rows(strides)

    def _strides_of_rows(self, strides: Strides) -> Strides:
        return (*(strides[n] for n in self.rows), 0)

    def _first(self, number: int) -> int:
        if number not in self.before:
            self.before[number] = self._copy(number, self.first, self._first)
        return self.before[number]

    def _second(self, number: int) -> int:
        if number not in self.after:
            self.after[number] = self._copy(number, self.second, self._second)
        return self.after[number]

    def _copy(self, number: int, builder: KernelBuilder, operand: Callable[[int], int]) -> int:
        """Add a value of the kernel to one of the two that take its place."""
        value = self.kernel.values[number]
        match value:
            case Load():
                strides = self._strides_in(builder, value.strides)
                terms = tuple((operand(index), stride) for index, stride in value.terms)
                return builder.load(value.operand, strides, value.offset, terms)
            case Index():
                strides = self._strides_in(builder, value.strides)
                return builder.index(strides, value.offset)
            case Constant():
                return builder.constant(value.dtype, value.number)
            case ScalarArgument():
                return builder.scalar_argument(value.name, value.dtype)
            case SizeNumber():
                return builder.size(value.size)
            case Cast():
                return builder.cast(operand(value.operand), value.dtype)
            case Bounded():
                place = operand(value.operand)
                return builder.bounded(place, value.size, value.error, wraps=value.wraps)
            case Apply():
                return builder.apply(value.name, *(operand(n) for n in value.operands))
        raise AssertionError("a reduction of a reduction takes a second pass")
