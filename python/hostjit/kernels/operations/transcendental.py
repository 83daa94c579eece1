# SPDX-License-Identifier: Apache-2.0
"""Operations that are calls of the vector-math list, under the same names."""

from __future__ import annotations

from collections.abc import Callable

from hostjit.kernels.dtypes import FLOATS
from hostjit.kernels.operation import OPERATIONS, Value, operation
from hostjit.kernels.vector_math import VECTOR_MATH


def _call(name: str) -> Callable[..., Value]:
    def emit(x: Value, *others: Value) -> Value:
        return x.math(name, *others)

    return emit


for _function in VECTOR_MATH.values():
    if _function.name not in OPERATIONS:
        operation("T" * _function.arity + ">T", FLOATS, name=_function.name)(_call(_function.name))
