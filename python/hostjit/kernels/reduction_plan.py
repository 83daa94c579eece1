# SPDX-License-Identifier: Apache-2.0
"""Which passes over a row a kernel with reductions makes, and what each of them computes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from hostjit.kernels.dtypes import DType
from hostjit.kernels.expression import (
    Apply,
    Cast,
    Load,
    PointwiseKernel,
    Reduce,
    Store,
    operands_of,
)
from hostjit.kernels.sizes import SymbolicSize

__all__ = ["Pass", "Plan", "make_plan"]

# What costs less to repeat than to write and read; values made of other operations are kept.
_CHEAP = frozenset(
    (
        *("add", "sub", "mul", "neg", "abs", "maximum", "minimum"),
        *("fmax", "fmin", "clamp", "square", "addcmul", "multiply_add", "relu", "relu6"),
        *("hardsigmoid", "hardswish", "threshold", "where", "eq", "ne", "lt"),
        *("le", "gt", "ge", "isnan", "isinf", "isfinite", "signbit"),
        *("sign", "floor", "ceil", "trunc", "round", "bitwise_and", "bitwise_or"),
        *(
            "bitwise_xor",
            "bitwise_not",
            "logical_and",
            "logical_or",
            "logical_xor",
            "logical_not",
            "lerp",
        ),
        *("logical_not", "lerp", "heaviside", "nan_to_num"),
    )
)
# A row of this many bytes stays in the first cache level beside the row that is read.
_CACHED_BYTES = 8192
# Beyond it, an output's own memory is better; beyond this, so is computing again.
_MOST_CACHED_BYTES = 65536


@dataclass
class Pass:
    """One walk over the elements of a row, and what follows it.

    In the walk, `reductions` accumulate, `caches` are written and `stores` made; after it,
    `row_values` are computed for later passes and `row_stores` made.
    """

    reductions: list[int] = field(default_factory=list)
    caches: list[int] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    row_values: list[int] = field(default_factory=list)
    row_stores: list[Store] = field(default_factory=list)


@dataclass
class Plan:
    """The passes in order, and where values live between them.

    `stage` is the number of passes that must end before a value can be computed. `varies` tells
    values per element from values per row. `caches` are the values kept for each element: with
    the store whose output holds it until it is overwritten, or None for memory of its own.
    """

    passes: list[Pass]
    stage: list[int]
    varies: list[bool]
    caches: dict[int, Store | None]


def make_plan(kernel: PointwiseKernel, width: int) -> Plan:
    """Plan a kernel whose rows are computed `width` at a time."""
    return _Planner(kernel, width).plan()


class _Planner:
    def __init__(self, kernel: PointwiseKernel, width: int) -> None:
        self.kernel = kernel
        self.row = kernel.shape[len(kernel.shape) - kernel.num_reduced :]
        self.points = math.prod(self.row) * width
        self.dtypes = kernel.value_dtypes()
        self.varies = kernel.varies_in_row()
        self.stage = self._stages()
        self.expensive = self._expensive()
        self.caches: dict[int, Store | None] = {}

    def plan(self) -> Plan:
        live = self._live()
        reductions = [v for v in live if isinstance(self.kernel.values[v], Reduce)]
        element_stores = [s for s in self.kernel.stores if self.kernel.moves_in_row(s.strides)]
        ends = [self.stage[reduction] for reduction in reductions]
        ends += [self.stage[store.value] + 1 for store in element_stores]
        passes = [Pass() for _ in range(max(ends, default=1))]
        for reduction in reductions:
            passes[self.stage[reduction] - 1].reductions.append(reduction)
        for store in self.kernel.stores:
            stage = self.stage[store.value]
            if self.kernel.moves_in_row(store.strides):
                passes[stage].stores.append(store)
            else:
                passes[max(stage - 1, 0)].row_stores.append(store)
        for value in self._row_values(live, element_stores):
            passes[self.stage[value] - 1].row_values.append(value)
        self._place_caches(passes)
        return Plan(passes, self.stage, self.varies, self.caches)

    def _stages(self) -> list[int]:
        stage: list[int] = []
        for value in self.kernel.values:
            last = max((stage[operand] for operand in operands_of(value)), default=0)
            stage.append(last + 1 if isinstance(value, Reduce) else last)
        return stage

    def _expensive(self) -> list[bool]:
        """For each value, whether repeating it repeats something expensive per element."""
        expensive: list[bool] = []
        for number, value in enumerate(self.kernel.values):
            own = isinstance(value, Apply) and value.name not in _CHEAP
            own |= isinstance(value, Load) and bool(value.terms)
            made_of = any(expensive[operand] for operand in operands_of(value))
            expensive.append(self.varies[number] and (own or made_of))
        return expensive

    def _live(self) -> list[int]:
        needed: set[int] = set()
        pending = [store.value for store in self.kernel.stores]
        while pending:
            value = pending.pop()
            if value not in needed:
                needed.add(value)
                pending.extend(operands_of(self.kernel.values[value]))
        return sorted(needed)

    def _row_values(self, live: list[int], element_stores: list[Store]) -> list[int]:
        """The values per row that elements need, other than reductions themselves."""
        used = {store.value for store in element_stores}
        for value in live:
            if self.varies[value] or isinstance(self.kernel.values[value], Reduce):
                used.update(operands_of(self.kernel.values[value]))
        return [
            value
            for value in sorted(used)
            if isinstance(self.kernel.values[value], Apply | Cast)
            and not self.varies[value]
            and self.stage[value] > 0
        ]

    def _place_caches(self, passes: list[Pass]) -> None:
        first: dict[int, int] = {}
        for number, pass_ in enumerate(passes):
            roots = [operands_of(self.kernel.values[r])[0] for r in pass_.reductions]
            roots += [store.value for store in pass_.stores]
            for value in self._computed(roots, first, len(passes)):
                first.setdefault(value, number)
        for value in self.caches:
            passes[first[value]].caches.append(value)

    def _computed(self, roots: Iterable[int], earlier: dict[int, int], count: int) -> set[int]:
        """The values per element that a pass computes, given where the earlier ones were."""
        computed: set[int] = set()
        pending = list(roots)
        while pending:
            value = pending.pop()
            if value in computed or not self.varies[value]:
                continue
            if value in earlier and (value in self.caches or self._cache(value, count)):
                continue
            computed.add(value)
            pending.extend(operands_of(self.kernel.values[value]))
        return computed

    def _cache(self, value: int, count: int) -> bool:
        """Find memory to keep an expensive value in; without any, it is computed again."""
        dtype = self.dtypes[value]
        if not self.expensive[value] or dtype is DType.BOOL:
            return False
        taken = sum(self.dtypes[v].itemsize for v, store in self.caches.items() if store is None)
        # Of a row whose length is only known at the call, anything must be expected.
        points = math.inf if isinstance(self.points, SymbolicSize) else self.points
        size = points * (taken + dtype.itemsize)
        if size > _CACHED_BYTES:
            for store in self.kernel.stores:
                if self._can_hold(store, dtype, count):
                    self.caches[value] = store
                    return True
        if size > _MOST_CACHED_BYTES:
            return False
        self.caches[value] = None
        return True

    def _can_hold(self, store: Store, dtype: DType, count: int) -> bool:
        """Whether the output of a store of the last pass is free until then."""
        sharing = [other for other in self.kernel.stores if other.operand == store.operand]
        kept = len(self.kernel.shape) - self.kernel.num_reduced
        row = zip(store.strides[kept:], self.row, strict=True)
        return (
            store.dtype is dtype
            and len(sharing) == 1
            and not self.kernel.outputs[store.operand].may_alias
            and self.stage[store.value] == count - 1
            and all(stride != 0 or size == 1 for stride, size in row)
            and not any(used is store for used in self.caches.values())
        )
