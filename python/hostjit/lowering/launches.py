# SPDX-License-Identifier: Apache-2.0
"""The launch of a kernel: on a CUDA device, one thread, or those that its work is worth."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from hostjit import _C
from hostjit.kernels import (
    PointwiseKernel,
    estimated_nanoseconds,
    in_place_pairs,
    llvm_ir,
    nanoseconds_per_point,
    num_items,
)
from hostjit.kernels.sizes import Size, at_most, defined, quotient
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.cuda_launches import launch_on_cuda
from hostjit.lowering.devices import on_cuda

__all__ = ["content_digest", "is_worth_threads", "launch"]

# A thread that waits for work costs 0.5 us when it is awake and some 10 us when it sleeps.
_NANOSECONDS_PER_THREAD = 5000


def launch(
    context: LoweringContext,
    kernel: PointwiseKernel,
    inputs: list[_C.Value],
    outputs: list[_C.Value],
    *,
    num_in_out: int = 0,
    numbers: Mapping[str, _C.Value] = MappingProxyType({}),
) -> None:
    """Launch a kernel, and add it to the program unless one of its name is there.

    Of the first outputs, `num_in_out` of them, it reads elements, or leaves some as they are.
    `numbers` are its scalar arguments by name, but for those that the call brings.
    """
    if on_cuda(outputs[0]):
        launch_on_cuda(context, kernel, inputs, outputs, num_in_out, numbers)
        return
    threads = _split(context, kernel)
    if kernel.name not in context.kernels:
        context.add_kernel(kernel.name, llvm_ir(kernel, over_range=bool(threads)))
    fields = {"kernel": kernel.name, "inputs": inputs, "outputs": outputs[num_in_out:], **threads}
    fields["in_out"] = outputs[:num_in_out]
    fields["scalars"] = context.scalars(kernel, numbers)
    pairs = ((read, written - num_in_out) for read, written in in_place_pairs(kernel))
    fields["in_place"] = [number for pair in pairs if pair[1] >= 0 for number in pair]
    fields["errors"] = kernel.errors()
    context.create("launch_kernel", fields)


def is_worth_threads(kernel: PointwiseKernel) -> bool:
    """Whether a kernel is worth more than one thread."""
    return estimated_nanoseconds(kernel) >= 2 * _NANOSECONDS_PER_THREAD


def content_digest(kernel: PointwiseKernel) -> str:
    """A part of the name that kernels of the same content share."""
    return hashlib.sha256(repr(replace(kernel, name="")).encode()).hexdigest()[:8]


def _split(context: LoweringContext, kernel: PointwiseKernel) -> dict[str, list[int | str]]:
    """The grid and block of a launch that is worth more than one thread."""
    items = num_items(kernel)
    if not isinstance(math.prod(kernel.shape), int):
        return _split_at_the_call(context, kernel, items)
    if items == 1 or not is_worth_threads(kernel):
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
