# SPDX-License-Identifier: Apache-2.0
"""Writes to places that tensors without dims tell: `x[i] = y` of a functional graph.

`index_put` becomes two operators of lowering: one that checks a place, and one that writes there,
which cannot fail.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from hostjit.capturing.open_sizes import all_equal
from hostjit.kernels import DType, KernelBuilder
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.copies import OF_SIZE, named
from hostjit.lowering.launches import launch
from hostjit.lowering.pointwise import PointwiseContext, pointwise
from hostjit.lowering.registry import lowers
from hostjit.lowering.sizes import shape_of, size_of, strides_of
from hostjit.lowering.types import is_plain

__all__ = ["PUT", "checked_place", "puts_at_places"]

aten = torch.ops.aten

_library = torch.library.Library("hostjit", "FRAGMENT")
_library.define("place(Tensor index, SymInt size, int dim) -> Tensor")
_library.define("put_(Tensor(a!) self, Tensor source, Tensor[] places, int[] dims) -> Tensor(a!)")
_PLACE = torch.ops.hostjit.place.default
PUT = torch.ops.hostjit.put_.default


def puts_at_places(node: Node) -> bool:
    """Whether a node is an `index_put` that the operators here can do."""
    if node.target is not aten.index_put.default or (len(node.args) > 3 and node.args[3]):
        return False
    arguments: Any = node.args
    base, indices, source = arguments[:3]
    if not all(map(is_plain, (base, source, node))):
        return False
    target, given = base.meta["val"], source.meta["val"]
    if target.device.type != "cpu" or target.dtype.itemsize not in OF_SIZE:
        return False
    picked = [None if index is None else index.meta["val"] for index in indices]
    picked += [None] * (target.dim() - len(picked))
    kept = [size for size, index in zip(target.shape, picked, strict=True) if index is None]
    return (
        all(index is None or _is_place(index) for index in picked)
        and all_equal(given.shape, kept)
        and given.dtype is target.dtype
        and given.device.type == "cpu"
        # An error names the size.
        and all(type(n) is int for n, i in zip(target.shape, picked, strict=True) if i is not None)
    )


def _is_place(index: torch.Tensor) -> bool:
    is_int = index.dtype in (torch.int64, torch.int32)
    return index.dim() == 0 and is_int and index.device.type == "cpu"


def checked_place(graph: Graph, index: Node, size: int, dim: int) -> Node:
    """Return what gives an index as a place among `size`, and fails if it is none.

    It stands as early as it can: behind what fails nothing may have been written.
    """
    behind = index
    while behind.next.op == "placeholder":
        behind = behind.next
    with graph.inserting_after(behind):
        place = graph.call_function(_PLACE, (index, size, dim))
    place.meta.update(index.meta)
    place.meta["val"] = index.meta["val"].new_empty((), dtype=torch.int64)
    return place


@pointwise("hostjit.place.default")
def place(context: PointwiseContext) -> int:
    """An index as a place, counted from the front."""
    size, dim = size_of(context.argument("size")), context.argument("dim")
    error = f"IndexError: index {{}} is out of bounds for dimension {dim} with size {size}"
    index = context.value(context.operand("index"), DType.I64)
    return context.builder.bounded(index, size, error, wraps=True)


@lowers("hostjit.put_.default")
def lower_put(context: LoweringContext, node: Node) -> bool:
    """put_(self, source, places, dims): a kernel that writes the elements at the places."""
    arguments: Any = node.args
    base, source, places, dims = arguments
    target, given = base.meta["val"], source.meta["val"]
    kernel = KernelBuilder("", shape_of(given))
    steps = strides_of(target)
    dtype = OF_SIZE[target.dtype.itemsize]
    still = (0,) * given.dim()
    value = kernel.load(
        kernel.input(dtype),
        tuple(0 if n == 1 else s for n, s in zip(shape_of(given), strides_of(given), strict=True)),
    )
    found = [kernel.load(kernel.input(DType.I64), still) for _ in places]
    terms = tuple((place, steps[dim]) for place, dim in zip(found, dims, strict=True))
    kept = tuple(step for dim, step in enumerate(steps) if dim not in dims)
    kernel.store(kernel.output(dtype), value, kept, terms=terms)
    inputs = [context.value(source), *map(context.value, places)]
    launch(context, named("put", kernel.build()), inputs, [context.value(base)], writes_parts=True)
    context.bind(node, context.value(base))
    return True
