# SPDX-License-Identifier: Apache-2.0
"""Statements that move, join, repeat or select elements."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from operands import DTYPES, Draw, shapes
from program import Program, Statement
from torch import Tensor


def start(draw: Draw, program: Program) -> None:
    """Give the program two inputs, often of the same shape."""
    shape = draw(shapes(min_dims=draw(st.sampled_from((0, 1, 1, 2)))))
    for _ in range(2):
        dtype = draw(st.sampled_from((torch.float32, *DTYPES)))
        program.new(draw, dtype, shape)


def _has_dims(value: Tensor) -> bool:
    return value.dim() > 0


@st.composite
def _dim(draw: Draw, value: Tensor) -> int:
    return draw(st.integers(-value.dim(), value.dim() - 1))


def join(draw: Draw, program: Program) -> Statement:
    x = program.pick(draw, inexact=True)
    shape = program.values[x].shape
    same = [program.pick(draw, lambda value: value.shape == shape, inexact=True) for _ in range(2)]
    function = draw(st.sampled_from(("cat", "stack", "hstack", "vstack")))
    options = ""
    if function in ("cat", "stack"):
        dims = len(shape) + (function == "stack")
        options = f", dim={draw(st.integers(-dims, max(0, dims - 1)))}"
    return Statement(f"torch.{function}([{x}, {', '.join(same)}]{options})", exact=True)


def part(draw: Draw, program: Program) -> Statement:
    """Take a slice, a row, a diagonal, a chunk or a triangle."""
    x = program.pick(draw, _has_dims, inexact=True)
    value = program.values[x]
    dim = draw(_dim(value))
    size = value.shape[dim]
    kind = draw(st.integers(0, 6))
    if kind == 0:
        begin, step = draw(st.integers(0, size)), draw(st.integers(1, 3))
        index = ", ".join([":"] * (dim % value.dim()) + [f"{begin}::{step}"])
        return Statement(f"{x}[{index}]", exact=True)
    if kind == 1:
        begin = draw(st.integers(0, size))
        length = draw(st.integers(0, size - begin))
        return Statement(f"{x}.narrow({dim}, {begin}, {length})", exact=True)
    if kind == 2:
        return Statement(f"{x}.select({dim}, {draw(st.integers(-size - 1, size))})", exact=True)
    if kind == 3:
        return Statement(f"{x}.chunk(2, dim={dim})[0]", exact=True)
    if kind == 4:
        offset = draw(st.integers(-1, 1))
        function = draw(st.sampled_from(("diagonal", "tril", "triu")))
        return Statement(f"torch.{function}({x}, {offset})", exact=True)
    if kind == 5:
        length = draw(st.integers(1, max(1, size)))
        return Statement(f"{x}.unfold({dim}, {length}, {draw(st.integers(1, 2))})", exact=True)
    return Statement(f"{x}.unbind({dim})[-1]", exact=True)


def rearrange(draw: Draw, program: Program) -> Statement:
    x = program.pick(draw, inexact=True)
    value = program.values[x]
    dims = value.dim()
    order = draw(st.permutations(range(dims)))
    choices = [
        f"{x}.permute({tuple(order)})" if dims else f"{x}.reshape(1)",
        f"{x}.reshape(-1)" if value.numel() else f"{x}.flatten()",
        f"{x}.unsqueeze({draw(st.integers(-dims - 1, dims))})",
        f"{x}.squeeze()",
        f"{x}.contiguous()",
        f"{x}.expand(2, {', '.join(map(str, value.shape))})" if dims else f"{x}.expand(3)",
        f"{x}.repeat(2, {', '.join('1' * dims)})" if dims else f"{x}.repeat(2)",
        f"{x}.movedim(0, -1)" if dims else f"{x}.view(1)",
        f"{x}.repeat_interleave(2, dim={draw(_dim(value))})" if dims else f"{x}.unsqueeze(0)",
        f"{x}.mT" if dims > 1 else f"{x}.flatten()",
        f"{x}.view({list(value.shape)})",
    ]
    return Statement(draw(st.sampled_from(choices)), exact=True)


def turn(draw: Draw, program: Program) -> Statement:
    """Flip, roll or pad."""
    x = program.pick(draw, _has_dims, inexact=True)
    value = program.values[x]
    kind = draw(st.integers(0, 3))
    if kind == 0:
        dims = draw(st.lists(_dim(value), min_size=1, unique_by=lambda dim: dim % value.dim()))
        return Statement(f"{x}.flip({dims})", exact=True)
    if kind == 1:
        return Statement(f"{x}.roll({draw(st.integers(-3, 3))}, {draw(_dim(value))})", exact=True)
    widths = [draw(st.integers(-1, 3)) for _ in range(2 * draw(st.integers(1, value.dim())))]
    if kind == 2:
        fill = draw(st.sampled_from(("0", "1.5", "-2")))
        return Statement(f"F.pad({x}, {widths}, value={fill})", exact=True)
    mode = draw(st.sampled_from(("reflect", "replicate", "circular")))
    widths = [draw(st.integers(0, 2)) for _ in range(2)]
    return Statement(f"F.pad({x}, {widths}, mode='{mode}')", exact=True)


def look_up(draw: Draw, program: Program) -> Statement:
    """Select by an index tensor, which sometimes is out of bounds."""
    x = program.pick(draw, _has_dims, inexact=True)
    value = program.values[x]
    dim = draw(_dim(value))
    size = value.shape[dim]
    kind = draw(st.sampled_from(("index_select", "gather", "index", "embedding", "take_along")))
    integer = draw(st.sampled_from((torch.int64, torch.int64, torch.int32)))
    count = draw(st.sampled_from((0, 1, 4, 9))) if size else 0
    above = draw(st.sampled_from((0, 0, 0, 0, 1, 9)))
    if kind == "index_select":
        index = program.new(draw, integer, (count,), limit=max(1, size) + above)
        return Statement(f"torch.index_select({x}, {dim}, {index})", exact=True)
    if kind in ("gather", "take_along"):
        shape = [draw(st.integers(0, length)) for length in value.shape]
        shape[dim] = count
        index = program.new(draw, torch.int64, shape, limit=max(1, size) + above)
        return Statement(f"torch.gather({x}, {dim}, {index})", exact=True)
    # Not of no dims: eager reads such an index on the host, which a captured program can't.
    shape = (count,) if draw(st.booleans()) else (2, count)
    if kind == "embedding" and value.dim() == 2:
        shape = shape if value.shape[0] else (0,)
        index = program.new(draw, integer, shape, limit=max(1, value.shape[0]) + above)
        return Statement(f"F.embedding({index}, {x})", exact=True)
    shape = shape if size else (0,)
    index = program.new(draw, integer, shape, limit=max(1, size) + above)
    behind = draw(st.sampled_from(("", f" - {size}", f" - {size // 2}")))
    before = ":, " * (dim % value.dim())
    return Statement(f"{x}[{before}{index}.contiguous(){behind}]", exact=True)
