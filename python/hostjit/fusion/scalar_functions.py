# SPDX-License-Identifier: Apache-2.0
"""Operations of scalars as Python computes them, where a size is made of the result.

Other results of scalars are tensors without dims: only those are computed with open numbers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["PYTHON_FUNCTIONS", "truncated_quotient", "truncated_remainder"]


def truncated_quotient(dividend: int, divisor: int) -> int:
    """Divide, towards zero."""
    if (dividend >= 0) == (divisor > 0):
        return abs(dividend) // abs(divisor)
    return -(abs(dividend) // abs(divisor))


def truncated_remainder(dividend: int, divisor: int) -> int:
    """Return what that division leaves: it has the sign of the dividend."""
    rest = abs(dividend) % abs(divisor)
    return rest if dividend >= 0 else -rest


def _reciprocal(number: float) -> float:
    return 1 / number


def _signbit(number: float) -> bool:
    return number < 0


def _where(condition: bool, number: Any, other: Any) -> Any:
    return number if condition else other


PYTHON_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": operator.abs,
    "add": operator.add,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "ceil": math.ceil,
    "div": operator.truediv,
    "floor": math.floor,
    "logical_and": operator.and_,
    "logical_not": operator.not_,
    "logical_or": operator.or_,
    "maximum": torch.sym_max,
    "minimum": torch.sym_min,
    "mul": operator.mul,
    "neg": operator.neg,
    "reciprocal": _reciprocal,
    "remainder": operator.mod,
    "signbit": _signbit,
    "sub": operator.sub,
    "truediv": operator.truediv,
    "trunc": math.trunc,
    "where": _where,
    **{name: getattr(operator, name) for name in ("eq", "ge", "gt", "le", "lt", "ne")},
}
