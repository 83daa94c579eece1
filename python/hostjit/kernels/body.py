# SPDX-License-Identifier: Apache-2.0
"""The function of a kernel while it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hostjit.kernels.checks import Checks
from hostjit.kernels.conversion import cast
from hostjit.kernels.dtypes import DType
from hostjit.kernels.expression import (
    Apply,
    Bounded,
    Cast,
    Constant,
    Expression,
    PointwiseKernel,
    ScalarArgument,
    SizeNumber,
)
from hostjit.kernels.operation import Emitter, Value, apply
from hostjit.kernels.size_values import SizeValues

__all__ = ["Body"]


@dataclass(frozen=True)
class Body:
    """A function, its kernel and its checks, written at the place of the checks' emitter.

    `items` are the bounds along the loop that threads share, or None for all of it.
    """

    kernel: PointwiseKernel
    function: Any
    checks: Checks
    items: tuple[Any, Any] | None = None

    @property
    def emitter(self) -> Emitter:
        """Where instructions go."""
        return self.checks.emitter

    @property
    def sizes(self) -> SizeValues:
        """Sizes as registers."""
        return self.checks.sizes

    def compute(self, value: Expression, operand: Callable[[int], Value]) -> Value:
        """A value that is read from no memory, from those of its operands."""
        match value:
            case Constant():
                return self.emitter.constant(value.dtype, value.number)
            case ScalarArgument():
                arguments = (a for a in self.function.args if a.name == value.name)
                return Value(self.emitter, value.dtype, next(arguments))
            case SizeNumber():
                return Value(self.emitter, DType.I64, self.sizes.value(value.size))
            case Cast():
                return cast(operand(value.operand), value.dtype)
            case Apply():
                return apply(value.name, *(operand(number) for number in value.operands))
            case Bounded():
                return self.checks.place(value, operand(value.operand))
        raise AssertionError(f"a {type(value).__name__} is read from memory")
