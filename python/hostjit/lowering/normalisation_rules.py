# SPDX-License-Identifier: Apache-2.0
"""The rules of normalisations: what follows a reduction of the same elements, in one node."""

from __future__ import annotations

import math

from torch.fx import Node

from hostjit.kernels import DType
from hostjit.kernels.sizes import quotient
from hostjit.lowering.pointwise import NotFusableError, named_arguments
from hostjit.lowering.reduction_rules import moments
from hostjit.lowering.reductions import ReductionContext, Rows, over_dims, points_shape, reduces

_NORM_RESULTS = ("element", "row", "row")
_PARAMETERS = ("weight", "bias", "running_mean", "running_var")


@reduces("aten._softmax.default", rows=over_dims, results=("element",))
def softmax(context: ReductionContext) -> int:
    x = context.first_operand(context.result_dtypes()[0])
    distance = context.apply("sub", x, context.reduce("max", x))
    power = context.apply("exp", distance)
    return context.apply("div", power, context.reduce("sum", power))


@reduces("aten._log_softmax.default", rows=over_dims, results=("element",))
def log_softmax(context: ReductionContext) -> int:
    x = context.first_operand(context.result_dtypes()[0])
    distance = context.apply("sub", x, context.reduce("max", x))
    total = context.reduce("sum", context.apply("exp", distance))
    kept = _kept_in_log_softmax(context)
    total = context.builder.cast(total, kept)
    logarithm = context.builder.cast(context.apply("log", total), kept)
    return context.apply("sub", distance, logarithm)


def _kept_in_log_softmax(context: ReductionContext) -> DType:
    """The type in which eager keeps sums and logarithms of rows.

    Its kernel for the last dimension on the CPU has them in an array of the operand's type.
    """
    value = context.node.meta["val"]
    is_last = context.argument("dim") % max(value.dim(), 1) == value.dim() - 1
    dtype = context.result_dtypes()[0]
    return dtype if is_last and value.device.type == "cpu" else dtype.register


def _normalised(context: ReductionContext) -> int:
    """The elements, of a type that eager normalises by parameters of theirs.

    Left to ATen, which raises, are others than those of its `is_mixed_type` (mixed_data_type.h):
    all are of one type, or elements of a half type have parameters of float32.
    """
    x = context.first_operand()
    (dtype,) = context.tensor_dtypes("input")
    context.require(dtype.is_float, "normalisation of integers")
    given = [name for name in _PARAMETERS if context.arguments.get(name) is not None]
    found = set(context.tensor_dtypes(*given))
    allowed = (set(), {dtype}) if dtype.register is dtype else (set(), {dtype}, {DType.F32})
    context.require(found in allowed, "parameters of another type")
    return x


def _statistics(context: ReductionContext) -> tuple[int, int, int]:
    """The elements, their mean, and their inverse deviation."""
    x = _normalised(context)
    center, squares = moments(context, x)
    return x, center, _inverse_deviation(context, squares)


def _inverse_deviation(context: ReductionContext, squares: int) -> int:
    variance = context.apply("div", squares, context.constant_like(squares, context.count))
    safe = context.apply("add", variance, context.constant_like(squares, context.number("eps")))
    return context.apply("rsqrt", safe)


def _affine(context: ReductionContext, value: int) -> int:
    """Scale by the argument `weight` and shift by `bias`, where there are such."""
    dtype: DType = context.builder.dtype(value)
    for name, operation in (("weight", "mul"), ("bias", "add")):
        operand = context.optional(name)
        if operand is not None:
            value = context.apply(operation, value, context.value(operand, dtype))
    return value


def _linear(context: ReductionContext, x: int, center: int, inverse: int) -> int:
    """Normalise, scale and shift by one multiplication and one addition, as eager does per channel.

    Elements near the mean have its rounding errors, and infinite weights give its NaNs.
    """
    dtype = context.builder.dtype(x)
    weight, bias = context.optional("weight"), context.optional("bias")
    scale = inverse
    if weight is not None:
        scale = context.apply("mul", scale, context.value(weight, dtype))
    if bias is None:
        shift = context.apply("neg", context.apply("mul", center, scale))
    else:
        away = context.apply("neg", center)
        shift = context.apply("multiply_add", away, scale, context.value(bias, dtype))
    return context.apply("multiply_add", x, scale, shift)


def _over_last(node: Node) -> Rows:
    """Rows along the last dimensions, as many as `normalized_shape` has."""
    shape = points_shape(node)
    kept = len(shape) - len(named_arguments(node)["normalized_shape"])
    return Rows(shape, tuple(dim < kept for dim in range(len(shape))))


@reduces("aten.native_layer_norm.default", rows=_over_last, results=_NORM_RESULTS)
def layer_norm(context: ReductionContext) -> tuple[int, int, int]:
    x, center, inverse = _statistics(context)
    distance = context.apply("sub", x, center)
    return _affine(context, context.apply("mul", distance, inverse)), center, inverse


def _over_groups(node: Node) -> Rows:
    """Rows of the channels of one group, for each element of the batch."""
    batch, channels, *spatial = points_shape(node)
    groups = named_arguments(node)["group"]
    each = quotient(channels, groups)
    if each is None:
        raise NotFusableError("groups of a number of channels that is not known")
    return Rows((batch, groups, each, math.prod(spatial)), (True, True, False, False))


@reduces(
    "aten.native_group_norm.default", rows=_over_groups, results=_NORM_RESULTS, channelwise=True
)
def group_norm(context: ReductionContext) -> tuple[int, int, int]:
    x, center, inverse = _statistics(context)
    return _linear(context, x, center, inverse), center, inverse


def _over_channels(node: Node) -> Rows:
    """Rows of everything that belongs to one channel."""
    shape = points_shape(node)
    return Rows(shape, tuple(dim == 1 for dim in range(len(shape))))


@reduces(
    "aten._native_batch_norm_legit.no_stats",
    rows=_over_channels,
    results=_NORM_RESULTS,
    channelwise=True,
)
def batch_norm_of_batch(context: ReductionContext) -> tuple[int, int, int]:
    context.require(context.argument("training") is True, "statistics that are not given")
    x = _normalised(context)
    center, squares = moments(context, x)
    dtype = context.builder.dtype(x)
    inverse = _inverse_deviation(context, context.builder.cast(squares, DType.F64))
    inverse = context.builder.cast(inverse, dtype)
    return _linear(context, x, center, inverse), center, inverse


@reduces(
    "aten._native_batch_norm_legit_no_training.default",
    rows=None,
    results=("element",),
    channelwise=True,
)
def batch_norm(context: ReductionContext) -> int:
    """Normalise by statistics that are known; nothing is reduced."""
    x = _normalised(context)
    dtype = context.builder.dtype(x)
    center = context.value(context.operand("running_mean"), dtype)
    variance = context.value(context.operand("running_var"), dtype)
    safe = context.apply("add", variance, context.constant_like(x, context.number("eps")))
    return _linear(context, x, center, context.apply("rsqrt", safe))
