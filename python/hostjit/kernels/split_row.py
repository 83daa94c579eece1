# SPDX-License-Identifier: Apache-2.0
"""One long row as many short ones and a row of their results, so that threads may share it."""

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
from hostjit.kernels.sizes import quotient

__all__ = ["SplitRow", "split_row"]

# Parts are enough for the threads of most machines, and few beside the elements of each.
_FEWEST_PARTS = 16
_PARTS = 128
_MOST_PARTS = 4096


@dataclass(frozen=True)
class SplitRow:
    """Two kernels that do the work of one, over all of its inputs.

    `first` writes the outputs `elements` of the original, then one buffer of `parts` elements for
    each of `partials`. `second` reads those buffers after the inputs, and writes `results`.
    """

    first: PointwiseKernel
    second: PointwiseKernel
    elements: tuple[int, ...]
    results: tuple[int, ...]
    partials: tuple[DType, ...]
    parts: int


def split_row(kernel: PointwiseKernel) -> SplitRow | None:
    """Split a kernel whose elements are all in one row.

    None for several rows, for more than one pass, and where no size can be divided.
    """
    kept = len(kernel.shape) - kernel.num_reduced
    if math.prod(kernel.shape[:kept]) != 1 or len(make_plan(kernel, 1).passes) != 1:
        return None
    for dim in range(kept, len(kernel.shape)):
        size = kernel.shape[dim]
        parts = _divisor(size) if isinstance(size, int) else None
        if parts:
            return _Splitter(kernel, dim, parts).split()
    return None


def _divisor(size: int) -> int | None:
    divisors = [n for n in range(_FEWEST_PARTS, min(size, _MOST_PARTS) + 1) if size % n == 0]
    return min(divisors, key=lambda n: abs(n - _PARTS), default=None)


class _Splitter:
    def __init__(self, kernel: PointwiseKernel, dim: int, parts: int) -> None:
        self.kernel = kernel
        self.dim = dim
        self.parts = parts
        self.dtypes = kernel.value_dtypes()
        kept = len(kernel.shape) - kernel.num_reduced
        self.inner = [n for n in range(kept, len(kernel.shape)) if n != dim]
        sizes = [kernel.shape[n] for n in self.inner]
        each = self.each = quotient(kernel.shape[dim], parts) or 1
        self.first = KernelBuilder(kernel.name, (parts, each, *sizes), 1 + len(sizes))
        self.second = KernelBuilder(f"{kernel.name}_end", (parts,), 1)
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
            place = (1, *[0] * (len(self.first.shape) - 1))
            self.first.store(self.first.output(dtype), partial, place)
            loaded = self.second.load(self.second.input(dtype), (1,))
            self.after[number] = self.second.reduce(reduce.name, loaded)
        for store in still:
            output = self.second.output(store.dtype)
            self.second.store(output, self._second(store.value), (0,), store.offset)
        return SplitRow(
            self.first.build(),
            self.second.build(),
            tuple(store.operand for store in moving),
            tuple(store.operand for store in still),
            tuple(self.dtypes[number] for number in reductions),
            self.parts,
        )

    def _live(self) -> set[int]:
        plan = make_plan(self.kernel, 1)
        return {value for pass_ in plan.passes for value in pass_.reductions}

    def _strides(self, strides: Strides) -> Strides:
        step = strides[self.dim]
        return (step * self.each, step, *(strides[n] for n in self.inner))

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
                strides = self._strides(value.strides) if builder is self.first else (0,)
                terms = tuple((operand(index), stride) for index, stride in value.terms)
                return builder.load(value.operand, strides, value.offset, terms)
            case Index():
                strides = self._strides(value.strides) if builder is self.first else (0,)
                return builder.index(strides, value.offset)
            case Constant():
                return builder.constant(value.dtype, value.number)
            case ScalarArgument():
                return builder.scalar_argument(value.position, value.dtype)
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
