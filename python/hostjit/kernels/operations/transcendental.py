# SPDX-License-Identifier: Apache-2.0
"""Operations that are calls of the vector-math list, under the same names."""

from __future__ import annotations

import math
from collections.abc import Callable

from hostjit.kernels.dtypes import FLOATS
from hostjit.kernels.operation import OPERATIONS, Value, operation
from hostjit.kernels.vector_math import VECTOR_MATH


def _call(name: str) -> Callable[..., Value]:
    def emit(x: Value, *others: Value) -> Value:
        return x.math(name, *others)

    return emit


# Beyond this the square root in asinh and acosh is the operand itself; Sleef overflows there.
_LARGE = 1e18


@operation("T>T", FLOATS)
def asinh(x: Value) -> Value:
    magnitude = x.intrinsic("fabs")
    large = (magnitude.math("log") + math.log(2.0)).intrinsic("copysign", x)
    return (magnitude > _LARGE).where(large, x.math("asinh"))


@operation("T>T", FLOATS)
def acosh(x: Value) -> Value:
    return (x > _LARGE).where(x.math("log") + math.log(2.0), x.math("acosh"))


for _function in VECTOR_MATH.values():
    if _function.name not in OPERATIONS:
        operation("T" * _function.arity + ">T", FLOATS, name=_function.name)(_call(_function.name))
