# SPDX-License-Identifier: Apache-2.0
"""Operations on single elements: tables of ATen operators by the dtype that they compute in."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from hostjit.fusion.builder import Builder, aten
from hostjit.fusion.data_type import DataType
from hostjit.fusion.operation import operation, register
from hostjit.fusion.promotion import common_data_type
from hostjit.fusion.scalar_functions import (
    PYTHON_FUNCTIONS,
    truncated_quotient,
    truncated_remainder,
)
from hostjit.fusion.values import Operand, Scalar, Tensor

__all__: list[str] = []


class _Rule(enum.Enum):
    """What is computed in which dtype."""

    KEEP = "the operand's"
    WIDE = "at least Float where it is floating point"
    FLOAT = "at least Float, integers too"
    BOOL = "the operand's, with a bool result"
    LOGICAL = "bool"
    COMPARE = "the common one, with a bool result"
    BITS = "the common one of integers or bools"
    INTEGER = "the common one of integers"
    FULL = "Float or Double"


_W, _F = _Rule.WIDE, _Rule.FLOAT
_UNARY: dict[_Rule, str] = {
    _Rule.KEEP: "ceil floor frac relu round sign silu trunc",
    _Rule.WIDE: "neg",
    _Rule.FLOAT: """
        acos acosh asin asinh atan atanh cos cosh erf erfc erfinv exp exp2 expm1 lgamma log log10
        log1p log2 reciprocal rsqrt sigmoid sin sinh sqrt tan tanh""",
    _Rule.BOOL: "isfinite isinf isnan isneginf isposinf isreal signbit",
    _Rule.LOGICAL: "logical_not",
}
# These look at signs, which would make a program for each number.
_DECIDING = (truncated_quotient, truncated_remainder)
_UNARY_NUMBERS: dict[str, Callable[..., Any]] = {"neg": operator.neg}

_COMPARE, _LOGICAL, _BITS, _INTEGER = _Rule.COMPARE, _Rule.LOGICAL, _Rule.BITS, _Rule.INTEGER
# By name: the dtype; the overload of two tensors, and of a tensor and a number; of two integers.
_Row = tuple[_Rule, Any, Any, Callable[..., Any] | None]
_BINARY: dict[str, _Row] = {
    "add": (_W, aten.add.Tensor, aten.add.Scalar, operator.add),
    "sub": (_W, aten.sub.Tensor, aten.sub.Scalar, operator.sub),
    "mul": (_W, aten.mul.Tensor, aten.mul.Scalar, operator.mul),
    "pow": (_W, aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar, None),
    "fmod": (_W, aten.fmod.Tensor, aten.fmod.Scalar, truncated_remainder),
    "remainder": (_W, aten.remainder.Tensor, aten.remainder.Scalar, operator.mod),
    "minimum": (_W, aten.minimum.default, None, torch.sym_min),
    "maximum": (_W, aten.maximum.default, None, torch.sym_max),
    "truediv": (_F, aten.div.Tensor, aten.div.Scalar, None),
    "atan2": (_F, aten.atan2.default, None, None),
    "nextafter": (_Rule.FULL, aten.nextafter.default, None, None),
    **{
        name: (_COMPARE, getattr(aten, name).Tensor, getattr(aten, name).Scalar, None)
        for name in ("eq", "ge", "gt", "le", "lt", "ne")
    },
    "logical_and": (_LOGICAL, aten.logical_and.default, None, None),
    "logical_or": (_LOGICAL, aten.logical_or.default, None, None),
    **{
        name: (_BITS, getattr(aten, name).Tensor, getattr(aten, name).Scalar, None)
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor")
    },
    "bitwise_left_shift": (
        _INTEGER,
        aten.bitwise_left_shift.Tensor,
        aten.bitwise_left_shift.Tensor_Scalar,
        None,
    ),
    "bitwise_right_shift": (
        _INTEGER,
        aten.bitwise_right_shift.Tensor,
        aten.bitwise_right_shift.Tensor_Scalar,
        None,
    ),
    "gcd": (_INTEGER, aten.gcd.default, None, None),
}


def result(
    builder: Builder,
    node: Any,
    data_type: DataType,
    *operands: Operand,
    function: Callable[..., Any] | None = None,
) -> Operand:
    """Return the tensor that a node computes of operands; a scalar if none of them is a tensor.

    `function` is what computes that of Python numbers, by default that of the operation's name.
    """
    if any(isinstance(operand, Tensor) for operand in operands):
        return builder.tensor(node, data_type, builder.broadcast(operands))
    scalars = [operand for operand in operands if isinstance(operand, Scalar)]
    if all(scalar.value is not None for scalar in scalars):
        return builder.known_scalar(data_type.convert(_value_of(node).item()), data_type)
    function = function or PYTHON_FUNCTIONS.get(builder.operation)
    numbers = [scalar.as_number() for scalar in scalars]
    number = None
    if function is not None and all(found is not None for found in numbers):
        number = builder.call(function, *numbers)
    return builder.scalar(data_type, number, node)


def _value_of(node: Node) -> Any:
    """What a node computes that depends on no input."""
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), _value_of)
    assert callable(node.target)
    return node.target(*args, **kwargs)


def _unary(builder: Builder, name: str, rule: _Rule, x: Operand) -> Operand:
    numeric = _UNARY_NUMBERS.get(name)
    if isinstance(x, Scalar) and numeric and x.dtype().is_integral and x.as_number() is not None:
        return _of_integers(builder, numeric, x.dtype(), None, x)
    data_type = x.dtype()
    if rule in (_Rule.WIDE, _Rule.FLOAT):
        data_type = common_data_type([x], integers_to_float=rule is _Rule.FLOAT)
    elif rule is _Rule.LOGICAL:
        data_type = DataType.Bool
    is_bool = rule in (_Rule.BOOL, _Rule.LOGICAL)
    node = builder.call(getattr(aten, name).default, builder.cast(x, data_type))
    return result(builder, node, DataType.Bool if is_bool else data_type, x)


def _of_integers(
    builder: Builder,
    function: Callable[..., Any],
    data_type: DataType,
    tensor: Any,
    *scalars: Scalar,
) -> Scalar:
    """An integer of integers as Python computes it, for sizes; as a tensor for all else."""
    numbers = [scalar.as_number() for scalar in scalars]
    if any(scalar.value is None for scalar in scalars):
        return builder.scalar(data_type, builder.call(function, *numbers), tensor)
    try:
        return builder.known_scalar(function(*numbers), data_type)
    except ZeroDivisionError as error:
        raise builder.error(f"{numbers[0]} is divided by 0") from error


def _is_integer(operand: Operand) -> bool:
    if isinstance(operand, Tensor) or operand.as_number() is None:
        return False
    return operand.dtype().is_integral


def _common(builder: Builder, rule: _Rule, left: Operand, right: Operand) -> DataType:
    """The dtype that two operands are cast to."""
    if rule is _Rule.LOGICAL:
        return DataType.Bool
    found = [left.dtype(), right.dtype()]
    if rule is _Rule.BITS and not all(t.is_integral or t is DataType.Bool for t in found):
        raise builder.error(f"takes integers or bools, found {found[0]} and {found[1]}")
    if rule is _Rule.INTEGER and not all(t.is_integral for t in found):
        raise builder.error(f"takes integers, found {found[0]} and {found[1]}")
    common = common_data_type([left, right], integers_to_float=rule is _Rule.FLOAT)
    if rule is _Rule.FULL and common not in (DataType.Float, DataType.Double):
        raise builder.error(f"takes Float or Double, found {found[0]} and {found[1]}")
    return common


def _binary(
    builder: Builder,
    rule: _Rule,
    of_tensors: Any,
    of_number: Any,
    of_integers: Callable[..., Any] | None,
    left: Operand,
    right: Operand,
    **options: Any,
) -> Operand:
    common = _common(builder, rule, left, right)
    if of_integers and _is_integer(left) and _is_integer(right):
        assert isinstance(left, Scalar) and isinstance(right, Scalar)
        tensor = None
        if of_integers in _DECIDING:
            operands = builder.cast(left, common), builder.cast(right, common)
            tensor = builder.call(of_tensors, *operands, **options)
        return _of_integers(builder, of_integers, common, tensor, left, right)
    is_bool = rule in (_Rule.LOGICAL, _Rule.COMPARE)
    number = None if isinstance(right, Tensor) else right.as_operand()
    if isinstance(right, Scalar) and right.value is not None:
        number = common.convert(right.value)
    is_plain = number is not None and right.dtype() is not DataType.Bool
    if of_number is not None and is_plain and isinstance(left, Tensor):
        node = builder.call(of_number, builder.cast(left, common), number, **options)
    else:
        operands = builder.cast(left, common), builder.cast(right, common)
        node = builder.call(of_tensors, *operands, **options)
    return result(builder, node, DataType.Bool if is_bool else common, left, right)


def _add_tables() -> None:
    def unary(name: str, rule: _Rule) -> Callable[..., Operand]:
        def write(builder: Builder, x: Operand) -> Operand:
            return _unary(builder, name, rule, x)

        return write

    def binary(row: _Row) -> Callable[..., Operand]:
        def write(builder: Builder, lhs: Operand, rhs: Operand) -> Operand:
            return _binary(builder, *row, lhs, rhs)

        return write

    for rule, names in _UNARY.items():
        for name in names.split():
            register(name, "unary", unary(name, rule))
    for name, row in _BINARY.items():
        register(name, "binary", binary(row))


_add_tables()


@operation("binary")
def div(builder: Builder, lhs: Operand, rhs: Operand) -> Operand:
    """Divide; integers are truncated towards zero."""
    common = common_data_type([lhs, rhs])
    if not common.is_integral:
        return _binary(builder, _W, aten.div.Tensor, aten.div.Scalar, None, lhs, rhs)
    targets = aten.div.Tensor_mode, aten.div.Scalar_mode, truncated_quotient
    return _binary(builder, _W, *targets, lhs, rhs, rounding_mode="trunc")


@operation("binary")
def mod(builder: Builder, lhs: Operand, rhs: Operand) -> Operand:
    """Return what a division of integers that truncates leaves, as C's `%` does."""
    targets = aten.fmod.Tensor, aten.fmod.Scalar, truncated_remainder
    return _binary(builder, _INTEGER, *targets, lhs, rhs)


@operation("binary")
def logical_right_shift(builder: Builder, x: Operand, shift: Operand) -> Operand:
    """Shift integers to the right and zeros in; shifted by their width or more they are 0."""
    common = _common(builder, _INTEGER, x, shift)
    bits = 32 if common is DataType.Int32 else 64
    value, by = builder.cast(x, common), builder.cast(shift, common)
    signed = builder.call(aten.bitwise_right_shift.Tensor, value, by)
    kept = builder.call(aten.rsub.Scalar, by, bits)
    ones = builder.call(aten.full.default, [], -1, dtype=common.torch_dtype)
    above = builder.call(aten.bitwise_left_shift.Tensor, ones, kept)
    mask = builder.call(aten.bitwise_not.default, above)
    all_kept = builder.call(aten.eq.Scalar, by, 0)
    mask = builder.call(aten.where.self, all_kept, ones, mask)
    shifted = builder.call(aten.bitwise_and.Tensor, signed, mask)
    none_kept = builder.call(aten.ge.Scalar, by, bits)
    node = builder.call(aten.masked_fill.Scalar, shifted, none_kept, 0)
    return result(builder, node, common, x, shift)


@operation("binary")
def complex_(builder: Builder, real: Operand, imag: Operand) -> Operand:
    """Return complex numbers of their parts, which have one dtype: Float or Double."""
    data_type = real.dtype()
    wide = {DataType.Float: DataType.ComplexFloat, DataType.Double: DataType.ComplexDouble}
    if data_type is not imag.dtype() or data_type not in wide:
        raise builder.error(
            f"takes two of Float or two of Double, found {data_type} and {imag.dtype()}"
        )
    if isinstance(real, Tensor) is not isinstance(imag, Tensor):
        raise builder.error("takes two tensors or two scalars")
    node = builder.call(
        aten.complex.default, builder.cast(real, data_type), builder.cast(imag, data_type)
    )
    return result(builder, node, wide[data_type], real, imag)
