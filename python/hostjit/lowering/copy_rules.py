# SPDX-License-Identifier: Apache-2.0
"""Operators that put tensors together: copies into views of the result."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from hostjit.capturing.functional.hidden_writes import HIDDEN
from hostjit.capturing.open_sizes import known
from hostjit.kernels.sizes import Size, at_most
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.copies import Box, box_of, can_fill, copy, copy_all, copy_values, fill
from hostjit.lowering.devices import on_cuda
from hostjit.lowering.pointwise import named_arguments
from hostjit.lowering.registry import lowers
from hostjit.lowering.sizes import element_count, shape_of, size_of, strides_of
from hostjit.lowering.types import is_plain
from hostjit.lowering.views import viewed

__all__: list[str] = []

# Dimensions rolled at once: each doubles the copies.
_MOST_ROLLED = 3
# Kernels that put tensors together on a CUDA device, where PyTorch has one for any sizes.
_MOST_KERNELS = 2
# Views that may have an element in several places.
_MAY_REPEAT = {
    *(torch.ops.aten.as_strided.default, torch.ops.aten.expand.default),
    torch.ops.aten.unfold.default,
}


def _all_plain(nodes: Sequence[Any]) -> bool:
    return all(is_plain(node) for node in nodes)


def _source(context: LoweringContext, node: Node) -> Box:
    return box_of(context.value(node), node.meta["val"])


@lowers("aten.copy_.default")
def lower_write(context: LoweringContext, node: Node) -> bool:
    """Write an input, at the end of a graph: a copy, if nothing is converted."""
    target, source = node.args[0], node.args[1]
    if not _all_plain([target, source]):
        return False
    assert isinstance(target, Node) and isinstance(source, Node)
    written, tensor = target.meta["val"], source.meta["val"]
    if written.device != tensor.device or _overlaps_itself(target):
        return False
    if written.shape != tensor.shape or written.dtype != tensor.dtype:
        return False
    values = context.value(source), context.value(target)
    if HIDDEN in node.meta and not on_cuda(values[1]):
        context.create("copy", {"source": values[0], "out": values[1], HIDDEN: True})
    elif 0 in written.shape:  # which autograd learns of too
        copy_values(context, *values)
    else:
        copy(context, box_of(values[0], tensor), box_of(values[1], written))
    context.bind(node, values[1])
    return True


def _overlaps_itself(node: Node) -> bool:
    """Tell whether two elements may be one; errs to yes.

    Views that take some elements of a tensor, each once, overlap no more than that does.
    """
    tensor = node.meta["val"]
    while node.target not in _MAY_REPEAT and (source := viewed(node)) is not None:
        node = source
        found = node.meta["val"]
        tensor = found if isinstance(found, torch.Tensor) else tensor
    extent = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride < extent:
                return True
            extent = stride * (size - 1) + extent
    return False


@lowers("aten.cat.default")
def lower_cat(context: LoweringContext, node: Node) -> bool:
    """cat(tensors, dim): one copy per tensor; those of sizes [0] have no elements to give."""
    arguments = named_arguments(node)
    tensors, result = arguments["tensors"], node.meta["val"]
    if not _all_plain([*tensors, node]) or result.dim() == 0:
        return False
    dim = arguments["dim"] % result.dim()
    some = [tensor for tensor in tensors if element_count(tensor.meta["val"]) != 0]
    widths = {shape_of(tensor.meta["val"])[dim] for tensor in some}
    if result.device.type == "cuda" and len(widths) > _MOST_KERNELS:
        return False
    value = context.allocate(node)
    pairs = []
    start: Size = 0
    for tensor in some:
        target = box_of(value, result)
        size = shape_of(tensor.meta["val"])[dim]
        target.narrow(dim, start, size)
        pairs.append((_source(context, tensor), target))
        start = start + size
    copy_all(context, pairs)
    return True


@lowers("aten.stack.default")
def lower_stack(context: LoweringContext, node: Node) -> bool:
    """stack(tensors, dim): one copy per tensor."""
    arguments = named_arguments(node)
    tensors, result = arguments["tensors"], node.meta["val"]
    if not _all_plain([*tensors, node]):
        return False
    dim = arguments["dim"] % result.dim()
    value = context.allocate(node)
    pairs = []
    for position, tensor in enumerate(tensors):
        target = box_of(value, result)
        target.narrow(dim, position, 1)
        source = _source(context, tensor)
        source.sizes.insert(dim, 1)
        source.strides.insert(dim, 1)
        pairs.append((source, target))
    copy_all(context, pairs)
    return True


def _fitting(number: Any, dtype: torch.dtype) -> bool | int | float | None:
    """The number as one of `dtype`, None where it is none and eager decides."""
    if dtype.is_complex or not isinstance(number, int | float):
        return None
    if dtype.is_floating_point:
        return float(number)
    if dtype is torch.bool:
        return bool(number)
    limits = torch.iinfo(dtype)
    fits = number == number // 1 and limits.min <= number <= limits.max
    return int(number) if fits else None


@lowers("aten.constant_pad_nd.default")
def lower_pad(context: LoweringContext, node: Node) -> bool:
    """constant_pad_nd(self, pad, value): fill, then copy; negative padding cuts the source."""
    arguments = named_arguments(node)
    source, pad, number = arguments["self"], arguments["pad"], arguments["value"]
    result = node.meta["val"]
    filling = _fitting(number, result.dtype)
    known = all(isinstance(number, int) for number in pad)
    if filling is None or not known or not _all_plain([source, node]):
        return False
    if not can_fill(result.dtype, result.device):
        return False
    kept = list(shape_of(source.meta["val"]))
    for position, number in enumerate(pad):
        kept[-1 - position // 2] = kept[-1 - position // 2] + min(number, 0)
    if any(at_most(size, -1) for size in kept):
        return False  # eager raises
    value = context.allocate(node)
    fill(context, filling, box_of(value, result))
    origin, target = _source(context, source), box_of(value, result)
    for position in range(len(pad) // 2):
        dim = result.dim() - 1 - position
        before, size = pad[2 * position], kept[dim]
        origin.narrow(dim, max(-before, 0), size)
        target.narrow(dim, max(before, 0), size)
    copy(context, origin, target)
    return True


@lowers(
    *("aten.slice_scatter.default", "aten.select_scatter.default"),
    *("aten.slice_backward.default", "aten.select_backward.default"),
)
def lower_scatter(context: LoweringContext, node: Node) -> bool:
    """A copy of `self`, then `src` over a part of it; of gradients, zeros instead of `self`."""
    arguments = named_arguments(node)
    base, source = arguments.get("self"), arguments.get("src") or arguments["grad_output"]
    if not _all_plain([source, node] if base is None else [base, source, node]):
        return False
    result = node.meta["val"]
    dim = arguments["dim"] % result.dim()
    extent = result.shape[dim]
    first = arguments.get("index", arguments.get("start"))
    # A truth test of a symbolic start would be a question about its value.
    start = _start(0 if first is None else first, extent, is_index="index" in arguments)
    filling = _fitting(0, result.dtype)
    if base is None and (filling is None or not can_fill(result.dtype, result.device)):
        return False
    if start is None or not isinstance(arguments.get("step", 1), int):
        return False
    value = context.allocate(node)
    origin, target = _source(context, source), box_of(value, result)
    if "index" in arguments:
        origin.sizes.insert(dim, 1)
        origin.strides.insert(dim, 1)
        target.narrow(dim, start, 1)
    else:
        target.narrow(dim, start, origin.sizes[dim], arguments["step"])
    if base is None:
        assert filling is not None
        fill(context, filling, box_of(value, result))
    else:
        copy(context, _source(context, base), box_of(value, result))
    copy(context, origin, target)
    return True


def _start(first: int | torch.SymInt, extent: int | torch.SymInt, *, is_index: bool) -> Size | None:
    """Where a slice or an index starts, from the front; None where that is not known."""
    if isinstance(extent, int) and isinstance(first, int):
        return first % extent if is_index else slice(first, None).indices(extent)[0]
    start = first + extent if known(first < 0) else first
    return size_of(start) if known(start >= 0) and known(start <= extent) else None


@lowers("aten.repeat.default")
def lower_repeat(context: LoweringContext, node: Node) -> bool:
    """repeat(self, repeats): one copy that broadcasts along the repetitions."""
    arguments = named_arguments(node)
    source, repeats = arguments["self"], arguments["repeats"]
    if not _all_plain([source, node]):
        return False
    result = node.meta["val"]
    origin, target = _source(context, source), box_of(context.allocate(node), result)
    missing = len(repeats) - len(origin.sizes)
    sizes, strides = [1] * missing + origin.sizes, [0] * missing + origin.strides
    target.sizes, target.strides, origin.sizes, origin.strides = [], [], [], []
    for dim, times in enumerate(map(size_of, repeats)):
        stride = strides_of(result)[dim]
        target.sizes += [times, sizes[dim]]
        target.strides += [stride * sizes[dim], stride]
        origin.sizes += [1, sizes[dim]]
        origin.strides += [0, strides[dim]]
    copy(context, origin, target)
    return True


@lowers("aten.roll.default")
def lower_roll(context: LoweringContext, node: Node) -> bool:
    """roll(self, shifts, dims): two copies along one dimension, four along two."""
    arguments = named_arguments(node)
    source, shifts, dims = arguments["self"], arguments["shifts"], arguments["dims"]
    result = node.meta["val"]
    if not _all_plain([source, node]) or element_count(result) == 0 or result.dim() == 0:
        return False
    if result.device.type == "cuda":  # one kernel of PyTorch's, and at least two here
        return False
    places = [dim % result.dim() for dim in dims]
    known = all(isinstance(number, int) for number in (*shifts, *(result.shape[d] for d in places)))
    if not known or not 1 <= len(set(places)) == len(shifts) <= _MOST_ROLLED:
        return False
    value = context.allocate(node)
    parts = [_rolled(shift, result.shape[dim]) for shift, dim in zip(shifts, places, strict=True)]
    for part in itertools.product(*parts):
        origin, target = _source(context, source), box_of(value, result)
        for dim, (start, to, size) in zip(places, part, strict=True):
            origin.narrow(dim, start, size)
            target.narrow(dim, to, size)
        copy(context, origin, target)
    return True


def _rolled(shift: int, extent: int) -> tuple[tuple[int, int, int], ...]:
    """The two parts of a dimension: where each starts, where it goes, and its size."""
    shift %= extent
    return (0, shift, extent - shift), (extent - shift, 0, shift)
