# SPDX-License-Identifier: Apache-2.0
"""The table of reductions: how the elements of a row become one value.

Along memory, reassociation is allowed in the one instruction that combines, so that LLVM keeps
several accumulators in vector registers; nothing that produces an element is touched by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hostjit.kernels.dtypes import FLOATS, INTEGERS, DType
from hostjit.kernels.operation import Number, Value

__all__ = ["REDUCTIONS", "Reduction", "reduced_dtype"]


@dataclass(frozen=True)
class Reduction:
    """One entry of the table.

    `identity` starts an accumulator, `combine` adds an element to it or brings two together, and
    is told whether elements may be taken in any order.
    `cascades` says that a long row is summed in blocks, for accuracy.
    """

    name: str
    dtypes: tuple[DType, ...]
    identity: Callable[[DType], Number]
    combine: Callable[[Value, Value, bool], Value]
    cascades: bool = False


def reduced_dtype(name: str, operand: DType) -> DType:
    """Check the operand's type against the table and return the result's type.

    Raises ValueError that names the reduction, what was expected and what was found.
    """
    entry = REDUCTIONS.get(name)
    if entry is None:
        raise ValueError(f"unknown reduction '{name}'")
    if operand not in entry.dtypes:
        expected = ", ".join(dtype.value for dtype in entry.dtypes)
        raise ValueError(f"{name}: the operand is {operand.value}, expected one of {expected}")
    return operand


def _sum(total: Value, x: Value, any_order: bool) -> Value:
    return _reassociable(total, x, any_order, "fadd", "add")


def _product(total: Value, x: Value, any_order: bool) -> Value:
    return _reassociable(total, x, any_order, "fmul", "mul")


def _reassociable(total: Value, x: Value, any_order: bool, float_op: str, integer_op: str) -> Value:
    builder = x.emitter.builder
    if x.dtype.is_float:
        flags = ("reassoc",) if any_order else ()
        register = getattr(builder, float_op)(total.register, x.register, flags=flags)
    else:
        register = getattr(builder, integer_op)(total.register, x.register)
    return Value(x.emitter, x.dtype, register)


def _largest(total: Value, x: Value, _: bool) -> Value:
    """The larger; NaN if either is NaN."""
    return _extreme(total, x, "max")


def _smallest(total: Value, x: Value, _: bool) -> Value:
    """The smaller; NaN if either is NaN."""
    return _extreme(total, x, "min")


def _extreme(total: Value, x: Value, name: str) -> Value:
    if x.dtype.is_float:
        # Which zero wins is left open: its rule costs an instruction and eager has none.
        return total.intrinsic("maximum" if name == "max" else "minimum", x, flags=("nsz",))
    return total.intrinsic(("s" if x.dtype.is_signed else "u") + name, x)


def _lowest(dtype: DType) -> Number:
    if dtype.is_float:
        return -math.inf
    return -(1 << (dtype.bits - 1)) if dtype.is_signed else 0


def _highest(dtype: DType) -> Number:
    if dtype.is_float:
        return math.inf
    return (1 << (dtype.bits - (1 if dtype.is_signed else 0))) - 1


NUMBERS = FLOATS + INTEGERS
REDUCTIONS: dict[str, Reduction] = {
    entry.name: entry
    for entry in (
        Reduction("sum", NUMBERS, lambda _: 0, _sum, cascades=True),
        Reduction("prod", NUMBERS, lambda _: 1, _product),
        Reduction("max", NUMBERS, _lowest, _largest),
        Reduction("min", NUMBERS, _highest, _smallest),
    )
}
