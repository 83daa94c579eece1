# SPDX-License-Identifier: Apache-2.0
"""From a PointwiseKernel to the text of a CUDA kernel and the shape of its launch."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from hostjit.kernels.cuda.c_text import MEMORY_TYPES, REGISTER_TYPES, prelude, text_of
from hostjit.kernels.cuda.points import point_shape, write_points
from hostjit.kernels.cuda.rows import row_shape, write_rows
from hostjit.kernels.cuda.space import Space, make_space
from hostjit.kernels.cuda.tiles import (
    SIDE,
    THREADS,
    Tiles,
    find_tiles,
    num_blocks,
    write_tiles,
)
from hostjit.kernels.cuda.values import pointer_of
from hostjit.kernels.expression import PointwiseKernel
from hostjit.kernels.sizes import Size, SymbolicSize, at_most, ceildiv

__all__ = ["CudaKernel", "cuda_kernel", "is_turned"]


# Threads of a multiprocessor that registers of rows must be enough for.
_THREADS_AT_ONCE = 768


@dataclass(frozen=True)
class CudaKernel:
    """A kernel as CUDA C++, and how it is launched.

    Attributes:
        entry: the name of the function.
        source: what NVRTC compiles; it includes nothing.
        grid: blocks along x, y and z. Where one is 0 there is nothing to launch.
        block: threads of a block along x, y and z.
        shared_memory: bytes of dynamic shared memory.
        parameters: "ptr" for each input and output, then the types of the kernel's `scalars()`,
            then "i64" for each of its `symbols()`.
    """

    entry: str
    source: str
    grid: tuple[Size, Size, Size]
    block: tuple[int, int, int]
    shared_memory: int
    parameters: tuple[str, ...]


def cuda_kernel(kernel: PointwiseKernel) -> CudaKernel:
    """Write a kernel as CUDA C++.

    An index out of bounds fails an assertion of the device, as eager's does: there is no parameter
    for failures.

    Example: kernel = cuda_kernel(builder.build()); ptx = compile_ptx(kernel.source, "sm_90")
    """
    entry = re.sub(r"\W", "_", f"{kernel.name}_kernel")  # no word of C++
    parameters = _parameters(kernel)
    blocks, threads, functions, body = _nothing()
    if kernel.stores and 0 not in kernel.shape:
        space = make_space(kernel)
        tiles = None if kernel.has_rows else find_tiles(space)
        if tiles is not None:
            written = _tiles(space, tiles, entry, parameters)
        else:
            write = _rows if kernel.has_rows else _points
            written = write(space, entry, parameters)
        blocks, threads, functions, body = written
    # Without the second number, points get few registers and many threads by themselves.
    bounds = f"{threads}, {-(-_THREADS_AT_ONCE // threads)}" if kernel.has_rows else str(threads)
    lines = [
        "namespace hostjit {",
        *functions,
        f'extern "C" __global__ void __launch_bounds__({bounds})',
        f"{entry}({parameters}) {{",
        *(f"  {line}" for line in body),
        "}",
        "}  // namespace hostjit",
    ]
    types = ["ptr"] * (len(kernel.inputs) + len(kernel.outputs))
    types += [scalar.dtype.register.value for scalar in kernel.scalars()]
    types += ["i64"] * len(kernel.symbols())
    source = prelude() + "\n".join(lines) + "\n"
    return CudaKernel(entry, source, (blocks, 1, 1), (threads, 1, 1), 0, tuple(types))


def is_turned(kernel: PointwiseKernel) -> bool:
    """Whether threads read points that others write: squares, turned in shared memory."""
    return not kernel.has_rows and find_tiles(make_space(kernel)) is not None


def _parameters(kernel: PointwiseKernel) -> str:
    aliased = any(operand.may_alias for operand in kernel.outputs)
    alone = "" if aliased else " __restrict__"
    texts = [f"const {MEMORY_TYPES[o.dtype]}*{alone} in{n}" for n, o in enumerate(kernel.inputs)]
    texts += [f"{MEMORY_TYPES[o.dtype]}*{alone} out{n}" for n, o in enumerate(kernel.outputs)]
    texts += [f"{REGISTER_TYPES[s.dtype]} a_{s.name}" for s in kernel.scalars()]
    texts += [f"long long n{n}" for n in range(len(kernel.symbols()))]
    return ", ".join(texts)


def _arguments(kernel: PointwiseKernel) -> str:
    names = [f"in{n}" for n in range(len(kernel.inputs))]
    names += [f"out{n}" for n in range(len(kernel.outputs))]
    names += [f"a_{scalar.name}" for scalar in kernel.scalars()]
    names += [f"n{n}" for n in range(len(kernel.symbols()))]
    return ", ".join(names)


# Blocks, threads of each, what is defined before the kernel, and its body.
_Written = tuple[Size, int, list[str], list[str]]


def _nothing() -> _Written:
    return 1, 32, [], []


def _points(space: Space, entry: str, parameters: str) -> _Written:
    shape = point_shape(space)
    name = f"points_of_{entry}"
    functions = write_points(space, shape, name, parameters)
    arguments = _arguments(space.kernel)
    points = text_of(space.elements, space.kernel.symbols())
    # Of what is no vector, or not all there, a few elements at once are enough.
    each = shape.width * shape.vectors
    some = min(each, 4)

    def calls(index: str) -> list[str]:
        first = f"const {index} first = static_cast<{index}>(blockIdx.x) * {shape.points};"
        conditions = [
            f"first + {shape.points} <= {points}",
            *_vector_conditions(space, shape.width),
        ]
        template = f"{name}<{index}, {shape.width}, {shape.vectors}, true>(first, {arguments});"
        scalars = f"{name}<{index}, 1, {some}, false>"
        batch = shape.threads * some
        return [
            first,
            f"if ({' && '.join(conditions)}) {{",
            f"  {template}",
            "} else {",
            "#pragma unroll 1",
            f"  for (int batch = 0; batch < {each // some}; ++batch) {{",
            f"    {scalars}(first + batch * {batch}, {arguments});",
            "  }",
            "}",
        ]

    body = _by_index_type(space, shape.points, calls)
    return ceildiv(space.elements, shape.points), shape.threads, functions, body


def _tiles(space: Space, tiles: Tiles, entry: str, parameters: str) -> _Written:
    name = f"tiles_of_{entry}"
    functions = write_tiles(space, tiles, name, parameters)
    arguments = _arguments(space.kernel)
    body = _by_index_type(space, SIDE, lambda index: [f"{name}<{index}>({arguments});"])
    return num_blocks(space, tiles), THREADS, functions, body


def _rows(space: Space, entry: str, parameters: str) -> _Written:
    shape = row_shape(space)
    name = f"rows_of_{entry}"
    conditions = _vector_conditions(space, space.width)
    functions = write_rows(space, shape, name, parameters)
    arguments = _arguments(space.kernel)
    if conditions:
        # Of what is no vector, each pass reads its elements: few registers are enough.
        scalar_name = f"scalar_{name}"
        functions += write_rows(space, shape.of_scalars(), scalar_name, parameters)

    def calls(index: str) -> list[str]:
        vectors = f"{name}<{index}, {space.width}>({arguments});"
        if not conditions:
            return [vectors]
        return [
            f"if ({' && '.join(conditions)}) {{",
            f"  {vectors}",
            "} else {",
            f"  {scalar_name}<{index}, 1>({arguments});",
            "}",
        ]

    body = _by_index_type(space, max(shape.step, shape.rows), calls)
    return ceildiv(space.rows, shape.rows), shape.threads, functions, body


def _vector_conditions(space: Space, width: int) -> list[str]:
    """What must hold at the call for accesses of `width` elements."""
    if width == 1:
        return []
    symbols = space.kernel.symbols()
    conditions = [f"{text_of(number, symbols)} % {width} == 0" for number in space.multiples]
    for access in space.starts:
        pointer = pointer_of(space.kernel, access)
        if access.offset != 0:
            pointer += f" + {text_of(access.offset, symbols)}"
        conditions.append(f"starts_vector<{width}>({pointer})")
    return list(dict.fromkeys(conditions))


def _by_index_type(space: Space, margin: int, calls: Callable[[str], list[str]]) -> list[str]:
    """The calls with indices of 32 bits if those fit, which the launch decides where it must."""
    fits = space.fits_32_bits(margin)
    if fits is not None:
        return calls("int" if fits else "long long")
    symbols = space.kernel.symbols()
    limit = (1 << 31) - 1
    conditions = [
        f"{text_of(number, symbols)} <= {limit}"
        for number in space.farthest(margin)
        if isinstance(number, SymbolicSize) or not at_most(number, limit)
    ]
    return [
        f"if ({' && '.join(dict.fromkeys(conditions))}) {{",
        *(f"  {line}" for line in calls("int")),
        "} else {",
        *(f"  {line}" for line in calls("long long")),
        "}",
    ]
