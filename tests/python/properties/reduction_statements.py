# SPDX-License-Identifier: Apache-2.0
"""Statements that sum, search or normalise over dims."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from operands import DTYPES, FLOATS, Draw, shapes
from pointwise_statements import is_float
from program import Program, Statement, UnfitError
from torch import Tensor

_EXACT = ("torch.amax", "torch.amin", "torch.any", "torch.all", "torch.argmax", "torch.argmin")
_SUMS = ("torch.sum", "torch.mean", "torch.prod", "torch.logsumexp", "torch.nansum")
_SPREADS = ("torch.var", "torch.std", "torch.linalg.vector_norm")
# Rows of equal numbers are zero but for eager's rounding, which is as large as this makes it.
_EPS = "eps=0.1"
# Which take one dim, not several.
_ONE_DIM = ("torch.argmax", "torch.argmin", "torch.prod", "torch.all", "torch.any")
# Results of these stay representable, and independent of the order, for so many elements.
_MOST_FACTORS = 6


def start(draw: Draw, program: Program) -> None:
    """Give the program one or two inputs of at least one dim, mostly."""
    for _ in range(draw(st.integers(1, 2))):
        dtype = draw(st.sampled_from((*FLOATS, torch.float32, *DTYPES)))
        shape = draw(shapes(min_dims=draw(st.sampled_from((0, 1, 1, 1)))))
        program.new(draw, dtype, shape)


def reduction(draw: Draw, program: Program) -> Statement:
    kind = draw(st.integers(0, 2))
    if program.style == "extreme" and kind:
        raise UnfitError
    functions = (_EXACT, _SUMS, _SPREADS)[kind]
    function = draw(st.sampled_from(functions))
    x = program.pick(draw, is_float if kind == 2 else lambda _: True)
    value = program.values[x]
    dims = draw(_dims(value, one=function in _ONE_DIM))
    if function == "torch.prod" and _reduced(value, dims) > _MOST_FACTORS:
        function = "torch.sum"
    options = "" if dims is None else f", dim={dims}"
    if dims is not None and draw(st.booleans()):
        options += ", keepdim=True"
    if function == "torch.logsumexp" and dims is None:
        options = ", dim=()"
    if function in ("torch.sum", "torch.prod", "torch.mean") and draw(st.integers(0, 3)) == 0:
        options += f", dtype={draw(st.sampled_from(('torch.float32', 'torch.float64')))}"
    if function in ("torch.var", "torch.std"):
        options += draw(st.sampled_from(("", ", correction=0", ", correction=2")))
    if function == "torch.linalg.vector_norm":
        options += draw(st.sampled_from(("", ", ord=1", ", ord=float('inf')", ", ord=0")))
    zero = " + 0" if function in ("torch.amax", "torch.amin") else ""
    return Statement(f"{function}({x}{options}){zero}", exact=kind == 0)


@st.composite
def _dims(draw: Draw, value: Tensor, one: bool) -> int | tuple[int, ...] | None:
    if value.dim() == 0 or draw(st.integers(0, 3)) == 0:
        return None
    dims = st.integers(-value.dim(), value.dim() - 1)
    if one or draw(st.booleans()):
        return draw(dims)
    chosen = draw(st.lists(dims, unique_by=lambda dim: dim % value.dim(), min_size=1))
    return tuple(chosen)


def _reduced(value: Tensor, dims: int | tuple[int, ...] | None) -> int:
    """Return how many elements one result is made of."""
    if dims is None:
        return value.numel()
    sizes = [value.shape[dim] for dim in ([dims] if isinstance(dims, int) else dims)]
    return torch.Size(sizes).numel()


def with_index(draw: Draw, program: Program) -> Statement:
    """max and min over a dim give two results; take one of them."""
    x = program.pick(draw, lambda value: value.dim() > 0)
    dim = draw(st.integers(-program.values[x].dim(), program.values[x].dim() - 1))
    name = draw(st.sampled_from(("max", "min")))
    part = draw(st.sampled_from(("values + 0", "indices")))
    return Statement(f"torch.{name}({x}, {dim}).{part}", exact=True)


def running(draw: Draw, program: Program) -> Statement:
    x = program.pick(draw, lambda value: value.dim() > 0)
    if program.style == "extreme":
        raise UnfitError
    dim = draw(st.integers(-program.values[x].dim(), program.values[x].dim() - 1))
    return Statement(f"torch.cumsum({x}, {dim})", exact=False)


def softmax(draw: Draw, program: Program) -> Statement:
    x = program.pick(draw, is_float)
    dims = max(1, program.values[x].dim())
    dim = draw(st.integers(-dims, dims - 1))
    function = draw(st.sampled_from(("torch.softmax", "torch.log_softmax", "F.softmin")))
    dtype = draw(st.sampled_from(("", "", ", dtype=torch.float64", ", dtype=torch.float32")))
    # Eager rounds the sum to the half type before its logarithm; kernels round the result only.
    if function == "torch.log_softmax" and program.values[x].dtype.itemsize == 2 and not dtype:
        raise UnfitError
    return Statement(f"{function}({x}, dim={dim}{dtype})", exact=False)


def normalisation(draw: Draw, program: Program) -> Statement:
    """Normalise over rows, groups or, as in evaluation, by given moments."""
    if program.style == "extreme":
        raise UnfitError
    x = program.pick(draw, lambda value: is_float(value) and value.dim() > 0)
    value = program.values[x]
    kind = draw(st.sampled_from(("layer_norm", "rms_norm", "group_norm", "batch_norm")))
    if kind in ("layer_norm", "rms_norm"):
        normalised = value.shape[value.dim() - draw(st.integers(1, value.dim())) :]
        weights = "".join(
            f", {name}={program.new(draw, value.dtype, normalised)}"
            for name in (("weight", "bias") if kind == "layer_norm" else ("weight",))
            if draw(st.booleans())
        )
        return Statement(f"F.{kind}({x}, {list(normalised)}{weights}, {_EPS})", exact=False)
    if value.dim() < 2:
        raise UnfitError
    channels = value.shape[1]
    # Where a parameter is not contiguous, eager rounds to the half types in between.
    dense = ".contiguous()" if kind == "batch_norm" and value.dtype.itemsize == 2 else ""

    def parameter() -> str:
        return program.new(draw, value.dtype, (channels,)) + dense

    affine = ""
    if draw(st.booleans()):
        affine = f", weight={parameter()}, bias={parameter()}"
    if kind == "batch_norm":
        mean, spread = parameter(), parameter()
        x = f"{x}.contiguous()"
        return Statement(f"F.batch_norm({x}, {mean}, {spread}.square(){affine})", exact=False)
    groups = draw(st.sampled_from([n for n in (1, 2, 3, 4) if channels % n == 0]))
    return Statement(f"F.group_norm({x}, {groups}{affine}, {_EPS})", exact=False)
