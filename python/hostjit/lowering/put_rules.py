# SPDX-License-Identifier: Apache-2.0
"""Writes to places that tensors tell: `x[i] = y` and `x.index_copy_(0, i, y)` of functional graphs.

They become two operators of lowering: one that checks the places, and one that writes there, which
cannot fail.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from hostjit.capturing.open_sizes import all_equal
from hostjit.kernels import DType, KernelBuilder
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.copies import OF_SIZE, named
from hostjit.lowering.launches import launch
from hostjit.lowering.pointwise import PointwiseContext, pointwise
from hostjit.lowering.registry import lowers
from hostjit.lowering.sizes import shape_of, size_of, strides_of
from hostjit.lowering.types import is_plain

__all__ = ["PUT", "Put"]

aten = torch.ops.aten

_INTS = (torch.int64, torch.int32)

_library = torch.library.Library("hostjit", "FRAGMENT")
_library.define("places(Tensor index, SymInt size, str error, bool wraps) -> Tensor")
_library.define("put_(Tensor(a!) self, Tensor source, Tensor[] places, int[] dims) -> Tensor(a!)")
_PLACES = torch.ops.hostjit.places.default
PUT = torch.ops.hostjit.put_.default


@dataclasses.dataclass(frozen=True)
class Put:
    """A write to places: tensors without dims for some dims of `base`, or one of a dim for one."""

    base: Node
    source: Node
    indices: dict[int, Node]
    wraps: bool

    @classmethod
    def of(cls, node: Node) -> Put | None:
        """Return what a node writes; None if the operators here cannot do it."""
        arguments: Any = node.args
        if node.target is aten.index_copy.default:
            base, dim, index, source = arguments
            rank = base.meta["val"].dim()
            if rank == 0:
                return None
            found = cls(base, source, {dim % rank: index}, wraps=False)
        elif node.target is aten.index_put.default and not (len(arguments) > 3 and arguments[3]):
            base, given, source = arguments[:3]
            indices = {dim: index for dim, index in enumerate(given) if index is not None}
            found = cls(base, source, indices, wraps=True)
        else:
            return None
        return found if is_plain(node) and found._can_be_done() else None

    def _can_be_done(self) -> bool:
        if not all(map(is_plain, (self.base, self.source, *self.indices.values()))):
            return False
        target, given = self.base.meta["val"], self.source.meta["val"]
        if target.dtype.itemsize not in OF_SIZE or given.dtype is not target.dtype:
            return False
        indices = {dim: index.meta["val"] for dim, index in self.indices.items()}
        if any(tensor.device.type != "cpu" for tensor in (target, given, *indices.values())):
            return False
        ranks = [index.dim() for index in indices.values()]
        if any(index.dtype not in _INTS for index in indices.values()) or (
            any(ranks) and ranks != [1]
        ):
            return False
        # An error names the size.
        named = all(type(target.shape[dim]) is int for dim in indices)
        return named and _expands(given.shape, _written_sizes(target.shape, indices))

    def checked_places(self) -> list[Node]:
        """Return, for each index, what gives it as places, and fails where it is none.

        They stand as early as they can: behind what fails nothing may have been written.
        """
        return [self._checked(index, dim) for dim, index in self.indices.items()]

    def _checked(self, index: Node, dim: int) -> Node:
        behind = index
        while behind.next.op == "placeholder":
            behind = behind.next
        value = index.meta["val"]
        size = self.base.meta["val"].shape[dim]
        named = dim if value.dim() == 0 or not self.wraps else 0
        error = f"index {{}} is out of bounds for dimension {named} with size {size}"
        if not self.wraps:
            error = f"index_copy_(): {error}"
        graph = index.graph
        with graph.inserting_after(behind):
            places = graph.call_function(_PLACES, (index, size, f"IndexError: {error}", self.wraps))
        places.meta.update(index.meta)
        places.meta["val"] = value.new_empty(value.shape, dtype=torch.int64)
        return places


@pointwise("hostjit.places.default")
def places(context: PointwiseContext) -> int:
    """Indices as places, counted from the front."""
    index = context.value(context.operand("index"), DType.I64)
    size, error = size_of(context.argument("size")), context.argument("error")
    return context.builder.bounded(index, size, error, wraps=context.argument("wraps"))


@lowers("hostjit.put_.default")
def lower_put(context: LoweringContext, node: Node) -> bool:
    """put_(self, source, places, dims): a kernel that writes the elements at the places.

    Where two places are the same the later one is written last, as eager does in one thread.
    """
    arguments: Any = node.args
    base, source, places, dims = arguments
    target, given = base.meta["val"], source.meta["val"]
    picked = {dim: place.meta["val"] for dim, place in zip(dims, places, strict=True)}
    shape = tuple(map(size_of, _written_sizes(target.shape, picked)))
    kernel = KernelBuilder("", shape)
    steps = strides_of(target)
    dtype = OF_SIZE[target.dtype.itemsize]
    expanded = (0,) * (len(shape) - given.dim())
    pairs = zip(shape_of(given), strides_of(given), strict=True)
    value = kernel.load(
        kernel.input(dtype), (*expanded, *(0 if n == 1 else step for n, step in pairs))
    )
    walked = [dim for dim in range(target.dim()) if dim not in picked or picked[dim].dim()]
    kept = tuple(0 if dim in picked else steps[dim] for dim in walked)
    terms = []
    for dim, place in picked.items():
        along = tuple(strides_of(place)[0] if other == dim else 0 for other in walked)
        terms.append((kernel.load(kernel.input(DType.I64), along), steps[dim]))
    kernel.store(kernel.output(dtype), value, kept, terms=tuple(terms))
    launched = named("put", kernel.build())
    inputs = [context.value(source), *map(context.value, places)]
    launch(context, launched, inputs, [context.value(base)], writes_parts=True)
    context.bind(node, context.value(base))
    return True


def _written_sizes(sizes: Sequence[Any], indices: Mapping[int, torch.Tensor]) -> list[Any]:
    """The sizes of what is written: an index without dims takes its dim away."""
    found: list[Any] = []
    for dim, size in enumerate(sizes):
        found += [size] if dim not in indices else indices[dim].shape
    return found


def _expands(given: Sequence[Any], sizes: Sequence[Any]) -> bool:
    """Whether a tensor of the given sizes is known to expand to others."""
    pairs = zip(reversed(given), reversed(sizes), strict=False)
    return len(given) <= len(sizes) and all(
        (type(a) is int and a == 1) or all_equal([a], [b]) for a, b in pairs
    )
