# SPDX-License-Identifier: Apache-2.0
"""A function that finds which index of a kernel is out of bounds, called when one is."""

from __future__ import annotations

import dataclasses
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit.kernels.body import Body
from hostjit.kernels.checks import Checks, makes_index, wrapped
from hostjit.kernels.expression import (
    Apply,
    Bounded,
    Cast,
    Expression,
    Index,
    Load,
    PointwiseKernel,
)
from hostjit.kernels.operation import Emitter, Value
from hostjit.kernels.point_writer import write_points
from hostjit.kernels.size_values import SizeValues

__all__ = ["define_search"]

_INDEX = ir.IntType(64)


def define_search(kernel: PointwiseKernel, function: Any) -> Any:
    """Define it beside `function`, whose parameters it has, without the range.

    It writes the number of the error, from 1, and the index to where the last of them points. The
    whole kernel is searched, whatever range failed: threads that do so write the same.
    """
    first_symbol = len(kernel.inputs) + len(kernel.outputs) + len(kernel.scalars())
    symbols = kernel.symbols()
    types = [argument.type for argument in function.args]
    signature = ir.FunctionType(ir.VoidType(), types[: first_symbol + len(symbols) + 1])
    search = ir.Function(function.module, signature, f"{function.name}.find_failure")
    search.linkage = "internal"
    for argument, original in zip(search.args, function.args, strict=False):
        argument.name = original.name
    for attribute in ("cold", "minsize", "noinline", "nounwind"):
        search.attributes.add(attribute)
    emitter = Emitter(function.module, ir.IRBuilder(search.append_basic_block("entry")))
    sizes = SizeValues(emitter.builder, symbols, search.args[first_symbol:-1])
    indices = _indices(kernel)
    write_points(Body(indices, search, _Search(indices, search, emitter, sizes)))
    return search


def _indices(kernel: PointwiseKernel) -> PointwiseKernel:
    """A kernel that makes the indices of another, over the dimensions that they vary along."""
    kept = sorted(makes_index(kernel))
    number = {old: new for new, old in enumerate(kept)}
    reads = [kernel.values[old] for old in kept]
    moving = [read.strides for read in reads if isinstance(read, Load | Index)]
    dims = [dim for dim in range(len(kernel.shape)) if any(strides[dim] != 0 for strides in moving)]
    values = tuple(_renumbered(kernel.values[old], number, dims) for old in kept)
    shape = tuple(kernel.shape[dim] for dim in dims)
    return dataclasses.replace(kernel, shape=shape, values=values, stores=(), num_reduced=0)


def _renumbered(value: Expression, number: dict[int, int], dims: list[int]) -> Expression:
    match value:
        case Load() | Index():
            value = dataclasses.replace(value, strides=tuple(value.strides[dim] for dim in dims))
            if isinstance(value, Load):
                terms = tuple((number[index], stride) for index, stride in value.terms)
                return dataclasses.replace(value, terms=terms)
            return value
        case Cast() | Bounded():
            return dataclasses.replace(value, operand=number[value.operand])
        case Apply():
            return dataclasses.replace(value, operands=tuple(number[n] for n in value.operands))
    return value


class _Search(Checks):
    """Leaves the function at the first index that is out of bounds."""

    def __init__(
        self, kernel: PointwiseKernel, function: Any, emitter: Emitter, sizes: SizeValues
    ) -> None:
        super().__init__(function, emitter, sizes, search=None)
        self.errors = kernel.errors()

    def place(self, bounded: Bounded, found: Value) -> Value:
        if not bounded.error:
            return found
        builder = self.emitter.builder
        index = wrapped(bounded, found, self.sizes)
        size = self.sizes.value(bounded.size)
        outside = builder.icmp_unsigned(">=", index.register, size)
        with builder.if_then(outside):
            self._fail(self.errors.index(bounded.error) + 1, found.register)
        return index

    def finish(self) -> None:
        """Fail also where nothing is found, because somebody wrote to an index meanwhile."""
        self._fail(1, ir.Constant(_INDEX, 0))

    def _fail(self, number: int, index: Any) -> None:
        builder = self.emitter.builder
        failure = self.function.args[-1]
        value = builder.gep(failure, [ir.Constant(_INDEX, 1)], source_etype=_INDEX)
        builder.atomic_rmw("xchg", failure, ir.Constant(_INDEX, number), "monotonic")
        builder.atomic_rmw("xchg", value, index, "monotonic")
        builder.ret_void()
