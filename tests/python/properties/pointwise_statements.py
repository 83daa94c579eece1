# SPDX-License-Identifier: Apache-2.0
"""Statements that compute each element from the elements at its position."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from hypothesis import strategies as st
from operands import DTYPES, Draw, shapes
from program import Program, Statement, UnfitError
from torch import Tensor

_EXACT_UNARY = (
    *("torch.neg", "torch.abs", "torch.floor", "torch.ceil", "torch.trunc", "torch.round"),
    *("torch.sign", "torch.relu", "torch.reciprocal", "torch.square", "torch.frac"),
    *("torch.isnan", "torch.isinf", "torch.isfinite", "torch.signbit", "torch.logical_not"),
    *("torch.bitwise_not", "torch.nan_to_num", "F.hardtanh", "F.relu6", "F.leaky_relu"),
    *("torch.sgn", "torch.positive", "torch.clone", "torch.zeros_like", "torch.ones_like"),
    *("torch.isposinf", "torch.isneginf", "F.hardshrink", "F.softshrink", "F.threshold"),
)
_ROUNDED_UNARY = (
    *("torch.exp", "torch.exp2", "torch.expm1", "torch.log", "torch.log1p", "torch.log2"),
    *("torch.log10", "torch.sin", "torch.cos", "torch.tan", "torch.asin", "torch.acos"),
    *("torch.atan", "torch.sinh", "torch.cosh", "torch.tanh", "torch.asinh", "torch.acosh"),
    *("torch.atanh", "torch.erf", "torch.erfc", "torch.sigmoid", "torch.rsqrt", "torch.sqrt"),
    "torch.lgamma",
    *("F.gelu", "F.silu", "F.mish", "F.softplus", "F.elu", "F.selu", "F.celu", "F.hardswish"),
    *("F.hardsigmoid", "F.softsign", "F.tanhshrink", "torch.erfinv"),
)
# Their results move by no more than their operands do, or little more.
_SMOOTH_UNARY = ("torch.neg", "torch.abs", "torch.relu", "torch.clone", "F.leaky_relu")

_EXACT_BINARY = (
    *("torch.add", "torch.sub", "torch.mul", "torch.true_divide", "torch.maximum"),
    *("torch.minimum", "torch.fmax", "torch.fmin", "torch.eq", "torch.ne", "torch.lt", "torch.le"),
    *("torch.gt", "torch.ge", "torch.logical_and", "torch.logical_or", "torch.logical_xor"),
    *("torch.bitwise_and", "torch.bitwise_or", "torch.bitwise_xor", "torch.copysign"),
    *("torch.heaviside", "torch.rsub", "torch.clamp_min", "torch.clamp_max"),
    *("torch.bitwise_left_shift", "torch.bitwise_right_shift"),
)
# Eager returns either zero of a positive and a negative one, depending on the position.
_EITHER_ZERO = (
    *("torch.maximum", "torch.minimum", "torch.fmax", "torch.fmin", "torch.clamp_min"),
    *("torch.clamp_max", "torch.relu", "F.relu6", "F.hardtanh"),
)
# The difference of an operand and its function: what is rounded to the half types cancels.
_CANCELLING = ("F.tanhshrink",)
# In these styles eager's result depends on an element's position and on the strides: Sleef's sinh
# and cosh overflow from 88.7 on, and only some of the implementations of gelu keep infinity.
_UNSTEADY = {
    "torch.sinh": ("extreme",),
    "torch.cosh": ("extreme",),
    "F.gelu": ("special", "extreme"),
}
_ROUNDED_BINARY = ("torch.pow", "torch.atan2", "torch.hypot", "torch.logaddexp")
_DIVISIONS = (
    *("torch.floor_divide", "torch.remainder", "torch.fmod"),
    *("torch.div(rounding_mode='floor')", "torch.div(rounding_mode='trunc')"),
)
_NUMBERS = ("2", "-3", "0", "1", "0.5", "-1.5", "3.0", "True", "float('inf')", "float('nan')")
_DTYPE_NAMES = [str(dtype) for dtype in DTYPES]


def start(draw: Draw, program: Program) -> None:
    """Give the program one to three inputs that broadcast with each other."""
    whole = draw(shapes())
    for _ in range(draw(st.integers(1, 3))):
        dtype = draw(st.sampled_from((torch.float32, torch.float32, *DTYPES)))
        program.new(draw, dtype, draw(st.one_of(st.just(whole), _broadcastable(whole))))


@st.composite
def _broadcastable(draw: Draw, shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape that broadcasts to this one: fewer dims, some of size 1."""
    kept = shape[draw(st.integers(0, len(shape))) :]
    return tuple(draw(st.sampled_from((size, size, 1))) for size in kept)


def unary(draw: Draw, program: Program) -> Statement:
    if draw(st.booleans()):
        function = draw(st.sampled_from(_EXACT_UNARY))
        x = program.pick(draw, inexact=function in _SMOOTH_UNARY)
        if function == "torch.signbit":
            x = _with_sign(program, x)
        arguments = ", 0.25, -2.0" if function == "F.threshold" else ""
        return Statement(_one_zero(function, f"{function}({x}{arguments})"), exact=True)
    function = draw(st.sampled_from(_ROUNDED_UNARY))
    if program.style in _UNSTEADY.get(function, ()):
        raise UnfitError
    x = program.pick(draw)
    if function in _CANCELLING and _is_half(program, x):
        raise UnfitError
    arguments = ""
    if function == "F.gelu":
        arguments = draw(st.sampled_from(("", ", approximate='tanh'")))
    return Statement(f"{function}({x}{arguments})", exact=False)


def binary(draw: Draw, program: Program) -> Statement:
    x = program.pick(draw)
    other = program.pick(draw) if draw(st.booleans()) else draw(st.sampled_from(_NUMBERS))
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return Statement(f"{draw(st.sampled_from(_ROUNDED_BINARY))}({x}, {other})", exact=False)
    if kind == 1:
        # Integers have no quotient by 0, and the least one has none by -1.
        other = f"{other}.clamp(1, 9)" if other in program.values else "3"
        function, _, options = draw(st.sampled_from(_DIVISIONS)).partition("(")
        options = f", {options}" if options else ")"
        return Statement(f"{function}({x}, {other}{options}", exact=True)
    function = draw(st.sampled_from(_EXACT_BINARY))
    if other in _NUMBERS and function in ("torch.heaviside", "torch.maximum", "torch.minimum"):
        function = "torch.mul"
    if other == "True" and function in ("torch.sub", "torch.rsub"):
        raise UnfitError
    if other in _NUMBERS and draw(st.booleans()) and function == "torch.sub":
        return Statement(f"{other} - {x}", exact=True)
    if other in program.values and function in ("torch.add", "torch.sub") and draw(st.booleans()):
        # With strides, eager rounds the product to the half types before it adds.
        alpha = "-1" if _is_half(program, x) else draw(st.sampled_from(("2", "-1", "0.5")))
        return Statement(f"{function}({x}, {other}, alpha={alpha})", exact=alpha != "0.5")
    if function == "torch.copysign" and other in program.values:
        other = _with_sign(program, other)
    return Statement(_one_zero(function, f"{function}({x}, {other})"), exact=True)


def _is_half(program: Program, name: str) -> bool:
    return program.values[name].dtype in (torch.float16, torch.bfloat16)


def _with_sign(program: Program, name: str) -> str:
    """A value that has a sign: eager's NaN of half types depend on how it computed them."""
    return f"{name}.nan_to_num()" if _is_half(program, name) else name


def _one_zero(function: str, expression: str) -> str:
    """Make every zero positive where its sign isn't determined."""
    return f"{expression} + 0" if function in _EITHER_ZERO else expression


def ternary(draw: Draw, program: Program) -> Statement:
    x, y, z = (program.pick(draw) for _ in range(3))
    kind = draw(st.integers(0, 5))
    if kind == 0:
        condition = program.pick(draw, lambda value: value.dtype is torch.bool)
        return Statement(f"torch.where({condition}, {x}, {y})", exact=True)
    if kind == 1:
        return Statement(f"torch.where({x} > {y}, {z}, {draw(st.sampled_from(_NUMBERS))})", True)
    if kind == 2:
        bounds = draw(st.sampled_from(("-1, 2", "0.5, 3", "None, 1", "2, 1", "0, None")))
        return Statement(f"torch.clamp({x}, {bounds}) + 0", exact=True)
    if kind == 3:
        mask = program.pick(draw, lambda value: value.dtype is torch.bool)
        return Statement(f"{x}.masked_fill({mask}, {draw(st.sampled_from(_NUMBERS))})", exact=True)
    name = draw(st.sampled_from(("torch.lerp", "torch.addcmul", "torch.addcdiv")))
    options = ", value=2" if name == "torch.addcmul" and draw(st.booleans()) else ""
    return Statement(f"{name}({x}, {y}, {z}{options})", exact=False)


def cast(draw: Draw, program: Program) -> Statement:
    """Convert; what integers make of NaN and of numbers out of their range is undefined."""
    dtype = draw(st.sampled_from(_DTYPE_NAMES))
    if "int" not in dtype:
        return Statement(f"{program.pick(draw)}.to({dtype})", exact=True)
    x = program.pick(draw)
    if program.values[x].is_floating_point():
        low = 0 if dtype == "torch.uint8" else -100
        x = f"{x}.nan_to_num(0, 0, 0).clamp({low}, 100)"
    return Statement(f"{x}.to({dtype})", exact=True)


def is_float(value: Tensor) -> bool:
    return value.is_floating_point()
