# SPDX-License-Identifier: Apache-2.0
"""Statements that are matrix products and convolutions."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from operands import FLOATS, INTEGERS, Draw
from program import Program, Statement, UnfitError

_SIZE = st.sampled_from((0, 1, 1, 2, 3, 5, 8, 16, 17, 24, 33))


def start(draw: Draw, program: Program) -> None:
    """Give the program a matrix, or a batch of them."""
    dtype = draw(st.sampled_from((*FLOATS, *[torch.float32] * 4, *INTEGERS[:2])))
    batch = draw(st.sampled_from(((), (), (), (1,), (3,), (2, 2))))
    program.new(draw, dtype, (*batch, draw(_SIZE), draw(_SIZE)))


def product(draw: Draw, program: Program) -> Statement:
    if program.style == "extreme":
        raise UnfitError
    x = program.pick(draw, lambda value: value.dim() > 1)
    value = program.values[x]
    columns = draw(_SIZE)
    inner = value.shape[-1]

    def new(*shape: int) -> str:
        return program.new(draw, value.dtype, shape)

    if value.dim() > 2:
        x = f"{x}.contiguous()"
    kinds = ("matmul", "linear", "vector", "batched", "addmm", "baddbmm", "transposed")
    kind = draw(st.sampled_from(kinds))
    if kind == "linear":
        bias = f", {new(columns)}" if draw(st.booleans()) else ""
        expression = f"F.linear({x}, {new(columns, inner)}{bias})"
    elif kind == "vector":
        expression = f"torch.matmul({x}, {new(inner)})"
    elif kind == "batched" and value.dim() == 3:
        expression = f"torch.bmm({x}, {new(value.shape[0], inner, columns)})"
    elif kind == "addmm" and value.dim() == 2:
        scale = draw(st.sampled_from(("", ", beta=2", ", alpha=3", ", beta=0")))
        bias = draw(st.sampled_from(((columns,), (value.shape[0], columns), (1, columns))))
        expression = f"torch.addmm({new(*bias)}, {x}, {new(inner, columns)}{scale})"
    elif kind == "baddbmm" and value.dim() == 3:
        scale = draw(st.sampled_from(("", ", beta=2", ", alpha=3", ", beta=0")))
        batch, rows, _ = value.shape
        bias = draw(st.sampled_from(((columns,), (batch, rows, columns), (batch, 1, columns))))
        expression = f"torch.baddbmm({new(*bias)}, {x}, {new(batch, inner, columns)}{scale})"
    elif kind == "transposed":
        expression = f"torch.matmul({x}.mT, {new(value.shape[-2], columns)})"
    else:
        expression = f"{x} @ {new(inner, columns)}"
    activation = draw(st.sampled_from(("", "", "torch.tanh", "torch.relu", "F.silu")))
    return Statement(f"{activation}({expression})" if activation else expression, exact=False)


def attention(draw: Draw, program: Program) -> Statement:
    if program.style == "extreme":
        raise UnfitError
    dtype = draw(st.sampled_from(FLOATS[:3]))
    heads, steps, others, width = (draw(st.sampled_from((1, 2, 5, 8))) for _ in range(4))
    query = program.new(draw, dtype, (2, heads, steps, width))
    key, value = (program.new(draw, dtype, (2, heads, others, width)) for _ in range(2))
    options = draw(st.sampled_from(("", ", is_causal=True", ", scale=0.5")))
    return Statement(
        f"F.scaled_dot_product_attention({query}, {key}, {value}{options})", exact=False
    )


def convolution(draw: Draw, program: Program) -> Statement:
    if program.style == "extreme":
        raise UnfitError
    dims = draw(st.integers(1, 2))
    dtype = draw(st.sampled_from((torch.float32, torch.float32, torch.float64)))
    groups = draw(st.sampled_from((1, 1, 2)))
    inputs, outputs = (groups * draw(st.integers(1, 3)) for _ in range(2))
    width = draw(st.integers(1, 3))
    sizes = [draw(st.integers(3, 9)) for _ in range(dims)]
    x = program.new(draw, dtype, (draw(st.integers(0, 2)), inputs, *sizes))
    weight = program.new(draw, dtype, (outputs, inputs // groups, *[width] * dims))
    bias = f", {program.new(draw, dtype, (outputs,))}" if draw(st.booleans()) else ""
    # oneDNN does not multiply the padding by a weight, which matters if that is no finite number.
    stride, padding = draw(st.integers(1, 2)), draw(st.integers(0, 1))
    if program.style == "special":
        padding = 0
    options = f", stride={stride}, padding={padding}, groups={groups}"
    return Statement(f"F.conv{dims}d({x}, {weight}{bias}{options})", exact=False)
