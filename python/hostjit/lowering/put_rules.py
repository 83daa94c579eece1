# SPDX-License-Identifier: Apache-2.0
"""The operator of lowering that writes to places, which were checked before: it cannot fail."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from hostjit.kernels import DType, KernelBuilder
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.copies import OF_SIZE, named
from hostjit.lowering.launches import launch
from hostjit.lowering.places import checked_places
from hostjit.lowering.pointwise import DTYPES
from hostjit.lowering.puts import Put
from hostjit.lowering.registry import lowers
from hostjit.lowering.selection import along
from hostjit.lowering.sizes import size_of, strides_of

__all__ = ["PUT", "write_to_places"]

aten = torch.ops.aten

_library = torch.library.Library("hostjit", "FRAGMENT")
_library.define("put_(Tensor(a!) self, Tensor source, Tensor[] places, Tensor? mask) -> Tensor(a!)")
PUT = torch.ops.hostjit.put_.default
# The entry of `meta` of a node that writes so: the `Put`, of which the nodes may be others now.
_PUT = "put"


def write_to_places(base: Node, put: Put, before: Node) -> Node:
    """Write to a tensor as `put` says, ahead of a node; indices are checked where they are made."""
    graph, value = before.graph, base.meta["val"]
    source = put.source
    places = [
        checked_places(pick.index, put.base.meta["val"].shape[pick.dim], pick.error, pick.wraps)
        for pick in put.picks
    ]
    with graph.inserting_before(before):
        if not isinstance(source, Node):
            options = {"dtype": value.dtype, "device": value.device}
            source = graph.call_function(aten.full.default, ([], source), options)
            source.meta["val"] = value.new_empty(())
        mask = put.mask[0] if put.mask else None
        write = graph.call_function(PUT, (base, source, places, mask))
    write.meta.update(before.meta)
    write.meta.update({"val": value, _PUT: put})
    return write


@lowers("hostjit.put_.default")
def lower_put(context: LoweringContext, node: Node) -> bool:
    """put_(self, source, places, mask): a kernel that writes the elements at the places.

    Where two places are the same the later one is written last, as eager does in one thread.
    """
    arguments: Any = node.args
    base, source, places, mask = arguments
    put = node.meta[_PUT]
    target = base.meta["val"]
    kernel = KernelBuilder("", tuple(map(size_of, put.shape)))
    steps = strides_of(target)
    dtype = DTYPES[target.dtype] if put.combine else OF_SIZE[target.dtype.itemsize]
    value = kernel.load(kernel.input(dtype), along(put.along, strides_of(source.meta["val"])))
    terms = []
    for place, pick in zip(places, put.picks, strict=True):
        strides = along(pick.walk, strides_of(place.meta["val"]))
        terms.append((kernel.load(kernel.input(DType.I64), strides), steps[pick.dim]))
    inputs = [context.value(source), *map(context.value, places)]
    condition = None
    if mask is not None:
        strides = along(put.mask[1], strides_of(mask.meta["val"]))
        condition = kernel.load(kernel.input(DType.BOOL), strides)
        inputs.append(context.value(mask))
    kernel.store(
        kernel.output(dtype),
        value,
        along(put.selection.walk, steps),
        terms=tuple(terms),
        condition=condition,
        combine=put.combine,
    )
    launched = named("put", kernel.build())
    launch(context, launched, inputs, [context.value(base)], num_in_out=1)
    context.bind(node, context.value(base))
    return True
