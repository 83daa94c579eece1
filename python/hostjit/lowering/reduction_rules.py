# SPDX-License-Identifier: Apache-2.0
"""The rules of reductions: sums, products, extremes, moments and norms, with eager's types."""

from __future__ import annotations

import math

from torch.fx import Node

from hostjit.kernels import DType
from hostjit.kernels.expression import Load
from hostjit.kernels.operation import Number
from hostjit.kernels.sizes import Size, at_most
from hostjit.lowering.pointwise import NotFusableError
from hostjit.lowering.reductions import ReductionContext, Rows, over_dims, points_shape, reduces
from hostjit.lowering.sizes import shape_of


def _accumulated(context: ReductionContext) -> int:
    """The operand in the type that eager accumulates in, which is the result's."""
    dtype = context.result_dtypes()[0]
    context.require(dtype is not DType.BOOL, "a sum or product of type bool")
    return context.first_operand(dtype)


@reduces("aten.sum.default", "aten.sum.dim_IntList", rows=over_dims)
def sum_(context: ReductionContext) -> int:
    return context.reduce("sum", _accumulated(context))


@reduces("aten.nansum.default", rows=over_dims)
def nansum(context: ReductionContext) -> int:
    x = _accumulated(context)
    numbers = context.apply("where", context.apply("isnan", x), context.constant_like(x, 0), x)
    return context.reduce("sum", numbers)


@reduces("aten.prod.default", "aten.prod.dim_int", rows=over_dims)
def prod(context: ReductionContext) -> int:
    return context.reduce("prod", _accumulated(context))


@reduces("aten.mean.default", "aten.mean.dim", rows=over_dims)
def mean(context: ReductionContext) -> int:
    return context.mean(_accumulated(context))


@reduces("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList", rows=over_dims)
def count_nonzero(context: ReductionContext) -> int:
    return context.reduce("sum", context.builder.cast(_truth(context), DType.I64))


def _truth(context: ReductionContext) -> int:
    context.require(context.arguments.get("dim") != [], "any and all take no dims for none")
    return context.builder.cast(context.first_operand(), DType.BOOL)


@reduces("aten.any.default", "aten.any.dim", "aten.any.dims", rows=over_dims)
def any_(context: ReductionContext) -> int:
    return extreme(context, "max", _truth(context))


@reduces("aten.all.default", "aten.all.dim", "aten.all.dims", rows=over_dims)
def all_(context: ReductionContext) -> int:
    return extreme(context, "min", _truth(context))


def extreme(context: ReductionContext, name: str, value: int) -> int:
    """The largest or smallest of a row; NaN if there is one."""
    if context.builder.dtype(value) is DType.BOOL:
        bits = context.reduce(name, context.builder.cast(value, DType.U8))
        return context.builder.cast(bits, DType.BOOL)
    return context.reduce(name, value)


def _everything(node: Node) -> Rows:
    shape = points_shape(node)
    return Rows(shape, (False,) * len(shape))


for _name, _overloads in (
    ("max", ("aten.amax.default", "aten.max.default")),
    ("min", ("aten.amin.default", "aten.min.default")),
):

    def _extreme(context: ReductionContext, name: str = _name) -> int:
        return extreme(context, name, context.first_operand())

    reduces(*_overloads, rows=over_dims)(_extreme)


@reduces("aten.aminmax.default", rows=over_dims, results=("row", "row"))
def aminmax(context: ReductionContext) -> tuple[int, int]:
    x = context.first_operand()
    return extreme(context, "min", x), extreme(context, "max", x)


def _place_of_extreme(context: ReductionContext, name: str) -> tuple[int, int]:
    """The extreme and its first place; the first NaN counts as the extreme."""
    x = context.first_operand()
    dtype = context.builder.dtype(x)
    if dtype is DType.BOOL:
        x = context.builder.cast(x, DType.U8)
    elif dtype.is_float and not isinstance(context.builder.values[x], Load):
        # Which elements are equal depends on their rounding.
        x = context.builder.cast(x, _operand_dtype(context))
    found = context.reduce(name, x)
    here = context.apply("eq", x, found)
    if dtype.is_float:
        here = context.apply("bitwise_or", here, context.apply("isnan", x))
    # Narrow positions make for more lanes.
    narrow = DType.I32 if at_most(context.count, (1 << 31) - 1) else DType.I64
    position = context.builder.cast(context.position_in_row(), narrow)
    behind = context.constant_like(position, context.count)
    place = context.reduce("min", context.apply("where", here, position, behind))
    return found, place


def _operand_dtype(context: ReductionContext) -> DType:
    return context.tensor_dtypes("self")[0]


def _require_numbers(context: ReductionContext) -> None:
    context.require(_operand_dtype(context) is not DType.BOOL, "eager raises for bool")


@reduces("aten.argmax.default", rows=over_dims)
def argmax(context: ReductionContext) -> int:
    _require_numbers(context)
    return _place_of_extreme(context, "max")[1]


@reduces("aten.argmin.default", rows=over_dims)
def argmin(context: ReductionContext) -> int:
    _require_numbers(context)
    return _place_of_extreme(context, "min")[1]


@reduces("aten.max.dim", rows=over_dims, results=("row", "row"))
def max_with_place(context: ReductionContext) -> tuple[int, int]:
    return _place_of_extreme(context, "max")


@reduces("aten.min.dim", rows=over_dims, results=("row", "row"))
def min_with_place(context: ReductionContext) -> tuple[int, int]:
    return _place_of_extreme(context, "min")


def moments(context: ReductionContext, x: int) -> tuple[int, int]:
    """The mean of a row and its sum of squared distances from it, by two passes."""
    center = context.mean(x)
    distance = context.apply("sub", x, center)
    return center, context.reduce("sum", context.apply("square", distance))


def _variance(context: ReductionContext) -> tuple[int, int]:
    """In double, as eager: squares of large distances overflow float, small ones vanish."""
    context.require(_operand_dtype(context).is_float, "eager raises for integers")
    x = context.first_operand()
    if context.builder.dtype(x) is not DType.F64:
        x = context.builder.cast(x, DType.F64)
    center, squares = moments(context, x)
    correction = 1 if context.argument("correction") is None else context.number("correction")
    if isinstance(context.count, int):
        divisor: Number | Size = max(context.count - correction, 0)
    else:
        if not isinstance(correction, int) or not at_most(correction, context.count):
            raise NotFusableError("nothing may be left after the correction")
        divisor = context.count - correction
    return context.apply("div", squares, context.constant_like(x, divisor)), center


@reduces("aten.var.correction", rows=over_dims)
def var(context: ReductionContext) -> int:
    return _variance(context)[0]


@reduces("aten.std.correction", rows=over_dims)
def std(context: ReductionContext) -> int:
    return context.apply("sqrt", _variance(context)[0])


def _infinity_as_nan(context: ReductionContext, center: int) -> int:
    """The mean as eager's running update leaves it, where adding infinity gives no number next."""
    if context.count == 1:
        return center
    infinite = context.apply("isinf", center)
    return context.apply("where", infinite, context.constant_like(center, math.nan), center)


@reduces("aten.var_mean.correction", rows=over_dims, results=("row", "row"))
def var_mean(context: ReductionContext) -> tuple[int, int]:
    variance, center = _variance(context)
    return variance, _infinity_as_nan(context, center)


@reduces("aten.std_mean.correction", rows=over_dims, results=("row", "row"))
def std_mean(context: ReductionContext) -> tuple[int, int]:
    variance, center = _variance(context)
    return context.apply("sqrt", variance), _infinity_as_nan(context, center)


@reduces("aten.linalg_vector_norm.default", rows=over_dims)
def vector_norm(context: ReductionContext) -> int:
    order = context.number("ord")
    x = context.first_operand(context.result_dtypes()[0])
    magnitude = context.apply("abs", x)
    if order == 0:
        nonzero = context.apply("ne", x, context.constant_like(x, 0))
        return context.reduce("sum", context.builder.cast(nonzero, context.builder.dtype(x)))
    if math.isinf(order):
        return context.reduce("max" if order > 0 else "min", magnitude)
    if order == 1:
        return context.reduce("sum", magnitude)
    if order == 2:
        return context.apply("sqrt", context.reduce("sum", context.apply("square", x)))
    powers = context.apply("pow", magnitude, context.constant_like(x, order))
    inverse = context.constant_like(x, 1 / order)
    return context.apply("pow", context.reduce("sum", powers), inverse)


@reduces("aten.logsumexp.default", rows=over_dims)
def logsumexp(context: ReductionContext) -> int:
    context.require(context.arguments.get("dim") != [], "eager raises for no dims")
    dtype = context.result_dtypes()[0]

    def step(name: str, *operands: int) -> int:
        """Eager computes by several operators: each rounds to a half type."""
        return context.builder.cast(context.apply(name, *operands), dtype)

    x = context.first_operand(dtype)
    largest = context.reduce("max", x)
    infinite = context.apply("isinf", largest)
    shift = context.apply("where", infinite, context.constant_like(x, 0), largest)
    total = context.reduce("sum", step("exp", step("sub", x, shift)))
    return context.apply("add", step("log", context.builder.cast(total, dtype)), shift)


@reduces("aten.mse_loss.default", rows=_everything)
def mse_loss(context: ReductionContext) -> int:
    reduction = context.number("reduction")
    context.require(reduction in (1, 2), "a loss per element is no reduction")
    shapes = {shape_of(context.arguments[name].meta["val"]) for name in ("self", "target")}
    context.require(len(shapes) == 1, "a loss of operands that are broadcast")
    x, y = context.promoted([context.operand("self"), context.operand("target")])
    squares = context.apply("square", context.apply("sub", x, y))
    return context.mean(squares) if reduction == 1 else context.reduce("sum", squares)
