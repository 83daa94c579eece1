# SPDX-License-Identifier: Apache-2.0
"""The body of a kernel with reductions: threads share a row, and keep its elements in registers.

A row that is too long for that is read again in each pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from hostjit.kernels.cuda.c_text import REGISTER_TYPES, literal, text_of
from hostjit.kernels.cuda.scope import Scope
from hostjit.kernels.cuda.space import ROW, VECTOR, Space
from hostjit.kernels.cuda.values import ValueWriter
from hostjit.kernels.expression import Load, Reduce, operands_of
from hostjit.kernels.reduction import REDUCTIONS
from hostjit.kernels.reduction_plan import Pass, Plan, make_plan
from hostjit.kernels.sizes import Size, SymbolicSize, quotient

__all__ = ["RowShape", "row_shape", "write_rows"]

_COMBINE = {"sum": "Sum", "prod": "Product", "max": "Largest", "min": "Smallest"}
# Registers of 32 bits that a thread may keep elements in, with up to 512 threads and with more.
_REGISTERS = 64
_FEW_REGISTERS = 24
_MOST_KEPT = 32
# Elements that a thread reads at once of a row that is too long.
_BATCH = 8
# Threads that fill a large device.
_ENOUGH_THREADS = 132 * 1024
_WARP = 32
# Threads whose vectors fill a line of 128 bytes.
_FEWEST_NEIGHBOURS = 8
# Threads of a block whose rows have a part of a warp each.
_THREADS = 128


@dataclass(frozen=True)
class RowShape:
    """How threads share rows: `group` of the `threads` of a block for each of its rows.

    `elements` is what a thread has of a row: all of it if `keeps`, else what it reads at once.
    """

    threads: int
    group: int
    elements: int
    keeps: bool
    columns: bool

    @property
    def rows(self) -> int:
        """The rows of a block."""
        return self.threads // self.group

    def of_scalars(self) -> RowShape:
        """The same threads, where elements do not stay in registers."""
        return replace(self, elements=_BATCH, keeps=False)

    @property
    def step(self) -> int:
        """The elements of a row that its threads have at once."""
        return self.group * self.elements


def row_shape(space: Space) -> RowShape:
    """Choose the threads of a row and whether its elements stay in registers."""
    length, rows = space.elements, space.rows
    each = _registers_per_element(space)
    num_rows = _ENOUGH_THREADS if isinstance(rows, SymbolicSize) else max(rows, 1)
    if isinstance(length, SymbolicSize):
        if space.columns:
            return RowShape(256, 8, _BATCH, keeps=False, columns=True)
        return RowShape(256, 256, max(_BATCH, space.width), keeps=False, columns=False)
    if space.columns:
        return _column_shape(space, length, num_rows, each)
    most = max(space.width, min(_MOST_KEPT, _REGISTERS // each))
    group = _power_above(-(-length // most))
    vectors = -(-length // space.width)
    group = max(group, min(_FEWEST_NEIGHBOURS, _power_above(vectors)))
    while group < vectors and group < 1024 and num_rows * group < _ENOUGH_THREADS:
        group *= 2
    threads = group if group > _WARP else _THREADS
    if threads > 512:
        most = max(space.width, min(_MOST_KEPT, _FEW_REGISTERS // each))
    if threads > 1024 or group * most < length:
        group = 512
        return RowShape(512, 512, max(_BATCH, space.width), keeps=False, columns=False)
    elements = -(-length // (group * space.width)) * space.width
    return RowShape(threads, group, elements, keeps=True, columns=False)


def _column_shape(space: Space, length: int, num_rows: int, each: int) -> RowShape:
    """A warp's rows lie side by side; the more threads share one, the fewer rows there are."""
    columns = min(_WARP, _power_above(num_rows))
    group = 256 // columns
    while group * columns < 1024 and num_rows * group < _ENOUGH_THREADS and group * 8 < length:
        group *= 2
    while group > 1 and group >= 2 * length:
        group //= 2
    threads = group * columns
    most = min(_MOST_KEPT, (_FEW_REGISTERS if threads > 512 else _REGISTERS) // each)
    if group * most < length:
        return RowShape(threads, group, _BATCH, keeps=False, columns=True)
    return RowShape(threads, group, -(-length // group), keeps=True, columns=True)


def _power_above(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


def _registers_per_element(space: Space) -> int:
    """The registers that an element of a row needs between passes."""
    kernel = space.kernel
    writer = _RowWriter(space, keeps=True)
    sizes = [kernel.values[n].dtype.itemsize for n in writer.kept_loads()]  # type: ignore[union-attr]
    sizes += [writer.dtypes[value].itemsize for value in writer.plan.caches]
    return max(1, -(-sum(sizes) // 4))


def write_rows(space: Space, shape: RowShape, name: str, parameters: str) -> list[str]:
    """Write the function template `name` over the type of indices and V."""
    writer = _RowWriter(space, keeps=shape.keeps)
    return [
        "template <class I, int V>",
        f"__device__ __forceinline__ void {name}({parameters}) {{",
        *(f"  {line}" for line in writer.write(shape)),
        "}",
    ]


class _RowWriter(ValueWriter):
    def __init__(self, space: Space, *, keeps: bool) -> None:
        super().__init__(space)
        self.plan: Plan = make_plan(space.kernel, 1)
        self.keeps = keeps
        self.body = Scope(ROW)

    def kept_loads(self) -> list[int]:
        """Loads of elements that several passes read."""
        counts: dict[int, int] = {}
        cached: set[int] = set()
        for pass_ in self.plan.passes:
            for number in self.vector_loads(self._computed(pass_, cached)):
                counts[number] = counts.get(number, 0) + 1
            cached.update(pass_.caches)
        return [number for number, count in counts.items() if count > 1]

    def _computed(self, pass_: Pass, cached: set[int]) -> list[int]:
        """The values per element that a pass computes."""
        pending = [operands_of(self.kernel.values[value])[0] for value in pass_.reductions]
        pending += [store.value for store in pass_.stores]
        found: set[int] = set()
        while pending:
            number = pending.pop()
            if number in found or number in cached or not self.plan.varies[number]:
                continue
            found.add(number)
            pending.extend(operands_of(self.kernel.values[number]))
        return sorted(found)

    def write(self, shape: RowShape) -> list[str]:
        body, space = self.body, self.space
        thread, group, rows = "static_cast<I>(threadIdx.x)", shape.group, shape.rows
        lane, row = (f"{thread} % {group}", f"{thread} / {group}")
        if shape.columns:
            lane, row = (f"{thread} / {rows}", f"{thread} % {rows}")
        all_rows = text_of(space.rows, self.symbols)
        length = text_of(space.elements, self.symbols)
        body.add(
            f"constexpr int C = {shape.elements} / V;",
            f"const I lane = {lane};",
            f"I row = static_cast<I>(blockIdx.x) * {rows} + {row};",
            f"const bool exists = row < static_cast<I>({all_rows});",
            "if (!exists) row = 0;  // one that is there, to take part in reductions",
            f"const I length = static_cast<I>({length});",
        )
        self.coordinates(body, "row", range(space.num_kept))
        # Their way from memory is as long as that of the elements: all set out together.
        for number in self.needed(store.value for store in space.kernel.stores):
            if isinstance(self.kernel.values[number], Load) and self.levels[number] == ROW:
                self.value(body, number)
        kept_loads = self.kept_loads() if self.keeps else []
        for number in kept_loads:
            self.declare_vectors(body, number, "C")
        loaded: set[int] = set()
        cached: set[int] = set()
        for pass_ in self.plan.passes:
            self._pass(shape, pass_, cached, loaded, kept_loads)
        return body.lines

    def _pass(
        self,
        shape: RowShape,
        pass_: Pass,
        cached: set[int],
        loaded: set[int],
        kept_loads: list[int],
    ) -> None:
        body = self.body
        computed = self._computed(pass_, cached)
        roots = {n for number in computed for n in operands_of(self.kernel.values[number])}
        for number in sorted(roots):
            if self.levels[number] == ROW:
                self.value(body, number)
        for value in pass_.reductions:
            reduce = self.kernel.values[value]
            assert isinstance(reduce, Reduce)
            identity = REDUCTIONS[reduce.name].identity(self.dtypes[value])
            type_ = REGISTER_TYPES[self.dtypes[value]]
            body.add(f"{type_} t{value} = {literal(self.dtypes[value], identity)};")
        caches = pass_.caches if self.keeps else []
        for value in caches:
            body.add(f"{REGISTER_TYPES[self.dtypes[value]]} x{value}[C][V];")
        if pass_.reductions or pass_.stores:
            loads = self.vector_loads(computed)
            with self._walk(shape) as walk:
                for number in loads:
                    if number not in kept_loads:
                        self.declare_vectors(walk, number, "C")
                fresh = [number for number in loads if number not in loaded]
                at_once = [number for number in fresh if not self._is_shared(number)]
                if at_once:
                    with self._each_vector(walk, shape) as scope:
                        for number in at_once:
                            self.load_vector(scope, number)
                late = [number for number in fresh if number not in at_once]
                self._elements(walk, shape, pass_, caches, late)
            loaded.update(number for number in loads if number in kept_loads)
        cached.update(caches)
        self.kept.update(caches)
        self._finish(shape, pass_)

    def _is_shared(self, number: int) -> bool:
        """Whether all rows read the same elements: the cache has them, and registers are few."""
        load = self.kernel.values[number]
        assert isinstance(load, Load)
        rows = self.space.strides_of(load)[: self.space.num_kept]
        return not load.terms and bool(rows) and all(step == 0 for step in rows)

    def _elements(
        self, walk: Scope, shape: RowShape, pass_: Pass, caches: list[int], late: list[int]
    ) -> None:
        with self._each_vector(walk, shape) as scope:
            for number in late:
                self.load_vector(scope, number)
            stores = [(self.kernel.stores.index(store), store) for store in pass_.stores]
            for position, store in stores:
                self.begin_store(scope, store, f"o{position}")
            with self.each_element(scope) as element:
                for value in pass_.reductions:
                    reduce = self.kernel.values[value]
                    assert isinstance(reduce, Reduce)
                    found = self.value(element, reduce.operand)
                    combine = _COMBINE[reduce.name]
                    element.add(f"t{value} = {combine}::combine(t{value}, {found});")
                for value in caches:
                    element.add(f"x{value}[u][e] = {self.value(element, value)};")
                for position, store in stores:
                    self.store_element(element, store, f"o{position}")
            for position, store in stores:
                self.end_store(scope, store, f"o{position}")

    def _finish(self, shape: RowShape, pass_: Pass) -> None:
        body = self.body
        for value in pass_.reductions:
            reduce = self.kernel.values[value]
            assert isinstance(reduce, Reduce)
            combine = _COMBINE[reduce.name]
            call = f"reduce_neighbours<{combine}, {shape.group}>(t{value})"
            if shape.columns:
                call = f"reduce_columns<{combine}, {shape.rows}, {shape.group}>(t{value})"
            body.add(f"const {REGISTER_TYPES[self.dtypes[value]]} v{value} = {call};")
            body.known[value] = f"v{value}"
        for value in pass_.row_values:
            self.value(body, value)
        if pass_.row_stores:
            for store in pass_.row_stores:
                self.value(body, store.value)
            with body.block("if (exists && lane == 0)") as scope:
                for store in pass_.row_stores:
                    self.store_row(scope, store)

    @contextmanager
    def _walk(self, shape: RowShape) -> Iterator[Scope]:
        """The row at once, or the loop over what of it is read at once."""
        if self.keeps:
            with self.body.block("") as scope:
                scope.add("const I start = 0;")
                yield scope
            return
        head = f"for (I start = 0; start < length; start += {shape.step})"
        with self.body.block(head) as scope:
            yield scope

    @contextmanager
    def _each_vector(self, walk: Scope, shape: RowShape) -> Iterator[Scope]:
        walk.add("#pragma unroll")
        with walk.block("for (int u = 0; u < C; ++u)") as loop:
            loop.add(f"const I here = start + (u * {shape.group} + lane) * V;")
            length = self.space.elements
            conditions = [
                *(["exists"] if not _divides(shape.rows, self.space.rows) else []),
                *(["here < length"] if not _divides(shape.step, length) else []),
            ]
            head = f"if ({' && '.join(conditions)})" if conditions else ""
            with loop.block(head, VECTOR, "u") as scope:
                dims = range(self.space.num_kept, len(self.space.sizes))
                self.coordinates(scope, "here", dims)
                yield scope


def _divides(count: int, size: Size) -> bool:
    return quotient(size, count) is not None
