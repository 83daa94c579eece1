# SPDX-License-Identifier: Apache-2.0
"""Pointwise rules of arithmetic: alpha, divisions and powers with eager's special cases."""

from __future__ import annotations

import torch
from torch.fx import Node

from hostjit.capturing.numbers.host_numbers import HostNumber
from hostjit.kernels import DType
from hostjit.kernels.expression import Constant
from hostjit.lowering.devices import is_number_of_the_host
from hostjit.lowering.pointwise import (
    PROMOTION,
    NotFusableError,
    Operand,
    PointwiseContext,
    pointwise,
)


def _operands(context: PointwiseContext) -> list[Operand]:
    return [context.operand("self"), context.operand("other")]


@pointwise("aten.mul.Tensor", "aten.mul.Scalar")
def multiply(context: PointwiseContext) -> int:
    return context.apply("mul", *context.promoted(_operands(context), exact_numbers=True))


@pointwise("aten.div.Tensor", "aten.div.Scalar")
def divide(context: PointwiseContext) -> int:
    x, divisor = context.promoted(_operands(context), PROMOTION.INT_TO_FLOAT, exact_numbers=True)
    inverse = _inverse(context, divisor)
    return context.apply("div", x, divisor) if inverse is None else context.apply("mul", x, inverse)


def _inverse(context: PointwiseContext, divisor: int) -> int | None:
    """What eager multiplies by on CUDA devices where a divisor is a number of the host."""
    number, value = context.arguments["other"], context.builder.values[divisor]
    is_of_device = isinstance(number, Node) and not is_number_of_the_host(number)
    if not context.on_cuda() or is_of_device:
        return None
    if isinstance(number, Node) and not isinstance(value, Constant):
        return context.apply("div", context.constant_like(divisor, 1), divisor)
    if not isinstance(value, Constant):
        return None
    dtype = torch.float64 if value.dtype is DType.F64 else torch.float32
    inverse = torch.tensor(value.number, dtype=dtype, device="cpu").reciprocal().item()
    return context.constant_like(divisor, inverse)


@pointwise("aten.add.Tensor", "aten.add.Scalar")
def add(context: PointwiseContext) -> int:
    """`self + alpha * other`."""
    x, y = context.promoted(_operands(context), exact_numbers=context.on_cuda())
    return _add_scaled(context, "add", x, y)


@pointwise("aten.sub.Tensor", "aten.sub.Scalar")
def subtract(context: PointwiseContext) -> int:
    """`self - alpha * other`."""
    x, y = _difference(context)
    return _add_scaled(context, "sub", x, y)


@pointwise("aten.rsub.Tensor", "aten.rsub.Scalar")
def subtract_from(context: PointwiseContext) -> int:
    """`other - alpha * self`."""
    x, y = _difference(context)
    return _add_scaled(context, "sub", y, x)


def _difference(context: PointwiseContext) -> list[int]:
    dtypes = context.tensor_dtypes("self", "other")
    context.require(DType.BOOL not in dtypes, "eager raises for a subtraction of bool")
    return context.promoted(_operands(context), exact_numbers=context.on_cuda())


def _add_scaled(context: PointwiseContext, operation: str, x: int, y: int) -> int:
    """Add or subtract `alpha * y`; of floats rounded once, and `alpha` before that on the CPU."""
    alpha = context.parameter("alpha")
    if isinstance(alpha, HostNumber):
        scale = context.constant_like(x, alpha)
        if not context.on_cuda():
            scale = context.builder.cast(scale, context.result_dtype())
        scale = scale if operation == "add" else context.apply("neg", scale)
        return context.apply("multiply_add", y, scale, x)
    if alpha == 1:
        return context.apply(operation, x, y)
    dtype = context.builder.dtype(x)
    context.require(dtype is not DType.BOOL, "alpha of bool")
    if not dtype.is_float:
        return context.apply(operation, x, context.apply("mul", y, context.constant_like(y, alpha)))
    factor = float(alpha)
    if not context.on_cuda():
        dtype = context.node.meta["val"].dtype
        factor = torch.tensor(alpha, dtype=dtype, device="cpu").item()
    factor = factor if operation == "add" else -factor
    return context.apply("multiply_add", y, context.constant_like(y, factor), x)


def _divide(context: PointwiseContext, operation: str) -> int:
    divisor = context.operand("other")
    # Quotients keep a number as it is, remainders round it to the half types.
    exact = operation.startswith("div")
    x, y = context.promoted([context.operand("self"), divisor], exact_numbers=exact)
    safe = context.builder.dtype(x).is_float or not (isinstance(divisor, Node) or divisor == 0)
    context.require(safe, "eager raises for an integer division by zero")
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
        return divide(context)
    divisor, dtype = context.operand("other"), context.result_dtype()
    if mode == "trunc" and dtype.register is not dtype and _has_many(divisor):
        # Eager rounds the quotient to the half type first, unless the divisor is one number.
        return context.apply("trunc", context.builder.cast(divide(context), dtype))
    return _divide(context, f"div_{mode}")


def _has_many(operand: Operand) -> bool:
    return isinstance(operand, Node) and operand.meta["val"].numel() != 1


@pointwise("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def power(context: PointwiseContext) -> int:
    """Constant exponents are special-cased as in eager."""
    base, exponent = context.operand("self"), context.operand("exponent")
    dtype = context.compute_dtype([base, exponent])
    roots = _HALF_ROOTS if context.result_dtype() is DType.F16 else _ROOTS
    if isinstance(exponent, HostNumber):
        return _open_power(context, base, exponent)
    known = isinstance(exponent, int | float)
    if isinstance(exponent, Node) or (dtype.is_float and not (known and exponent in roots)):
        return context.apply("pow", *context.promoted([base, exponent]))
    if not isinstance(exponent, int | float):
        raise NotFusableError("a power of integers by a size")
    x = context.value(base, dtype)
    if exponent == int(exponent) and 0 <= exponent <= (3 if dtype.is_float else 64):
        return _integer_power(context, x, int(exponent))
    context.require(dtype.is_float, "a negative or large power of integers")
    if exponent == -2:
        x = context.apply("square", x)
        # Eager has a square of bfloat16 in that type, of float16 in float32.
        x = context.builder.cast(x, DType.BF16) if context.result_dtype() is DType.BF16 else x
    return context.apply(_ROOTS[exponent], x)


def _open_power(context: PointwiseContext, base: Operand, exponent: HostNumber) -> int:
    """Of the exponents that eager does not give to `pow`, roots have other special values."""
    x, y = context.promoted([base, exponent])
    result = context.apply("pow", x, y)
    if context.result_dtype() is DType.F16:
        return result
    exact = context.value(exponent, DType.F64)
    for number in (0.5, -0.5):
        is_root = context.apply("eq", exact, context.constant_like(exact, number))
        result = context.apply("where", is_root, context.apply(_ROOTS[number], x), result)
    return result


# What follows multiplication for the exponents that eager does not give to `pow`.
_HALF_ROOTS: dict[float, str] = {0: "", 1: "", 2: "", 3: "", -1: "reciprocal", -2: "reciprocal"}
_ROOTS: dict[float, str] = {**_HALF_ROOTS, 0.5: "sqrt", -0.5: "rsqrt"}


def _integer_power(context: PointwiseContext, x: int, exponent: int) -> int:
    """Square and multiply; of bfloat16, eager rounds each product."""
    rounded = context.result_dtype() is DType.BF16
    result = context.constant_like(x, 1) if exponent == 0 else x
    for bit in bin(exponent)[3:]:
        result = context.apply("square", result)
        result = context.builder.cast(result, DType.BF16) if rounded else result
        result = context.apply("mul", result, x) if bit == "1" else result
    return result
