# SPDX-License-Identifier: Apache-2.0
"""Floats that are only known at the call, computed inside of kernels as Python computes them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from hostjit.capturing.numbers.host_numbers import HostNumber
from hostjit.kernels import DType, KernelBuilder
from hostjit.lowering.sizes import check_range, size_of

__all__ = ["number_value"]

_OPERATIONS: dict[Callable[..., Any], str] = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.truediv: "div",
    operator.pow: "pow",
    operator.neg: "neg",
    operator.abs: "abs",
    operator.mod: "remainder",
    torch.sym_max: "maximum",
    torch.sym_min: "minimum",
    **{
        getattr(torch, f"_sym_{name}"): name
        for name in ("sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")
    },
}


def number_value(number: HostNumber, builder: KernelBuilder) -> int:
    """The kernel value of type `f64` that a number is.

    Raises ValueError for an operation that kernels do not have, CaptureError for a size that Host
    IR can't write.
    """
    if number.operation is None:
        return builder.scalar_argument(number.name, DType.F64)
    operands = [_operand(operand, builder) for operand in number.operands]
    if number.operation is torch.sym_float:
        return operands[0]
    operation = _OPERATIONS.get(number.operation)
    if operation is None:
        raise ValueError(f"kernels do not compute {number}")
    return builder.apply(operation, *operands)


def _operand(operand: HostNumber | torch.SymInt | float, builder: KernelBuilder) -> int:
    if isinstance(operand, HostNumber):
        return number_value(operand, builder)
    if isinstance(operand, torch.SymInt):
        check_range(operand)
        return builder.cast(builder.size(size_of(operand)), DType.F64)
    return builder.constant(DType.F64, float(operand))
