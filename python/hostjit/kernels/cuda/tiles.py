# SPDX-License-Identifier: Apache-2.0
"""The body of a kernel with operands that lie across: squares of points, turned in shared memory.

Threads that follow each other write neighbours. Where an operand has its neighbours along another
dimension, a warp reads those of a square, and gives them to the threads that need them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hostjit.kernels.cuda.c_text import MEMORY_TYPES, text_of
from hostjit.kernels.cuda.scope import Scope
from hostjit.kernels.cuda.space import ROW, VECTOR, Space
from hostjit.kernels.cuda.values import ValueWriter, pointer_of
from hostjit.kernels.expression import Load
from hostjit.kernels.sizes import Size, ceildiv, magnitude

__all__ = ["SIDE", "THREADS", "Tiles", "find_tiles", "num_blocks", "write_tiles"]

SIDE = 32
THREADS = 256
# Rows of a square that the threads of a block are for.
_LINES = THREADS // SIDE
# Elements that are farther apart are in different sectors of memory.
_APART = 8
# Bytes of shared memory that a block has without being asked.
_MOST_SHARED = 48 * 1024


@dataclass(frozen=True)
class Tiles:
    """Squares over the last dimension and `across`; `turned` are the loads that lie across."""

    across: int
    turned: tuple[int, ...]


def find_tiles(space: Space) -> Tiles | None:
    """Find what is worth turning; None without any."""
    if any(operand.may_alias for operand in space.kernel.outputs):
        return None
    across: dict[int, list[int]] = {}
    last = len(space.sizes) - 1
    for number, value in enumerate(space.kernel.values):
        if not isinstance(value, Load) or value.terms:
            continue
        strides = space.strides_of(value)
        if magnitude(strides[-1]) < _APART or strides[-1] == 0:
            continue
        for dim in range(last):
            if strides[dim] == 1:
                across.setdefault(dim, []).append(number)
    sizes = space.sizes
    across = {dim: loads for dim, loads in across.items() if magnitude(sizes[dim]) >= SIDE // 2}
    if not across or magnitude(sizes[-1]) < SIDE // 2:
        return None
    dim = max(across, key=lambda dim: len(across[dim]))
    loads = [space.kernel.values[number] for number in across[dim]]
    itemsizes = [load.dtype.itemsize for load in loads if isinstance(load, Load)]
    fitting = _MOST_SHARED // (SIDE * (SIDE + 1) * max(itemsizes))
    return Tiles(dim, tuple(across[dim][:fitting]))


def num_blocks(space: Space, tiles: Tiles) -> Size:
    """One block for each square."""
    count: Size = 1
    for dim, size in enumerate(space.sizes):
        count = count * (ceildiv(size, SIDE) if dim in _square(space, tiles) else size)
    return count


def _square(space: Space, tiles: Tiles) -> tuple[int, int]:
    return tiles.across, len(space.sizes) - 1


def write_tiles(space: Space, tiles: Tiles, name: str, parameters: str) -> list[str]:
    """Write the function template `name` over the type of indices."""
    return [
        "template <class I>",
        f"__device__ __forceinline__ void {name}({parameters}) {{",
        *(f"  {line}" for line in _TileWriter(space, tiles).write()),
        "}",
    ]


class _TileWriter(ValueWriter):
    def __init__(self, space: Space, tiles: Tiles) -> None:
        super().__init__(space)
        self.tiles = tiles

    def write(self) -> list[str]:
        body, kernel = Scope(ROW), self.kernel
        body.add(f"constexpr int V = 1, U = {SIDE // _LINES};")
        self._place_of_block(body)
        reads = self.vector_loads(self.needed(store.value for store in kernel.stores))
        for number in reads:
            self.declare_vectors(body, number, "U")
        turned = [number for number in self.tiles.turned if number in reads]
        for number in turned:
            load = kernel.values[number]
            assert isinstance(load, Load)
            type_ = MEMORY_TYPES[load.dtype]
            body.add(f"__shared__ {type_} tile{number}[{SIDE}][{SIDE + 1}];")
        across, inner = _square(self.space, self.tiles)
        # On their way from memory while those of the square are.
        if straight := [number for number in reads if number not in turned]:
            with self._each_point(body, inner, across) as scope:
                for number in straight:
                    self.load_vector(scope, number)
        with self._each_point(body, across, inner) as scope:
            for number in turned:
                load = kernel.values[number]
                assert isinstance(load, Load)
                place = self.place(scope, load, pointer_of(kernel, load))
                scope.add(f"tile{number}[line][column] = *({place});")
        body.add("__syncthreads();")
        with self._each_point(body, inner, across) as scope:
            for number in turned:
                scope.add(f"r{number}[u].element[0] = tile{number}[column][line];")
        with self._each_point(body, inner, across) as scope:
            for position, store in enumerate(kernel.stores):
                self.begin_store(scope, store, f"o{position}")
            with self.each_element(scope) as element:
                for store in kernel.stores:
                    self.value(element, store.value)
                for position, store in enumerate(kernel.stores):
                    self.store_element(element, store, f"o{position}")
            for position, store in enumerate(kernel.stores):
                self.end_store(scope, store, f"o{position}")
        return body.lines

    def _place_of_block(self, body: Scope) -> None:
        """The coordinates of other dimensions, and where the square begins along its own."""
        body.add("I block = static_cast<I>(blockIdx.x);")
        for dim in reversed(range(len(self.space.sizes))):
            size = f"static_cast<I>({text_of(self.space.sizes[dim], self.symbols)})"
            if dim in _square(self.space, self.tiles):
                body.add(f"const I tiles{dim} = ({size} - 1) / {SIDE} + 1;")
                body.add(f"const I first{dim} = rest(block, tiles{dim}) * {SIDE};")
                body.add(f"block = quotient(block, tiles{dim});")
            else:
                body.add(f"const I c{dim} = rest(block, {size});")
                body.add(f"block = quotient(block, {size});")

    @contextmanager
    def _each_point(self, body: Scope, along: int, down: int) -> Iterator[Scope]:
        """The points of a thread: its warp goes along one dimension, lines along the other."""
        body.add("#pragma unroll")
        with body.block("for (int u = 0; u < U; ++u)") as loop:
            loop.add(
                f"const int column = threadIdx.x % {SIDE};",
                f"const int line = threadIdx.x / {SIDE} + u * {_LINES};",
                f"const I c{along} = first{along} + column;",
                f"const I c{down} = first{down} + line;",
            )
            sizes = [text_of(self.space.sizes[dim], self.symbols) for dim in (along, down)]
            inside = [f"c{dim} < {size}" for dim, size in zip((along, down), sizes, strict=True)]
            with loop.block(f"if ({' && '.join(inside)})", VECTOR, "u") as scope:
                yield scope
