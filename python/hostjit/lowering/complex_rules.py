# SPDX-License-Identifier: Apache-2.0
"""Operators on complex tensors as operators on their parts.

With what eager computes for infinities and NaN, too: a real operand has an imaginary part of zero,
which is multiplied like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch._prims_common import corresponding_real_dtype
from torch.fx import Node

from hostjit.lowering.complex_parts import CannotPartError, Number, Pair, PartsContext, in_parts

__all__: list[str] = []

aten = torch.ops.aten

# Squares of what is larger, or smaller than one over it, may be no float32.
_LARGE, _SCALE = 1e30, 2.0**60


def _product(context: PartsContext, x: Pair, y: Pair) -> Pair:
    (a, b), (c, d) = x, y
    real = context.sub(context.mul(a, c), context.mul(b, d))
    return real, context.add(context.mul(a, d), context.mul(b, c))


@in_parts("aten.mul.Tensor", "aten.mul.Scalar")
def multiply(context: PartsContext) -> Pair:
    return _product(context, *context.pairs("self", "other"))


@in_parts("aten.square.default")
def square(context: PartsContext) -> Pair:
    (x,) = context.pairs("self")
    return _product(context, x, x)


@in_parts("aten.pow.Tensor_Scalar")
def power(context: PartsContext) -> Pair:
    """The exponents that eager multiplies for."""
    exponent = context.arguments["exponent"]
    if exponent not in (2, 3):
        raise CannotPartError
    (x,) = context.pairs("self")
    result = _product(context, x, x)
    return result if exponent == 2 else _product(context, result, x)


def _scaled(context: PartsContext, x: Pair) -> Pair:
    """`alpha * x`: eager multiplies by one, too."""
    alpha = context.arguments["alpha"]
    if not isinstance(alpha, int | float | complex):
        raise CannotPartError
    return _product(context, (complex(alpha).real, complex(alpha).imag), x)


@in_parts("aten.add.Tensor", "aten.add.Scalar")
def add(context: PartsContext) -> Pair:
    (a, b), other = context.pairs("self", "other")
    c, d = _scaled(context, other)
    return context.add(a, c), context.add(b, d)


def _difference(context: PartsContext, x: Pair, y: Pair) -> Pair:
    c, d = _scaled(context, y)
    return context.sub(x[0], c), context.sub(x[1], d)


@in_parts("aten.sub.Tensor", "aten.sub.Scalar")
def subtract(context: PartsContext) -> Pair:
    return _difference(context, *context.pairs("self", "other"))


@in_parts("aten.rsub.Tensor", "aten.rsub.Scalar")
def subtract_from(context: PartsContext) -> Pair:
    x, y = context.pairs("self", "other")
    return _difference(context, y, x)


@in_parts("aten.neg.default")
def negative(context: PartsContext) -> Pair:
    real, imaginary = context.parts("self")
    return context.call(aten.neg.default, real), context.call(aten.neg.default, imaginary)


@in_parts("aten.conj_physical.default", "aten._conj_physical.default")
def conjugate(context: PartsContext) -> Pair:
    real, imaginary = context.parts("self")
    return real, context.call(aten.neg.default, imaginary)


def _quotient(context: PartsContext, x: Pair, y: Pair) -> Pair:
    """`x / y` as `c10::complex` computes it, scaled by the larger part of the divisor."""
    if not any(isinstance(part, Node) for part in y) and any(y):
        return _quotient_by_number(context, x, complex(*y))  # type: ignore[arg-type]
    (a, b), (c, d) = x, (context.tensor(part) for part in y)
    c_size, d_size = (context.call(aten.abs.default, part) for part in (c, d))
    is_first = context.call(aten.ge.Tensor, c_size, d_size)
    large, small = (context.call(aten.where.self, is_first, *pair) for pair in ((c, d), (d, c)))
    ratio = context.call(aten.div.Tensor, small, large)
    divisor = context.add(large, context.mul(small, ratio))
    scale = context.call(aten.reciprocal.default, context.tensor(divisor))
    ratio_a, ratio_b = context.mul(a, ratio), context.mul(b, ratio)
    first = context.add(a, ratio_b), context.sub(b, ratio_a)
    second = context.add(ratio_a, b), context.sub(ratio_b, a)
    is_zero = context.call(
        aten.logical_and.default,
        *(context.call(aten.eq.Scalar, size, 0.0) for size in (c_size, d_size)),
    )
    made = []
    for place, numerator in enumerate(zip(first, second, strict=True)):
        chosen = context.call(aten.where.self, is_first, *map(context.tensor, numerator))
        quotient = context.call(aten.mul.Tensor, chosen, scale)
        by_zero = context.call(aten.div.Tensor, context.tensor(x[place]), c_size)
        made.append(context.call(aten.where.self, is_zero, by_zero, quotient))
    return made[0], made[1]


def _quotient_by_number(context: PartsContext, x: Pair, y: complex) -> Pair:
    (a, b), is_first = x, abs(y.real) >= abs(y.imag)
    large, small = (y.real, y.imag) if is_first else (y.imag, y.real)
    ratio = small / large
    scale = 1 / (large + small * ratio)
    ratio_a, ratio_b = context.mul(a, ratio), context.mul(b, ratio)
    if is_first:
        numerator = context.add(a, ratio_b), context.sub(b, ratio_a)
    else:
        numerator = context.add(ratio_a, b), context.sub(ratio_b, a)
    return context.mul(numerator[0], scale), context.mul(numerator[1], scale)


@in_parts("aten.div.Tensor", "aten.div.Scalar")
def divide(context: PartsContext) -> Pair:
    return _quotient(context, *context.pairs("self", "other"))


@in_parts("aten.reciprocal.default")
def reciprocal(context: PartsContext) -> Pair:
    (x,) = context.pairs("self")
    return _quotient(context, (1.0, 0.0), x)


@in_parts("aten.abs.default")
def magnitude(context: PartsContext) -> Node:
    return context.call(aten.hypot.default, *context.parts("self"))


@in_parts("aten.angle.default")
def angle(context: PartsContext) -> Node:
    real, imaginary = context.parts("self")
    return context.call(aten.atan2.default, imaginary, real)


@in_parts("aten.sgn.default")
def direction(context: PartsContext) -> Pair:
    (parts,) = context.pairs("self")
    real, imaginary = map(context.tensor, parts)
    size = context.call(aten.hypot.default, real, imaginary)
    is_zero, zero = context.call(aten.eq.Scalar, size, 0.0), context.full(0.0)
    first, second = (
        context.call(aten.where.self, is_zero, zero, context.call(aten.div.Tensor, part, size))
        for part in (real, imaginary)
    )
    return first, second


@in_parts("aten.polar.default")
def polar(context: PartsContext) -> Pair:
    size, angle = context.arguments["abs"], context.arguments["angle"]
    cosine, sine = (context.call(f, angle) for f in (aten.cos.default, aten.sin.default))
    return context.mul(size, cosine), context.mul(size, sine)


@in_parts("aten.exp.default")
def exponential(context: PartsContext) -> Pair:
    """In two steps, of which neither overflows where the product does not.

    Of infinite real parts the result is as C's `cexp` has it, whatever the sine of the other is.
    """
    (parts,) = context.pairs("self")
    real, imaginary = map(context.tensor, parts)
    root = context.call(aten.exp.default, context.call(aten.mul.Tensor, real, 0.5))
    cosine, sine = (context.call(f, imaginary) for f in (aten.cos.default, aten.sin.default))
    is_real = context.call(aten.eq.Scalar, imaginary, 0.0)
    is_finite = context.call(aten.isfinite.default, imaginary)
    has_no_angle = context.call(
        aten.logical_and.default,
        context.call(aten.isinf.default, real),
        context.call(aten.logical_not.default, is_finite),
    )
    is_large = context.call(aten.gt.Scalar, real, 0.0)
    infinity, nan, zero = map(context.full, (float("inf"), float("nan"), 0.0))
    made = []
    for factor, limit in ((cosine, infinity), (sine, nan)):
        product = context.call(aten.mul.Tensor, root, context.call(aten.mul.Tensor, root, factor))
        limited = context.call(aten.where.self, is_large, limit, zero)
        made.append(context.call(aten.where.self, has_no_angle, limited, product))
    return made[0], context.call(aten.where.self, is_real, imaginary, made[1])


@in_parts("aten.log.default")
def logarithm(context: PartsContext) -> Pair:
    """Of magnitudes near one, `log1p` of the little by which their squares differ from it.

    Those that overflow, or are rounded to few bits, are scaled.
    """
    (parts,) = context.pairs("self")
    real, imaginary = map(context.tensor, parts)
    sizes = [context.call(aten.abs.default, part) for part in (real, imaginary)]
    large, small = (context.call(which.default, *sizes) for which in (aten.maximum, aten.minimum))
    less, more = (context.call(aten.add.Tensor, large, one) for one in (-1.0, 1.0))
    difference = context.add(context.mul(less, more), context.mul(small, small))
    near = context.mul(context.call(aten.log1p.default, context.tensor(difference)), 0.5)
    chosen = _by_size(context, large)
    scale = chosen(1 / _SCALE, _SCALE, 1.0)
    scaled = (context.call(aten.mul.Tensor, part, scale) for part in (real, imaginary))
    far = context.call(aten.log.default, context.call(aten.hypot.default, *scaled))
    far = context.call(aten.add.Tensor, far, chosen(math.log(_SCALE), -math.log(_SCALE), 0.0))
    is_near = context.call(
        aten.logical_and.default,
        context.call(aten.gt.Scalar, large, 0.5),
        context.call(aten.lt.Scalar, large, 2.0),
    )
    result = context.call(aten.where.self, is_near, context.tensor(near), far)
    return result, context.call(aten.atan2.default, imaginary, real)


@in_parts("aten.sqrt.default")
def root(context: PartsContext) -> Pair:
    """Half of the sum of the magnitude and the real part's is the square of the larger part."""
    (parts,) = context.pairs("self")
    real, imaginary = map(context.tensor, parts)
    sizes = [context.call(aten.abs.default, part) for part in (real, imaginary)]
    chosen = _by_size(context, context.call(aten.maximum.default, *sizes))
    scale = chosen(1 / _SCALE, _SCALE, 1.0)
    a, b = (context.call(aten.mul.Tensor, size, scale) for size in sizes)
    total = context.call(aten.add.Tensor, context.call(aten.hypot.default, a, b), a)
    larger = context.call(aten.sqrt.default, context.call(aten.mul.Tensor, total, 0.5))
    smaller = context.call(aten.div.Tensor, context.call(aten.mul.Tensor, b, 0.5), larger)
    is_zero = context.call(aten.eq.Scalar, larger, 0.0)
    smaller = context.call(aten.where.self, is_zero, larger, smaller)
    back = chosen(_SCALE**0.5, _SCALE**-0.5, 1.0)
    is_positive = context.call(aten.ge.Scalar, real, 0.0)
    first, second = (
        context.call(aten.mul.Tensor, context.call(aten.where.self, is_positive, *pair), back)
        for pair in ((larger, smaller), (smaller, larger))
    )
    signed = context.call(aten.copysign.Tensor, second, imaginary)
    is_infinite = context.call(aten.isinf.default, imaginary)
    return (
        context.call(aten.where.self, is_infinite, context.full(math.inf), first),
        context.call(aten.where.self, is_infinite, imaginary, signed),
    )


def _by_size(context: PartsContext, size: Node) -> Callable[[float, float, float], Node]:
    """What chooses of three numbers: for large sizes, for small ones, or for others."""
    is_large = context.call(aten.gt.Scalar, size, _LARGE)
    is_small = context.call(aten.lt.Scalar, size, 1 / _LARGE)

    def chosen(*numbers: float) -> Node:
        of_large, of_small, of_others = map(context.full, numbers)
        found = context.call(aten.where.self, is_small, of_small, of_others)
        return context.call(aten.where.self, is_large, of_large, found)

    return chosen


@in_parts("aten.eq.Tensor", "aten.eq.Scalar")
def equal(context: PartsContext) -> Node:
    return _compared(context, aten.eq, aten.logical_and.default)


@in_parts("aten.ne.Tensor", "aten.ne.Scalar")
def not_equal(context: PartsContext) -> Node:
    return _compared(context, aten.ne, aten.logical_or.default)


def _compared(context: PartsContext, compare: object, join: object) -> Node:
    (a, b), (c, d) = context.pairs("self", "other")

    def compared(x: Number, y: Number) -> Node:
        if not isinstance(x, Node):
            x, y = y, x
        overload = "Tensor" if isinstance(y, Node) else "Scalar"
        return context.call(getattr(compare, overload), x, y)

    return context.call(join, compared(a, c), compared(b, d))


@in_parts("aten.where.self")
def where(context: PartsContext) -> Pair:
    (a, b), (c, d) = context.pairs("self", "other")
    condition = context.arguments["condition"]
    real, imaginary = (
        context.call(aten.where.self, condition, context.tensor(x), context.tensor(y))
        for x, y in ((a, c), (b, d))
    )
    return real, imaginary


@in_parts("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(context: PartsContext) -> Pair:
    (a, b), (c, d) = context.pairs("self", "value")
    mask = context.arguments["mask"]
    real, imaginary = (
        context.call(aten.where.self, mask, context.tensor(y), context.tensor(x))
        for x, y in ((a, c), (b, d))
    )
    return real, imaginary


@in_parts("aten.clone.default")
def clone(context: PartsContext) -> Pair:
    parts = context.parts("self")
    real, imaginary = (
        context.call(aten.clone.default, part, **context.node.kwargs) for part in parts
    )
    return real, imaginary


@in_parts("aten._to_copy.default", "prims.convert_element_type.default")
def convert(context: PartsContext) -> Pair:
    """From real numbers, too; what leaves the imaginary part out warns."""
    source, value = context.arguments[next(iter(context.arguments))], context.node.meta["val"]
    settings = {"dtype": corresponding_real_dtype(value.dtype)}
    if context.arguments.get("memory_format") is not None:
        settings["memory_format"] = context.arguments["memory_format"]
    if not source.meta["val"].is_complex():
        return context.call(aten._to_copy.default, source, **settings), 0.0
    real, imaginary = (
        context.call(aten._to_copy.default, part, **settings) for part in context.parts_of(source)
    )
    return real, imaginary


@in_parts("aten.sum.default", "aten.sum.dim_IntList")
def add_up(context: PartsContext) -> Pair:
    return _sum(context)


@in_parts("aten.mean.default", "aten.mean.dim")
def mean(context: PartsContext) -> Pair:
    """The sum, divided as complex numbers are."""
    total = _sum(context)
    count, rows = (
        value.numel() for value in (context.arguments["self"].meta["val"], context.node.meta["val"])
    )
    if not isinstance(count, int) or not isinstance(rows, int) or not count or not rows:
        raise CannotPartError
    return _quotient_by_number(context, total, complex(count // rows))


def _sum(context: PartsContext) -> Pair:
    if context.arguments["dtype"] not in (None, context.arguments["self"].meta["val"].dtype):
        raise CannotPartError
    dims, keep = context.arguments.get("dim"), context.arguments.get("keepdim", False)
    real, imaginary = (
        context.call(aten.sum.dim_IntList, part, dims, keep) for part in context.parts("self")
    )
    return real, imaginary


@in_parts("aten.full.default", "aten.full_like.default", "aten.zeros_like.default")
@in_parts("aten.ones_like.default", "aten.zeros.default", "aten.ones.default")
@in_parts("aten.scalar_tensor.default", "aten.new_full.default", "aten.new_zeros.default")
def filled(context: PartsContext) -> Pair:
    name = str(context.node.target).split(".")[1]
    default = 1.0 if name.startswith("ones") else 0.0
    number = complex(context.arguments.get("fill_value", context.arguments.get("s", default)))
    return number.real, number.imag
