# SPDX-License-Identifier: Apache-2.0
"""A kernel of few long rows as several, so that more blocks than there are rows share the work."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hostjit.kernels.builder import KernelBuilder
from hostjit.kernels.cuda.rows import row_shape
from hostjit.kernels.cuda.space import Space, make_space
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
    Store,
)
from hostjit.kernels.iteration import Strides
from hostjit.kernels.reduction_plan import make_plan

__all__ = ["Buffer", "Launches", "Step", "split_long_rows"]

# Blocks that keep a large device busy, and what is worth further launches.
_BLOCKS = 528
_FEW_BLOCKS = 132
_FEWEST_POINTS = 1 << 17
# The least that a part of a row has: along memory, and across it, where warps take turns.
_FEWEST_ALONG = 4096
_FEWEST_ACROSS = 64


@dataclass(frozen=True)
class Buffer:
    """An operand of a step, `kind` "input" or "output": of the kernel; or a "temporary"."""

    kind: str
    place: int


@dataclass(frozen=True)
class Step:
    """A kernel to launch, and its operands."""

    kernel: PointwiseKernel
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]


@dataclass(frozen=True)
class Launches:
    """What to launch in place of a kernel, in order; temporaries are types and element counts."""

    temporaries: tuple[tuple[DType, int], ...]
    steps: tuple[Step, ...]


def split_long_rows(kernel: PointwiseKernel) -> Launches | None:
    """Split the rows of a kernel into parts for blocks of their own.

    For each reduction that depends on others there are two launches: results of parts, and of
    these the results of rows. A last one writes the elements that depend on all of them.

    Returns: None where one launch is as good, or sizes are only known at the call.
    Example: split_long_rows(kernel) of a sum over 2**26 elements has two steps
    """
    if not all(isinstance(size, int) for size in kernel.shape) or 0 in kernel.shape:
        return None
    if not any(isinstance(value, Reduce) for value in kernel.values) or not kernel.stores:
        return None
    space = make_space(kernel)
    found = _best_split(kernel, space)
    return _Splitter(kernel, space, *found).split() if found else None


def _best_split(kernel: PointwiseKernel, space: Space) -> tuple[int, int] | None:
    """The dimension to split and the number of its parts."""
    rows, length = space.rows, space.elements
    assert isinstance(rows, int) and isinstance(length, int)
    blocks = -(-rows // row_shape(space).rows)
    fewest = _FEWEST_ACROSS if space.columns else _FEWEST_ALONG
    wanted = min(-(-_BLOCKS // blocks), length // fewest)
    if blocks >= _FEW_BLOCKS or rows * length < _FEWEST_POINTS or wanted < 2:
        return None
    candidates = []
    for dim in range(len(kernel.shape) - kernel.num_reduced, len(kernel.shape)):
        size = kernel.shape[dim]
        assert isinstance(size, int)
        for parts in range(max(2, -(-wanted // 4)), min(size, 2 * wanted) + 1):
            if size % parts == 0:
                # Parts in one piece, which begin where vectors may, are better than many.
                ragged = not space.columns and (length // parts) % 8 != 0
                candidates.append((ragged, dim, abs(math.log(parts / wanted)), parts))
    if not candidates:
        return None
    _, dim, _, parts = min(candidates)
    return dim, parts


class _Splitter:
    def __init__(self, kernel: PointwiseKernel, space: Space, dim: int, parts: int) -> None:
        self.kernel = kernel
        self.dim = dim
        self.parts = parts
        self.dtypes = kernel.value_dtypes()
        self.plan = make_plan(kernel, 1)
        num_kept = len(kernel.shape) - kernel.num_reduced
        self.kept = kernel.shape[:num_kept]
        self.inner = [n for n in range(num_kept, len(kernel.shape)) if n != dim]
        self.each = kernel.shape[dim] // parts  # type: ignore[operator]
        rows = space.rows
        assert isinstance(rows, int)
        self.rows = rows
        self.temporaries: list[tuple[DType, int]] = []
        # Of reductions, the temporary with the results of parts and that with those of rows.
        self.partials: dict[int, Buffer] = {}
        self.results: dict[int, Buffer] = {}
        self.row_strides = _row_major(self.kept)
        across = space.columns
        unit = 1 if across else parts
        self.part_strides = (
            *(step * unit for step in self.row_strides),
            self.rows if across else 1,
        )

    def split(self) -> Launches:
        kernel, stage = self.kernel, self.plan.stage
        reductions = sorted({n for pass_ in self.plan.passes for n in pass_.reductions})
        last = max(stage[n] for n in reductions)
        steps: list[Step] = []
        elements = [s for s in kernel.stores if kernel.moves_in_row(s.strides)]
        rows = [s for s in kernel.stores if not kernel.moves_in_row(s.strides)]
        for number in reductions:
            self.partials[number] = self._temporary(number, self.rows * self.parts)
        for level in range(1, last + 1):
            here = [n for n in reductions if stage[n] == level]
            stored = [s for s in elements if stage[s.value] == level - 1]
            steps.append(_PartStep(self, f"{kernel.name}_parts{level}").write(here, stored))
            ready = [s for s in rows if max(stage[s.value], 1) == level]
            is_needed = level < last or any(stage[s.value] >= level for s in elements)
            for number in here if is_needed else ():
                self.results[number] = self._temporary(number, self.rows)
            steps.append(_RowStep(self, f"{kernel.name}_rows{level}").write(here, ready))
        after = [s for s in elements if stage[s.value] == last]
        if after:
            steps.append(_ElementStep(self, f"{kernel.name}_elements").write([], after))
        return Launches(tuple(self.temporaries), tuple(steps))

    def _temporary(self, number: int, count: int) -> Buffer:
        self.temporaries.append((self.dtypes[number], count))
        return Buffer("temporary", len(self.temporaries) - 1)


class _StepWriter:
    """Writes one step: values of the kernel anew, over another shape."""

    def __init__(self, splitter: _Splitter, name: str) -> None:
        self.splitter = splitter
        self.kernel = splitter.kernel
        shape, num_reduced = self.shape()
        self.builder = KernelBuilder(name, shape, num_reduced)
        self.inputs: list[Buffer] = []
        self.outputs: list[Buffer] = []
        self.known: dict[int, int] = {}

    def shape(self) -> tuple[Strides, int]:
        """The shape of the step and how many of its last dimensions are reduced."""
        raise NotImplementedError

    def strides(self, strides: Strides) -> Strides:
        """What strides over the kernel's shape are over that of the step."""
        raise NotImplementedError

    def result_strides(self) -> Strides:
        """The strides of a temporary with an element for each row."""
        rest = len(self.builder.shape) - len(self.splitter.kept)
        return (*self.splitter.row_strides, *[0] * rest)

    def write(self, reductions: list[int], stores: list[Store]) -> Step:
        """Write the step that makes these reductions and stores."""
        for number in reductions:
            self.write_reduction(number)
        for store in stores:
            operand = self.kernel.outputs[store.operand]
            output = self.output(
                Buffer("output", store.operand), operand.dtype, may_alias=operand.may_alias
            )
            strides = self.strides(store.strides)
            self.builder.store(output, self.value(store.value), strides, store.offset)
        return Step(self.builder.build(), tuple(self.inputs), tuple(self.outputs))

    def write_reduction(self, number: int) -> None:
        """Make what this step does of a reduction."""
        raise NotImplementedError

    def input(self, buffer: Buffer, dtype: DType) -> int:
        if buffer not in self.inputs:
            self.inputs.append(buffer)
            self.builder.input(dtype)
        return self.inputs.index(buffer)

    def output(self, buffer: Buffer, dtype: DType, *, may_alias: bool = False) -> int:
        if buffer not in self.outputs:
            self.outputs.append(buffer)
            self.builder.output(dtype, may_alias=may_alias)
        return self.outputs.index(buffer)

    def value(self, number: int) -> int:
        if number not in self.known:
            self.known[number] = self._copy(number, self.builder, self.value)
        return self.known[number]

    def _copy(self, number: int, builder: KernelBuilder, operand: Callable[[int], int]) -> int:
        value = self.kernel.values[number]
        match value:
            case Load():
                terms = tuple((operand(index), stride) for index, stride in value.terms)
                place = self.input(Buffer("input", value.operand), value.dtype)
                return builder.load(place, self.strides(value.strides), value.offset, terms)
            case Index():
                return builder.index(self.strides(value.strides), value.offset)
            case Constant():
                return builder.constant(value.dtype, value.number)
            case ScalarArgument():
                return builder.scalar_argument(value.name, value.dtype)
            case SizeNumber():
                return builder.size(value.size)
            case Cast():
                return builder.cast(operand(value.operand), value.dtype)
            case Bounded():
                index = operand(value.operand)
                return builder.bounded(index, value.size, value.error, wraps=value.wraps)
            case Apply():
                return builder.apply(value.name, *(operand(n) for n in value.operands))
            case Reduce():
                result = self.splitter.results[number]
                place = self.input(result, self.splitter.dtypes[number])
                return builder.load(place, self.result_strides())


class _PartStep(_StepWriter):
    """Reduces the parts of each row."""

    def shape(self) -> tuple[Strides, int]:
        splitter = self.splitter
        inner = [self.kernel.shape[n] for n in splitter.inner]
        return (*splitter.kept, splitter.parts, splitter.each, *inner), 1 + len(inner)

    def strides(self, strides: Strides) -> Strides:
        splitter = self.splitter
        step = strides[splitter.dim]
        kept = strides[: len(splitter.kept)]
        return (*kept, step * splitter.each, step, *(strides[n] for n in splitter.inner))

    def write_reduction(self, number: int) -> None:
        reduce = self.kernel.values[number]
        assert isinstance(reduce, Reduce)
        found = self.builder.reduce(reduce.name, self.value(reduce.operand))
        output = self.output(self.splitter.partials[number], self.splitter.dtypes[number])
        zeros = [0] * (1 + len(self.splitter.inner))
        self.builder.store(output, found, (*self.splitter.part_strides, *zeros))


class _RowStep(_StepWriter):
    """Reduces the results of parts, and stores what there is once in a row."""

    def shape(self) -> tuple[Strides, int]:
        return (*self.splitter.kept, self.splitter.parts), 1

    def strides(self, strides: Strides) -> Strides:
        return (*strides[: len(self.splitter.kept)], 0)

    def write_reduction(self, number: int) -> None:
        splitter = self.splitter
        reduce = self.kernel.values[number]
        assert isinstance(reduce, Reduce)
        place = self.input(splitter.partials[number], splitter.dtypes[number])
        partial = self.builder.load(place, splitter.part_strides)
        self.known[number] = self.builder.reduce(reduce.name, partial)
        if number in splitter.results:
            output = self.output(splitter.results[number], splitter.dtypes[number])
            self.builder.store(output, self.known[number], self.result_strides())


class _ElementStep(_StepWriter):
    """Writes the elements that depend on the last reductions."""

    def shape(self) -> tuple[Strides, int]:
        return self.kernel.shape, 0

    def strides(self, strides: Strides) -> Strides:
        return strides


def _row_major(shape: Strides) -> Strides:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        assert isinstance(size, int)
        step *= size
    return tuple(strides)
