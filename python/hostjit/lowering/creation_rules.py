# SPDX-License-Identifier: Apache-2.0
"""Rules for nodes that make a tensor of nothing."""

from __future__ import annotations

from hostjit.kernels import DType
from hostjit.lowering.matrix_places import row_and_column
from hostjit.lowering.pointwise import NotFusableError, Operand, PointwiseContext, creates


def _constant(context: PointwiseContext, number: Operand) -> int:
    return context.value(number, context.result_dtype())


@creates(
    "aten.full.default",
    "aten.full_like.default",
    "aten.new_full.default",
    "aten.fill.Scalar",
)
def full(context: PointwiseContext) -> int:
    name = "value" if "value" in context.arguments else "fill_value"
    return _constant(context, context.operand(name))


@creates(
    *("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default"),
    "aten.zero.default",
)
def zeros(context: PointwiseContext) -> int:
    return _constant(context, 0)


@creates("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(context: PointwiseContext) -> int:
    return _constant(context, 1)


@creates("aten.scalar_tensor.default")
def scalar_tensor(context: PointwiseContext) -> int:
    return _constant(context, context.parameter("s"))


@creates("aten.arange.default", "aten.arange.start", "aten.arange.start_step")
def arange(context: PointwiseContext) -> int:
    """Computed as eager does: `start + step * position`, integers exactly."""
    dtype = context.result_dtype()
    start = context.arguments.get("start", 0)
    step = context.arguments.get("step", 1)
    if not isinstance(start, int | float) or not isinstance(step, int | float):
        raise NotFusableError("arange of unknown bounds")
    whole = float(start).is_integer() and float(step).is_integer()
    context.require(whole, "arange with fractions rounds in an order of its own")
    context.require(dtype is not DType.BOOL, "eager raises for bool")
    position = context.builder.cast(context.reader.position(context.node), dtype.register)
    scaled = context.apply("mul", position, _constant(context, step))
    return context.apply("add", scaled, _constant(context, start))


@creates("aten.eye.default", "aten.eye.m")
def eye(context: PointwiseContext) -> int:
    row, column = row_and_column(context)
    return context.builder.cast(context.apply("eq", row, column), context.result_dtype())
