# SPDX-License-Identifier: Apache-2.0
"""Operations on single elements whose results are no plain function of one dtype."""

from __future__ import annotations

from torch.fx import Node

from hostjit.fusion.builder import Builder, aten
from hostjit.fusion.data_type import DataType
from hostjit.fusion.operation import operation
from hostjit.fusion.pointwise import result
from hostjit.fusion.promotion import common_data_type
from hostjit.fusion.values import Operand, Scalar, Tensor

__all__: list[str] = []


@operation("unary")
def abs_(builder: Builder, x: Operand) -> Operand:
    """Return absolute values; those of complex numbers are real."""
    node = builder.call(aten.abs.default, builder.cast(x, x.dtype()))
    return result(builder, node, x.dtype().real, x)


@operation("unary")
def real(builder: Builder, x: Operand) -> Operand:
    """Return real parts; a copy of what is real."""
    return _part(builder, x, 0)


@operation("unary")
def imag(builder: Builder, x: Operand) -> Operand:
    """Return imaginary parts of complex numbers."""
    if not x.dtype().is_complex:
        raise builder.error(f"takes complex numbers, found {x}")
    return _part(builder, x, 1)


def _part(builder: Builder, x: Operand, part: int) -> Operand:
    node = builder.cast(x, x.dtype())
    if x.dtype().is_complex:
        node = builder.call(
            aten.select.int, builder.call(aten.view_as_real.default, node), -1, part
        )
    return result(builder, builder.call(aten.clone.default, node), x.dtype().real, x)


@operation("unary")
def erfcinv(builder: Builder, x: Operand) -> Operand:
    """Return the inverse of erfc: erfinv of 1 - x."""
    data_type = common_data_type([x], integers_to_float=True)
    rest = builder.call(aten.rsub.Scalar, builder.cast(x, data_type), 1)
    return result(builder, builder.call(aten.erfinv.default, rest), data_type, x)


@operation("unary")
def bitwise_not(builder: Builder, x: Operand) -> Operand:
    """Invert the bits of integers, or bools."""
    if not (x.dtype().is_integral or x.dtype() is DataType.Bool):
        raise builder.error(f"takes integers or bools, found {x}")
    node = builder.call(aten.bitwise_not.default, builder.cast(x, x.dtype()))
    return result(builder, node, x.dtype(), x)


@operation("unary")
def set_(builder: Builder, x: Operand) -> Operand:
    """Return a copy."""
    node = builder.call(aten.clone.default, builder.cast(x, x.dtype()))
    return result(builder, node, x.dtype(), x)


@operation("unary")
def segment_set(builder: Builder, x: Operand) -> Operand:
    """Return a copy; where nvFuser begins a new kernel, hostjit decides by itself."""
    return set_(builder, x)


@operation("unary")
def cast(builder: Builder, arg: Operand, dtype: DataType) -> Operand:
    """Convert to another dtype."""
    if isinstance(arg, Scalar) and arg.value is not None:
        return builder.known_scalar(dtype.convert(arg.value), dtype)
    if isinstance(arg, Scalar) and arg.dtype().is_integral and dtype.is_integral:
        return builder.scalar(dtype, number=arg.number, tensor=arg.tensor)
    kinds = (bool, int, float, complex)
    node = _copied(builder, builder.cast(arg, dtype), arg)
    return result(builder, node, dtype, arg, function=kinds[dtype.rank_of_kind])


def _copied(builder: Builder, node: Node, operand: Operand) -> Node:
    """The node, or a copy where it is the operand: a result is a tensor of its own."""
    if isinstance(operand, Tensor) and node is operand.node:
        return builder.call(aten.clone.default, node)
    return node


@operation("ternary")
def where(builder: Builder, condition: Operand, x: Operand, y: Operand) -> Operand:
    """Return elements of `x` where the condition, of bools, holds, else of `y`."""
    if condition.dtype() is not DataType.Bool:
        raise builder.error(f"the condition has to be of DataType.Bool, found {condition}")
    common = common_data_type([x, y], widen=False)
    node = builder.call(
        aten.where.self,
        builder.cast(condition, DataType.Bool),
        builder.cast(x, common),
        builder.cast(y, common),
    )
    return result(builder, node, common, condition, x, y)


@operation("ternary")
def lerp(builder: Builder, start: Operand, end: Operand, weight: Operand) -> Operand:
    """Return start + weight * (end - start)."""
    common = common_data_type([start, end, weight])
    operands = [builder.cast(operand, common) for operand in (start, end, weight)]
    node = builder.call(aten.lerp.Tensor, *operands)
    return result(builder, node, common, start, end, weight)


@operation("ternary")
def addcmul(builder: Builder, x: Operand, y: Operand, z: Operand, alpha: Scalar) -> Operand:
    """Return x + y * (z * alpha)."""
    common = common_data_type([x, y, z])
    scaled = builder.call(aten.mul.Tensor, builder.cast(z, common), builder.cast(alpha, common))
    product = builder.call(aten.mul.Tensor, builder.cast(y, common), scaled)
    node = builder.call(aten.add.Tensor, builder.cast(x, common), product)
    return result(builder, node, common, x, y, z)


@operation("ternary")
def clamp(
    builder: Builder, x: Operand, least: Scalar | None = None, most: Scalar | None = None
) -> Operand:
    """Bring elements between two bounds, which are cast to the dtype of `x`."""
    low, high = (None if end is None else builder.cast(end, x.dtype()) for end in (least, most))
    node = builder.cast(x, x.dtype())
    if low is not None or high is not None:
        node = builder.call(aten.clamp.Tensor, node, low, high)
    node = _copied(builder, node, x)
    return result(builder, node, x.dtype(), x)


@operation("ternary")
def threshold(builder: Builder, x: Operand, threshold: Scalar, value: Scalar) -> Operand:
    """Return `value` where `x` is not greater than the threshold, else `x`."""
    data_type = x.dtype()
    node, bound, other = (builder.cast(operand, data_type) for operand in (x, threshold, value))
    not_greater = builder.call(aten.le.Tensor, node, bound)
    return result(builder, builder.call(aten.where.self, not_greater, other, node), data_type, x)


@operation("shape")
def triu(builder: Builder, arg: Tensor, diagonal: int = 0) -> Tensor:
    """Return the upper triangle of matrices, from a diagonal on; the rest is 0."""
    if arg.ndim < 2:
        raise builder.error(f"takes a tensor of 2 or more dims, found {arg}")
    return builder.tensor(builder.call(aten.triu.default, arg, diagonal), arg.dtype(), arg.sizes)
