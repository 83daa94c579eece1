# SPDX-License-Identifier: Apache-2.0
"""A group of operators as one launch of one kernel, or two where one long row is shared."""

from __future__ import annotations

import dataclasses
import hashlib
import math

from hostjit import _C
from hostjit.capture import source_location
from hostjit.kernels import (
    PointwiseKernel,
    estimated_nanoseconds,
    in_place_pairs,
    llvm_ir,
    nanoseconds_per_point,
    num_items,
    split_row,
)
from hostjit.kernels.sizes import Size, as_size, at_most, quotient
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.grouping import PointwiseGroup
from hostjit.lowering.members import selects
from hostjit.lowering.sizes import defined

__all__ = ["lower_group"]

# A thread that waits for work costs 0.5 us when it is awake and some 10 us when it sleeps.
_NANOSECONDS_PER_THREAD = 5000


def lower_group(context: LoweringContext, group: PointwiseGroup) -> None:
    """Allocate the group's outputs and launch its kernel; equal kernels are added once."""
    context.location = source_location(group.members[-1]) or ""
    inputs = [context.value(node) for node in group.inputs]
    outputs = [context.allocate(node) for node in group.outputs]
    kernel = dataclasses.replace(group.kernel, name=_kernel_name(group))
    parts = split_row(kernel) if _is_large(kernel) and num_items(kernel) == 1 else None
    if parts is None:
        _launch(context, kernel, inputs, outputs)
        return
    partials = [
        context.create("allocate", {}, [_C.TensorType(dtype.value, [parts.parts], [1], "cpu")])
        for dtype in parts.partials
    ]
    _launch(context, parts.first, inputs, [*(outputs[n] for n in parts.elements), *partials])
    _launch(context, parts.second, [*inputs, *partials], [outputs[n] for n in parts.results])


def _launch(
    context: LoweringContext,
    kernel: PointwiseKernel,
    inputs: list[_C.Value],
    outputs: list[_C.Value],
) -> None:
    threads = _split(context, kernel)
    if kernel.name not in context.kernels:
        context.add_kernel(kernel.name, llvm_ir(kernel, over_range=bool(threads)))
    launch = {"kernel": kernel.name, "inputs": inputs, "outputs": outputs, **threads}
    launch["scalars"] = [context.indices.value(as_size(symbol)) for symbol in kernel.symbols()]
    launch["in_place"] = [operand for pair in in_place_pairs(kernel) for operand in pair]
    launch["errors"] = kernel.errors()
    context.create("launch_kernel", launch)


def _is_large(kernel: PointwiseKernel) -> bool:
    """Whether a kernel is worth more than one thread."""
    return estimated_nanoseconds(kernel) >= 2 * _NANOSECONDS_PER_THREAD


def _split(context: LoweringContext, kernel: PointwiseKernel) -> dict[str, list[int | str]]:
    """The grid and block of a launch that is worth more than one thread."""
    items = num_items(kernel)
    if not isinstance(math.prod(kernel.shape), int):
        return _split_at_the_call(context, kernel, items)
    if items == 1 or not _is_large(kernel):
        return {}
    assert isinstance(items, int)
    grain = math.ceil(items * _NANOSECONDS_PER_THREAD / estimated_nanoseconds(kernel))
    return {"grid": [items, 1, 1], "block": [grain, 1, 1]}


def _split_at_the_call(
    context: LoweringContext, kernel: PointwiseKernel, items: Size
) -> dict[str, list[int | str]]:
    """The grid and block of a launch whose sizes tell whether threads are worth it."""
    points_per_item = quotient(math.prod(kernel.shape), items)
    if items == 1 or points_per_item is None:
        return {}
    points = math.ceil(_NANOSECONDS_PER_THREAD / nanoseconds_per_point(kernel))
    if isinstance(points_per_item, int):
        grain: Size = math.ceil(points / points_per_item)
    else:
        some: Size = points_per_item
        if not at_most(1, some):
            some = defined("max", points_per_item, 1, 1)
        grain = defined("ceildiv", points, some, 1)
    return {
        "grid": [context.indices.number(items), 1, 1],
        "block": [context.indices.number(grain), 1, 1],
    }


def _kernel_name(group: PointwiseGroup) -> str:
    """Readable, and the same for equal kernels: the operators, then a digest of the content."""
    operators = [str(n.target).split(".")[1].strip("_") for n in group.members if not selects(n)]
    content = repr(dataclasses.replace(group.kernel, name=""))
    digest = hashlib.sha256(content.encode()).hexdigest()[:8]
    return "_".join([*operators[:4], *(["and_more"] if len(operators) > 4 else []), digest])
