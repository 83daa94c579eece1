# SPDX-License-Identifier: Apache-2.0
"""Indices that may be out of bounds: each access is safe, and the failure is found afterwards.

An index is brought into its bounds without a branch, so that loops stay vectorised, and a register
accumulates whether that changed it. A kernel that has done its work with such an index searches
for the first one again, to say which it was.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit.kernels.dtypes import DType
from hostjit.kernels.expression import Bounded, PointwiseKernel, operands_of
from hostjit.kernels.operation import Emitter, Value
from hostjit.kernels.size_values import SizeValues
from hostjit.kernels.sizes import Size

__all__ = ["Checks", "makes_index", "moved_by", "wrapped"]

_INDEX = ir.IntType(64)


class Checks:
    """The checks of one function, which is `search` with the same arguments if they fail.

    To be made before any loop is written; `finish` writes the end of the function.
    """

    def __init__(
        self, function: Any, emitter: Emitter, sizes: SizeValues, search: Any | None
    ) -> None:
        self.function = function
        self.emitter = emitter
        self.sizes = sizes
        self.search = search
        # Negative once an index was out of bounds.
        self.sign = None
        if search is not None:
            self.sign = emitter.builder.alloca(_INDEX, name="sign")
            emitter.builder.store(ir.Constant(_INDEX, 0), self.sign)

    def place(self, bounded: Bounded, found: Value) -> Value:
        """The index as a place that exists."""
        if not bounded.error:
            return found
        builder = self.emitter.builder
        index = wrapped(bounded, found, self.sizes)
        last = Value(self.emitter, DType.I64, self.sizes.value(bounded.size - 1))
        # One of them is negative unless 0 <= index <= last: the first where the second overflows.
        outside = builder.or_(index.register, builder.sub(last.register, index.register))
        seen = builder.load(self.sign, typ=_INDEX)
        builder.store(builder.or_(seen, outside), self.sign)
        return index.intrinsic("umin", last)

    def finish(self) -> None:
        """Report what was out of bounds, and return."""
        builder = self.emitter.builder
        if self.search is not None:
            sign = builder.load(self.sign, typ=_INDEX)
            failed = builder.icmp_signed("<", sign, ir.Constant(_INDEX, 0))
            with builder.if_then(failed, likely=False):
                builder.call(self.search, self.function.args[: len(self.search.args)])
        builder.ret_void()


def wrapped(bounded: Bounded, found: Value, sizes: SizeValues) -> Value:
    """An index counted from the first place also where it counts from the end."""
    if not bounded.wraps:
        return found
    builder = found.emitter.builder
    from_end = builder.add(found.register, sizes.value(bounded.size))
    negative = builder.icmp_signed("<", found.register, ir.Constant(_INDEX, 0))
    return Value(found.emitter, DType.I64, builder.select(negative, from_end, found.register))


def moved_by(pointer: Any, dtype: DType, terms: list[tuple[Value, Size]], sizes: SizeValues) -> Any:
    """A pointer to elements of `dtype`, moved by the terms of a load."""
    for place, stride in terms:
        builder = place.emitter.builder
        distance = place.register
        if stride != 1:
            distance = builder.mul(distance, sizes.value(stride), flags=("nsw",))
        type_ = dtype.memory_type()
        pointer = builder.gep(pointer, [distance], inbounds=True, source_etype=type_)
    return pointer


def makes_index(kernel: PointwiseKernel) -> set[int]:
    """The values that are indices or conditions, and those that these are made of."""
    found = {index for store in kernel.stores for index, _ in store.terms}
    found |= {store.condition for store in kernel.stores if store.condition is not None}
    for number, value in reversed(list(enumerate(kernel.values))):
        if isinstance(value, Bounded) or number in found:
            found.update((number, *operands_of(value)))
    return found
