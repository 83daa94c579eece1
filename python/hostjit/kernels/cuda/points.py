# SPDX-License-Identifier: Apache-2.0
"""The body of a kernel without reductions: each thread computes a few vectors of points."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hostjit.kernels.cuda.c_text import text_of
from hostjit.kernels.cuda.scope import Scope
from hostjit.kernels.cuda.space import ROW, VECTOR, Space
from hostjit.kernels.cuda.values import ValueWriter
from hostjit.kernels.expression import Load
from hostjit.kernels.sizes import SymbolicSize

__all__ = ["PointShape", "point_shape", "write_points"]

# Bytes that a thread reads before it computes: enough of them hide the latency of memory.
_BYTES_IN_FLIGHT = 64
_MOST_VECTORS = 8
# Blocks that fill a large device several times over.
_ENOUGH_BLOCKS = 1024


@dataclass(frozen=True)
class PointShape:
    """How threads share points: `vectors` of `width` for each of the `threads` of a block."""

    threads: int
    vectors: int
    width: int

    @property
    def points(self) -> int:
        """The points of a block."""
        return self.threads * self.vectors * self.width


def point_shape(space: Space) -> PointShape:
    """Choose the vectors of a thread and the threads of a block."""
    read = {
        (value.operand, value.strides): value.dtype.itemsize
        for value in space.kernel.values
        if isinstance(value, Load) and space.level(value) > ROW
    }
    written = sum(store.dtype.itemsize for store in space.kernel.stores)
    each = (sum(read.values()) or written) * space.width
    vectors = 1
    while vectors < _MOST_VECTORS and 2 * vectors * each <= _BYTES_IN_FLIGHT:
        vectors *= 2
    threads, width, points = 256, space.width, space.elements
    if isinstance(points, SymbolicSize):
        return PointShape(threads, min(vectors, 4), width)
    while vectors > 1 and points < threads * vectors * width * _ENOUGH_BLOCKS:
        vectors //= 2
    if points < threads * width * 64:
        threads = 128
    if points < threads * width:
        width = 1
    return PointShape(threads, vectors, width)


def write_points(space: Space, shape: PointShape, name: str, parameters: str) -> list[str]:
    """Write the function template `name` over the type of indices, V, U and whether all exist."""
    writer = ValueWriter(space)
    body = Scope(ROW)
    points = text_of(space.elements, writer.symbols)
    body.add(f"const I points = static_cast<I>({points});")
    reads = writer.vector_loads(writer.needed(store.value for store in space.kernel.stores))
    for number in reads:
        writer.declare_vectors(body, number, "U")
    if reads:
        with _each_vector(writer, body, shape) as scope:
            for number in reads:
                writer.load_vector(scope, number)
    with _each_vector(writer, body, shape) as scope:
        stores = list(enumerate(space.kernel.stores))
        for position, store in stores:
            writer.begin_store(scope, store, f"o{position}")
        with writer.each_element(scope) as element:
            for _, store in stores:  # all values of a point before its first store
                writer.value(element, store.value)
            for position, store in stores:
                writer.store_element(element, store, f"o{position}")
        for position, store in stores:
            writer.end_store(scope, store, f"o{position}")
    return [
        "template <class I, int V, int U, bool kAll>",
        f"__device__ __forceinline__ void {name}(const I first, {parameters}) {{",
        *(f"  {line}" for line in body.lines),
        "}",
    ]


@contextmanager
def _each_vector(writer: ValueWriter, body: Scope, shape: PointShape) -> Iterator[Scope]:
    body.add("#pragma unroll")
    with body.block("for (int u = 0; u < U; ++u)") as loop:
        loop.add(
            f"const I point = first + (u * {shape.threads} + static_cast<I>(threadIdx.x)) * V;"
        )
        with loop.block("if (kAll || point < points)", VECTOR, "u") as scope:
            writer.coordinates(scope, "point", range(len(writer.space.sizes)))
            yield scope
