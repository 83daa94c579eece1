# SPDX-License-Identifier: Apache-2.0
"""A group of operators as one launch of one kernel, or several where long rows are shared."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from torch.fx import Node

from hostjit import _C
from hostjit.capturing.traced_graph import source_location
from hostjit.kernels import DType, PointwiseKernel, SplitRow, num_items, split_row
from hostjit.kernels.cuda import split_long_rows
from hostjit.lowering.complex_results import Wholes
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.destinations import shared_buffers
from hostjit.lowering.devices import on_cuda
from hostjit.lowering.group_kernel import number_argument
from hostjit.lowering.grouping import PointwiseGroup
from hostjit.lowering.launches import content_digest, is_worth_threads, launch
from hostjit.lowering.members import selects
from hostjit.lowering.narrow_rows import parts_on_cuda
from hostjit.lowering.types import tensor_type

__all__ = ["lower_group"]


def lower_group(
    context: LoweringContext, group: PointwiseGroup, wholes: Wholes, targets: Mapping[Node, Node]
) -> None:
    """Launch the group's kernel; equal kernels are added once.

    Its outputs are written to `targets`, or to memory that is allocated; `wholes` has their places.
    """
    context.location = source_location(group.members[-1]) or ""
    targets = {node: targets[node] for node in group.outputs if node in targets}
    inputs = [context.value(node) for node in group.inputs]
    for node, target in targets.items():
        context.bind(node, context.value(target))
    shared = shared_buffers(group, targets)
    assert shared is not None
    kernel, placed = group.kernel, {} if shared else wholes.placed(context, group)
    given = (
        placed[node]
        if node in placed
        else context.value(node)
        if node in targets
        else context.allocate(node)
        for node in group.outputs
    )
    outputs = [value for value in given if value is not None]
    if placed:
        kernel = kernel.with_pairs(wholes.pairs(group))
    if shared:
        kernel = kernel.with_one_buffer(shared)
        read = sorted(set(shared.values()))
        inputs = [value for number, value in enumerate(inputs) if number not in shared]
        outputs = [outputs[n] for n in read] + [v for n, v in enumerate(outputs) if n not in read]
    kernel = dataclasses.replace(kernel, name=_kernel_name(group, kernel))
    device = tensor_type(outputs[0]).device

    def temporary(dtype: DType, count: int) -> _C.Value:
        type_ = _C.TensorType(dtype.value, [count], [1], device)
        made: _C.Value = context.create("allocate", {}, [type_])
        return made

    numbers = {
        number_argument(place): context.item(node) for place, node in enumerate(group.numbers)
    }
    parts = _shared_rows(kernel, outputs[0])
    if parts is None:
        # Steps read inputs anew, which none before may have written.
        steps = split_long_rows(kernel) if on_cuda(outputs[0]) and not shared else None
        if steps is None:
            num_in_out = len(set(shared.values()))
            launch(context, kernel, inputs, outputs, num_in_out=num_in_out, numbers=numbers)
            return
        temporaries = [temporary(*made) for made in steps.temporaries]
        buffers = {"input": inputs, "output": outputs, "temporary": temporaries}
        for step in steps.steps:
            sources, results = (
                [buffers[one.kind][one.place] for one in operands]
                for operands in (step.inputs, step.outputs)
            )
            launch(context, step.kernel, sources, results, numbers=numbers)
        return
    partials = [temporary(dtype, parts.partial_size) for dtype in parts.partials]
    elements = [outputs[n] for n in parts.elements]
    results = [outputs[n] for n in parts.results]
    launch(context, parts.first, inputs, [*elements, *partials], numbers=numbers)
    launch(context, parts.second, [*inputs, *partials], results, numbers=numbers)


def _shared_rows(kernel: PointwiseKernel, output: _C.Value) -> SplitRow | None:
    """Two kernels where threads, or blocks of a CUDA device, are to share rows."""
    if on_cuda(output):
        parts = parts_on_cuda(kernel)
        return split_row(kernel, parts) if parts > 1 else None
    is_worth_it = is_worth_threads(kernel) and num_items(kernel) == 1
    kept = len(kernel.shape) - kernel.num_reduced
    return split_row(kernel) if is_worth_it and math.prod(kernel.shape[:kept]) == 1 else None


def _kernel_name(group: PointwiseGroup, kernel: PointwiseKernel) -> str:
    """Readable, and the same for equal kernels: the operators, then a digest of the content."""
    operators = [str(n.target).split(".")[1].strip("_") for n in group.members if not selects(n)]
    digest = content_digest(kernel)
    return "_".join([*operators[:4], *(["and_more"] if len(operators) > 4 else []), digest])
