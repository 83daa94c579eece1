# SPDX-License-Identifier: Apache-2.0
"""The pointwise rules: which kernel operation computes which ATen overload, and how.

Most overloads are one line of a table. In a table, the first word of an entry is the kernel's
operation; overloads without a suffix are `aten.<name>.default`.
"""

from __future__ import annotations

import math

from torch.fx import Node

from hostjit.kernels import DType
from hostjit.lowering.pointwise import (
    DTYPES,
    PROMOTION,
    NotFusableError,
    Operand,
    PointwiseContext,
    pointwise,
)

FLOAT = PROMOTION.INT_TO_FLOAT
DEFAULT = PROMOTION.DEFAULT


def overload(name: str) -> str:
    return f"aten.{name}" if "." in name else f"aten.{name}.default"


def _table(names: list[str], operation: str, operands: tuple[str, ...], kind: PROMOTION) -> None:
    """Register overloads whose named operands are promoted together."""

    def rule(context: PointwiseContext) -> int:
        values = context.promoted([context.operand(name) for name in operands], kind)
        return context.apply(operation, *values)

    pointwise(*(overload(name) for name in names))(rule)


for _name in ("neg", "abs", "floor", "ceil", "trunc", "round", "sign", "sgn", "relu", "relu6"):
    _table([_name], "sign" if _name == "sgn" else _name, ("self",), DEFAULT)
for _name in ("bitwise_not", "isnan", "isinf", "signbit", "silu", "mish", "frac", "square"):
    _table([_name], _name, ("self",), DEFAULT)
for _name in ("hardsigmoid", "hardswish", "log_sigmoid", "isfinite"):
    _table([_name], _name, ("self",), DEFAULT)
for _name in (
    *("reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log1p", "log2", "log10"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh"),
    *("atanh", "erf", "erfc", "lgamma", "sigmoid"),
):
    _table([_name], _name, ("self",), FLOAT)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _table([f"{_name}.Tensor", f"{_name}.Scalar"], _name, ("self", "other"), DEFAULT)
for _name in ("maximum", "minimum", "fmax", "fmin", "hypot"):
    _table([_name], _name, ("self", "other"), DEFAULT)
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    _table([f"{_name}.Tensor", f"{_name}.Scalar"], _name, ("self", "other"), DEFAULT)
_table(["mul.Tensor", "mul.Scalar"], "mul", ("self", "other"), DEFAULT)
_table(["div.Tensor", "div.Scalar"], "div", ("self", "other"), FLOAT)
_table(["atan2"], "atan2", ("self", "other"), FLOAT)
_table(["copysign.Tensor", "copysign.Scalar"], "copysign", ("self", "other"), FLOAT)
_table(["heaviside"], "heaviside", ("self", "values"), DEFAULT)
_table(["lerp.Tensor", "lerp.Scalar"], "lerp", ("self", "end", "weight"), DEFAULT)
_table(["addcmul"], "addcmul", ("self", "tensor1", "tensor2", "value"), DEFAULT)
_table(["addcdiv"], "addcdiv", ("self", "tensor1", "tensor2", "value"), FLOAT)
_table(["clamp_min", "clamp_min.Tensor"], "maximum", ("self", "min"), DEFAULT)
_table(["clamp_max", "clamp_max.Tensor"], "minimum", ("self", "max"), DEFAULT)
for _name in ("left", "right"):
    _names = [f"bitwise_{_name}_shift.{kind}" for kind in ("Tensor", "Tensor_Scalar")]
    _names += [f"__{_name[0]}shift__.{kind}" for kind in ("Tensor", "Scalar")]
    _table(_names, f"shift_{_name}", ("self", "other"), DEFAULT)

# Operations whose further arguments are numbers.
_PARAMETERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "leaky_relu": ("leaky_relu", ("negative_slope",)),
    "elu": ("elu", ("alpha", "scale", "input_scale")),
    "softplus": ("softplus", ("beta", "threshold")),
    "hardtanh": ("clamp", ("min_val", "max_val")),
    "threshold": ("threshold", ("threshold", "value")),
}


def _parametric(name: str, operation: str, parameters: tuple[str, ...]) -> None:
    @pointwise(overload(name))
    def rule(context: PointwiseContext) -> int:
        (x,) = context.promoted([context.operand("self")])
        numbers = [context.constant_like(x, context.number(name)) for name in parameters]
        return context.apply(operation, x, *numbers)


for _name, (_operation, _parameters) in _PARAMETERS.items():
    _parametric(_name, _operation, _parameters)


@pointwise("aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar")
def add_or_subtract(context: PointwiseContext) -> int:
    """`self ± alpha * other`."""
    x, y = context.promoted([context.operand("self"), context.operand("other")])
    name = "add" if ".add." in str(context.node.target) else "sub"
    return context.apply(name, x, _scaled(context, y))


@pointwise("aten.rsub.Tensor", "aten.rsub.Scalar")
def subtract_from(context: PointwiseContext) -> int:
    """`other - alpha * self`."""
    x, y = context.promoted([context.operand("self"), context.operand("other")])
    return context.apply("sub", y, _scaled(context, x))


def _scaled(context: PointwiseContext, value: int) -> int:
    alpha = context.number("alpha")
    if alpha == 1:
        return value
    if context.builder.dtype(value) is DType.BOOL:
        raise NotFusableError("alpha of bool")
    return context.apply("mul", value, context.constant_like(value, alpha))


def _divide(context: PointwiseContext, operation: str) -> int:
    operands = [context.operand("self"), context.operand("other")]
    x, y = context.promoted(operands)
    divisor = operands[1]
    if not context.builder.dtype(x).is_float and (isinstance(divisor, Node) or divisor == 0):
        raise NotFusableError("eager raises for an integer division by zero")
    return context.apply(operation, x, y)


@pointwise("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(context: PointwiseContext) -> int:
    return _divide(context, "remainder")


@pointwise("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(context: PointwiseContext) -> int:
    return _divide(context, "fmod")


@pointwise("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(context: PointwiseContext) -> int:
    return _divide(context, "div_floor")


@pointwise("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def divide_with_mode(context: PointwiseContext) -> int:
    mode = context.argument("rounding_mode")
    if mode is None:
        operands = [context.operand("self"), context.operand("other")]
        return context.apply("div", *context.promoted(operands, FLOAT))
    return _divide(context, f"div_{mode}")


@pointwise("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def power(context: PointwiseContext) -> int:
    """Constant exponents are special-cased as in eager."""
    base, exponent = context.operand("self"), context.operand("exponent")
    dtype = context.compute_dtype([base, exponent])
    if isinstance(exponent, Node) or (dtype.is_float and exponent not in _ROOTS):
        return context.apply("pow", *context.promoted([base, exponent]))
    x = context.value(base, dtype)
    if exponent == int(exponent) and 0 <= exponent <= (3 if dtype.is_float else 64):
        return _integer_power(context, x, int(exponent))
    if not dtype.is_float:
        raise NotFusableError("a negative or large power of integers")
    x = context.apply("square", x) if exponent == -2 else x
    return context.apply(_ROOTS[exponent], x)


# What follows multiplication for the exponents that eager does not give to `pow`.
_ROOTS = {
    **{0: "", 1: "", 2: "", 3: ""},
    **{0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal", -2: "reciprocal"},
}


def _integer_power(context: PointwiseContext, x: int, exponent: int) -> int:
    result = context.constant_like(x, 1) if exponent == 0 else x
    for bit in bin(exponent)[3:]:
        result = context.apply("square", result)
        result = context.apply("mul", result, x) if bit == "1" else result
    return result


@pointwise("aten.clamp.default", "aten.clamp.Tensor")
def clamp(context: PointwiseContext) -> int:
    names = [name for name in ("min", "max") if context.argument(name) is not None]
    limits: list[Operand] = [context.operand(name) for name in names]
    x, *values = context.promoted([context.operand("self"), *limits])
    if any(isinstance(limit, float) and math.isnan(limit) for limit in limits):
        return context.constant_like(x, math.nan)
    for name, value in zip(names, values, strict=True):
        x = context.apply("maximum" if name == "min" else "minimum", x, value)
    return x


@pointwise("aten.gelu.default")
def gelu(context: PointwiseContext) -> int:
    (x,) = context.promoted([context.operand("self")])
    return context.apply("gelu" if context.argument("approximate") == "none" else "gelu_tanh", x)


def _truth(context: PointwiseContext, name: str) -> int:
    return context.value(context.operand(name), DType.BOOL)


@pointwise("aten.logical_not.default")
def logical_not(context: PointwiseContext) -> int:
    return context.apply("logical_not", _truth(context, "self"))


@pointwise("aten.logical_and.default", "aten.logical_or.default", "aten.logical_xor.default")
def logical(context: PointwiseContext) -> int:
    name = str(context.node.target).split(".")[1]
    return context.apply(name, _truth(context, "self"), _truth(context, "other"))


@pointwise("aten.where.self")
def where(context: PointwiseContext) -> int:
    yes, no = context.promoted([context.operand("self"), context.operand("other")])
    return context.apply("where", _truth(context, "condition"), yes, no)


@pointwise("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(context: PointwiseContext) -> int:
    dtype = context.result_dtype()
    filling = context.value(context.operand("value"), dtype)
    x = context.value(context.operand("self"), dtype)
    return context.apply("where", _truth(context, "mask"), filling, x)


@pointwise("aten.nan_to_num.default")
def nan_to_num(context: PointwiseContext) -> int:
    (x,) = context.promoted([context.operand("self")])
    dtype = context.result_dtype()
    if not dtype.is_float:
        return x
    largest = {DType.F64: 1.7976931348623157e308, DType.F32: 3.4028234663852886e38}
    largest |= {DType.F16: 65504.0, DType.BF16: 3.3895313892515355e38}
    defaults = {"nan": 0.0, "posinf": largest[dtype], "neginf": -largest[dtype]}
    numbers = [
        default if context.argument(name) is None else context.number(name)
        for name, default in defaults.items()
    ]
    return context.apply("nan_to_num", x, *(context.constant_like(x, n) for n in numbers))


@pointwise("aten._to_copy.default", "prims.convert_element_type.default")
def convert(context: PointwiseContext) -> int:
    """An explicit conversion rounds, also where the kernel goes on in `f32`."""
    source = context.operand(next(iter(context.arguments)))
    assert isinstance(source, Node)
    if source.meta["val"].device != context.node.meta["val"].device:
        raise NotFusableError("copies between devices")
    return context.builder.cast(context.reader.read(source), DTYPES[context.node.meta["val"].dtype])


@pointwise("aten.clone.default", "aten.lift_fresh_copy.default")
def copy(context: PointwiseContext) -> int:
    return context.value(context.operand("self"), context.result_dtype())


@pointwise("aten.copy.default")
def copy_converted(context: PointwiseContext) -> int:
    source = context.operand("src")
    assert isinstance(source, Node)
    return context.builder.cast(context.reader.read(source), context.result_dtype())
