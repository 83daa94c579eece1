# SPDX-License-Identifier: Apache-2.0
"""Real numbers that follow from sizes, such as 1 / (n - 1), computed inside of kernels."""

from __future__ import annotations

import functools
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.utils._sympy import functions

from hostjit.kernels import DType, KernelBuilder
from hostjit.lowering.sizes import size_of_expression

__all__ = ["number_value"]

_OPERATIONS: dict[Any, str] = {
    sympy.Add: "add",
    sympy.Mul: "mul",
    functions.FloatTrueDiv: "div",
    functions.IntTrueDiv: "div",
    functions.FloatPow: "pow",
    functions.OpaqueUnaryFn_sqrt: "sqrt",
}


def number_value(number: torch.SymFloat, builder: KernelBuilder) -> int:
    """The kernel value of type `f64` that a symbolic number is.

    Raises ValueError for an operation that kernels do not have, CaptureError for a size that Host
    IR can't write.
    """
    return _value(number.node.expr, number.node.shape_env, builder)


def _value(expression: Any, environment: Any, builder: KernelBuilder) -> int:
    if expression.is_number:
        return builder.constant(DType.F64, float(expression))
    if expression.is_integer:
        size = size_of_expression(expression, environment)
        return builder.cast(builder.size(size), DType.F64)
    operands = [_value(operand, environment, builder) for operand in expression.args]
    if isinstance(expression, functions.ToFloat):
        return operands[0]
    operation = _OPERATIONS.get(type(expression))
    if operation is None:
        raise ValueError(f"kernels do not compute {expression}")
    if len(operands) == 1:
        return builder.apply(operation, *operands)
    return functools.reduce(functools.partial(builder.apply, operation), operands)
