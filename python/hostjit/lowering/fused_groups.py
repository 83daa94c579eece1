# SPDX-License-Identifier: Apache-2.0
"""A group of operators as one launch of one kernel, or two where one long row is shared."""

from __future__ import annotations

import dataclasses

from hostjit import _C
from hostjit.capture import source_location
from hostjit.kernels import num_items, split_row
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.grouping import PointwiseGroup
from hostjit.lowering.launches import content_digest, is_worth_threads, launch
from hostjit.lowering.members import selects

__all__ = ["lower_group"]


def lower_group(context: LoweringContext, group: PointwiseGroup) -> None:
    """Allocate the group's outputs and launch its kernel; equal kernels are added once."""
    context.location = source_location(group.members[-1]) or ""
    inputs = [context.value(node) for node in group.inputs]
    outputs = [context.allocate(node) for node in group.outputs]
    kernel = dataclasses.replace(group.kernel, name=_kernel_name(group))
    parts = split_row(kernel) if is_worth_threads(kernel) and num_items(kernel) == 1 else None
    if parts is None:
        launch(context, kernel, inputs, outputs)
        return
    partials = [
        context.create("allocate", {}, [_C.TensorType(dtype.value, [parts.parts], [1], "cpu")])
        for dtype in parts.partials
    ]
    launch(context, parts.first, inputs, [*(outputs[n] for n in parts.elements), *partials])
    launch(context, parts.second, [*inputs, *partials], [outputs[n] for n in parts.results])


def _kernel_name(group: PointwiseGroup) -> str:
    """Readable, and the same for equal kernels: the operators, then a digest of the content."""
    operators = [str(n.target).split(".")[1].strip("_") for n in group.members if not selects(n)]
    digest = content_digest(group.kernel)
    return "_".join([*operators[:4], *(["and_more"] if len(operators) > 4 else []), digest])
