# SPDX-License-Identifier: Apache-2.0
"""A group of pointwise operators as one launch of one kernel."""

from __future__ import annotations

import dataclasses
import hashlib

from hostjit.capture import source_location
from hostjit.kernels import llvm_ir
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.grouping import PointwiseGroup

__all__ = ["lower_group"]


def lower_group(context: LoweringContext, group: PointwiseGroup) -> None:
    """Allocate the group's outputs and launch its kernel; equal kernels are added once."""
    context.location = source_location(group.members[-1]) or ""
    inputs = [context.value(node) for node in group.inputs]
    outputs = [context.allocate(node) for node in group.outputs]
    name = _kernel_name(group)
    if name not in context.kernels:
        context.add_kernel(name, llvm_ir(dataclasses.replace(group.kernel, name=name)))
    context.create("launch_kernel", {"kernel": name, "inputs": inputs, "outputs": outputs})


def _kernel_name(group: PointwiseGroup) -> str:
    """Readable, and the same for equal kernels: the operators, then a digest of the content."""
    operators = [str(node.target).split(".")[1] for node in group.members]
    content = repr(dataclasses.replace(group.kernel, name=""))
    digest = hashlib.sha256(content.encode()).hexdigest()[:8]
    return "_".join([*operators[:4], *(["and_more"] if len(operators) > 4 else []), digest])
