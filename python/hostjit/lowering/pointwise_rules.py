# SPDX-License-Identifier: Apache-2.0
"""The pointwise rules: which kernel operation computes which ATen overload, and how.

Most overloads are one line of a table. In a table, the first word of an entry is the kernel's
operation; overloads without a suffix are `aten.<name>.default`.
"""

from __future__ import annotations

import math

from torch.fx import Node

from hostjit.kernels import DType
from hostjit.lowering.devices import device_of, is_number_of_the_host
from hostjit.lowering.matrix_places import row_and_column
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
_table(["atan2"], "atan2", ("self", "other"), FLOAT)
_table(["copysign.Tensor", "copysign.Scalar"], "copysign", ("self", "other"), FLOAT)
# Of two equal operands these return the second: `self` keeps the sign of its zeros.
_table(["clamp_min", "clamp_min.Tensor"], "maximum", ("min", "self"), DEFAULT)
_table(["clamp_max", "clamp_max.Tensor"], "minimum", ("max", "self"), DEFAULT)
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
        numbers = [context.constant_like(x, context.parameter(name)) for name in parameters]
        return context.apply(operation, x, *numbers)


for _name, (_operation, _parameters) in _PARAMETERS.items():
    _parametric(_name, _operation, _parameters)


@pointwise("aten.clamp.default", "aten.clamp.Tensor")
def clamp(context: PointwiseContext) -> int:
    names = [name for name in ("min", "max") if context.argument(name) is not None]
    limits: list[Operand] = [context.operand(name) for name in names]
    context.require(context.result_dtype() is not DType.BOOL, "eager raises for bool")
    x, *values = context.promoted([context.operand("self"), *limits])
    if any(isinstance(limit, float) and math.isnan(limit) for limit in limits):
        return context.constant_like(x, math.nan)
    for name, value in zip(names, values, strict=True):
        x = context.apply("maximum" if name == "min" else "minimum", value, x)
    return x


@pointwise("aten.heaviside.default")
def heaviside(context: PointwiseContext) -> int:
    same = len(set(context.tensor_dtypes("self", "values"))) == 1
    context.require(same, "eager raises for different types")
    operands = [context.operand("self"), context.operand("values")]
    return context.apply("heaviside", *context.promoted(operands))


@pointwise("aten.lerp.Tensor", "aten.lerp.Scalar")
def lerp(context: PointwiseContext) -> int:
    same = len(set(context.tensor_dtypes("self", "end", "weight"))) == 1
    context.require(same, "eager raises for different types")
    start, end = context.promoted([context.operand("self"), context.operand("end")])
    weight = context.value(context.operand("weight"), context.builder.dtype(start))
    return context.apply("lerp", start, end, weight)


@pointwise("aten.addcmul.default", "aten.addcdiv.default")
def add_product_or_quotient(context: PointwiseContext) -> int:
    """`self + value * tensor1 * tensor2`, or with a quotient of the two."""
    name = str(context.node.target).split(".")[1]
    factors = context.tensor_dtypes("tensor1", "tensor2")
    supported = name == "addcmul" or any(dtype.is_float for dtype in factors)
    context.require(supported, "eager raises for a quotient of integers")
    operands = [context.operand(operand) for operand in ("self", "tensor1", "tensor2")]
    x, y, z = context.promoted(operands)
    return context.apply(name, x, y, z, context.constant_like(x, context.parameter("value")))


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


@pointwise("aten.tril.default", "aten.triu.default")
def triangle(context: PointwiseContext) -> int:
    row, column = row_and_column(context)
    diagonal = context.builder.constant(DType.I64, int(context.number("diagonal")))
    place = context.apply("sub", column, row)
    is_lower = "tril" in str(context.node.target)
    is_kept = context.apply("le" if is_lower else "ge", place, diagonal)
    x = context.value(context.operand("self"), context.result_dtype())
    return context.apply("where", is_kept, x, context.constant_like(x, 0))


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
    if not isinstance(source, Node):  # of `vmap`
        return context.value(source, context.result_dtype())
    if device_of(source) != device_of(context.node) and not is_number_of_the_host(source):
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


@pointwise("aten.fill.Tensor")
def fill(context: PointwiseContext) -> int:
    return context.value(context.operand("value"), context.result_dtype())
