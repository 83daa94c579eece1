# SPDX-License-Identifier: Apache-2.0
"""Views: another shape of the same memory, no work at run time."""

from __future__ import annotations

import torch
from torch.fx import Node

from hostjit import _C
from hostjit.kernels.sizes import at_most
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.registry import lowers
from hostjit.lowering.sizes import element_count, offset_of, shape_of, strides_of
from hostjit.lowering.types import is_plain

__all__: list[str] = []


@lowers(
    "aten.alias.default",
    "aten.as_strided.default",
    "aten.detach.default",
    "aten.diagonal.default",
    "aten.expand.default",
    "aten.lift_fresh.default",
    "aten.movedim.int",
    "aten.narrow.default",
    "aten.permute.default",
    "aten.select.int",
    "aten.slice.Tensor",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.t.default",
    "aten.transpose.int",
    "aten.unfold.default",
    "aten.unsqueeze.default",
    "aten.view.default",
    "aten._unsafe_view.default",
)
def lower_view(context: LoweringContext, node: Node) -> bool:
    """A view of the first argument with the sizes, strides and offset that tracing found."""
    source = node.args[0]
    assert isinstance(source, Node)
    result, base = node.meta["val"], source.meta["val"]
    if result.dtype != base.dtype or not _shares_memory(result, base):
        return False
    if not at_most(offset_of(base), offset_of(result)):
        return False  # only the tensor itself knows the memory before its first element
    context.view(node, source)
    return True


@lowers("aten.view_as_complex.default", "aten.view_as_real.default")
def lower_view_as(context: LoweringContext, node: Node) -> bool:
    """The parts of complex numbers, or the complex numbers of pairs."""
    source = node.args[0]
    assert isinstance(source, Node)
    if not is_plain(source):
        return False
    fields = {"source": context.value(source), "offset": 0}
    context.bind(node, context.create("view", fields, [context.indices.type_of(node.meta["val"])]))
    return True


@lowers(
    "aten.split.Tensor",
    "aten.split_with_sizes.default",
    "aten.unbind.int",
    "aten.unsafe_split.Tensor",
)
def lower_parts(context: LoweringContext, node: Node) -> bool:
    """Several views of the first argument."""
    source = node.args[0]
    assert isinstance(source, Node)
    context.views(node, source)
    return True


@lowers("aten._conj.default", "aten._neg_view.default")
def lower_lazy_view(context: LoweringContext, node: Node) -> bool:
    """Of expanded tensors, the conjugate or negative of what is expanded, expanded again.

    The call's result is made plain memory by a copy, and nothing is copied to a tensor that has
    one element in several places.
    """
    source, result = node.args[0], node.meta["val"]
    assert isinstance(node.target, torch._ops.OpOverload)
    shape, strides = shape_of(result), strides_of(result)
    whole = [1 if stride == 0 else size for size, stride in zip(shape, strides, strict=True)]
    if whole == list(shape) or element_count(result) == 0:
        return False
    type_ = context.indices.type_of(result)
    narrow = context.indices.type(type_.dtype, whole, strides, type_.device)
    view = {"source": context.value(source), "offset": 0}
    call = {
        "target": node.target.name(),
        "inputs": [context.create("view", view, [narrow])],
        "mutated": [],
        "arguments": [_C.Operand(0)],
        "aliases": [0],
        "absent": [],
        "pure": True,
    }
    made = context.create("aten_call", call, [narrow])
    context.bind(node, context.create("view", {"source": made, "offset": 0}, [type_]))
    return True


def _shares_memory(result: torch.Tensor, base: torch.Tensor) -> bool:
    return (
        result.untyped_storage()._cdata == base.untyped_storage()._cdata
        and result.is_conj() == base.is_conj()
        and result.is_neg() == base.is_neg()
    )
