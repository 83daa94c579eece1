# SPDX-License-Identifier: Apache-2.0
"""Operations on the shape of tensors."""

from __future__ import annotations

import math
from typing import Any

import torch

from hostjit.fusion.builder import Builder, aten
from hostjit.fusion.data_type import DataType
from hostjit.fusion.operation import operation
from hostjit.fusion.values import Scalar, Shape, Tensor

__all__: list[str] = []


@operation("shape")
def size(builder: Builder, arg: Tensor, dim: int) -> Scalar:
    """Return the size of a dim, as an Int."""
    place = builder.dim(dim, arg.ndim)
    found = builder.size_of(arg, place)
    if isinstance(found, int):
        return builder.known_scalar(found, DataType.Int)
    return builder.scalar(DataType.Int, number=found)


@operation("shape")
def shape(builder: Builder, arg: Tensor) -> list[Scalar]:
    """Return the sizes of all dims."""
    return [size(builder, arg, dim) for dim in range(arg.ndim)]


@operation("shape")
def broadcast(builder: Builder, arg: Tensor, is_broadcast_dim: list[bool]) -> Tensor:
    """Insert dims of size 1 where that is said; there are as many others as `arg` has dims."""
    if is_broadcast_dim.count(False) != arg.ndim:
        raise builder.error(
            f"is_broadcast_dim has {is_broadcast_dim.count(False)} times False, expected "
            f"{arg.ndim} times, once for each dim of {arg}"
        )
    node, rest = arg.node, iter(arg.sizes)
    for dim, is_new in enumerate(is_broadcast_dim):
        if is_new:
            node = builder.call(aten.unsqueeze.default, node, dim)
    return builder.tensor(
        node, arg.dtype(), tuple(1 if new else next(rest) for new in is_broadcast_dim)
    )


@operation("shape")
def broadcast_in_dim(
    builder: Builder, arg: Tensor, shape: list[Scalar], broadcast_dims: list[int]
) -> Tensor:
    """Give each dim of `arg` its place in a shape, and expand the others."""
    if len(broadcast_dims) != arg.ndim or len(shape) < arg.ndim:
        raise builder.error(
            f"broadcast_dims has {len(broadcast_dims)} entries for {len(shape)} sizes, expected "
            f"{arg.ndim}, one for each dim of {arg}"
        )
    places = [builder.dim(dim, len(shape), "broadcast_dims") for dim in broadcast_dims]
    if places != builder.dims(broadcast_dims, len(shape), "broadcast_dims"):
        raise builder.error(f"broadcast_dims {broadcast_dims} are not in rising order")
    node = arg.node
    for dim in range(len(shape)):
        if dim not in places:
            node = builder.call(aten.unsqueeze.default, node, dim)
    rest = iter(arg.sizes)
    sizes = tuple(next(rest) if dim in places else 1 for dim in range(len(shape)))
    return _expanded(builder, node, arg.dtype(), sizes, shape)


@operation("shape")
def expand(builder: Builder, arg: Tensor, shape: list[Scalar]) -> Tensor:
    """Expand dims of size 1; -1 leaves one as it is, and new dims come first."""
    if len(shape) < arg.ndim:
        raise builder.error(f"shape has {len(shape)} sizes, expected {arg.ndim} or more for {arg}")
    sizes = (1,) * (len(shape) - arg.ndim) + arg.sizes
    return _expanded(builder, arg.node, arg.dtype(), sizes, shape)


def _expanded(
    builder: Builder, node: Any, data_type: DataType, sizes: Shape, shape: list[Scalar]
) -> Tensor:
    numbers, wanted = builder.sizes(shape, "shape")
    result: list[int | None] = []
    for dim, (now, then, number) in enumerate(zip(sizes, wanted, numbers, strict=True)):
        if now not in (None, 1) and then not in (None, now):
            raise builder.error(f"dim {dim} has size {now} and cannot have size {then}")
        stays = isinstance(number, int) and number == -1
        result.append(now if stays or (then is None and now != 1) else then)
    return builder.tensor(
        builder.call(aten.expand.default, node, numbers), data_type, tuple(result)
    )


@operation("shape")
def reshape(builder: Builder, arg: Tensor, new_shape: list[Scalar]) -> Tensor:
    """Give the elements another shape; one size may be -1."""
    numbers, sizes = builder.sizes(new_shape, "new_shape")
    open_sizes = [number for number in numbers if isinstance(number, int) and number == -1]
    if len(open_sizes) > 1:
        raise builder.error("new_shape has more than one -1")
    if None not in arg.sizes and None not in sizes:
        before, after = math.prod(arg.sizes), math.prod(sizes)  # type: ignore[arg-type]
        if before != after:
            raise builder.error(f"{arg} has {before} elements, and new_shape {after}")
    return builder.tensor(builder.call(aten.reshape.default, arg, numbers), arg.dtype(), sizes)


@operation("shape")
def permute(builder: Builder, arg: Tensor, dims: list[int]) -> Tensor:
    """Put dims into another order."""
    if len(builder.dims(dims, arg.ndim, "dims")) != arg.ndim:
        raise builder.error(f"dims {dims} are not all {arg.ndim} dims of {arg}")
    order = [builder.dim(dim, arg.ndim) for dim in dims]
    node = builder.call(aten.permute.default, arg, order)
    return builder.tensor(node, arg.dtype(), tuple(arg.sizes[dim] for dim in order))


@operation("shape")
def squeeze(
    builder: Builder, arg: Tensor, dims: list[int], squeeze_expanded: bool = False
) -> Tensor:
    """Drop dims of size 1; with `squeeze_expanded` also those that were expanded from it."""
    places = builder.dims(dims, arg.ndim, "dims")
    node, sizes = arg.node, arg.sizes
    for dim in reversed(places):
        if sizes[dim] not in (None, 1):
            hint = "; take one of its elements by ops.select" if squeeze_expanded else ""
            raise builder.error(f"dim {dim} of {arg} has size {sizes[dim]}, expected 1{hint}")
    if all(sizes[dim] == 1 for dim in places):
        node = builder.call(aten.squeeze.dims, node, places)
    else:  # a reshape fails where a size is another than 1
        kept = [builder.size_of(arg, dim) for dim in range(arg.ndim) if dim not in places]
        node = builder.call(aten.reshape.default, node, kept)
    kept_sizes = tuple(size for dim, size in enumerate(sizes) if dim not in places)
    return builder.tensor(node, arg.dtype(), kept_sizes)


@operation("shape")
def slice_(
    builder: Builder,
    arg: Tensor,
    start_indices: list[Scalar],
    end_indices: list[Scalar],
    strides: list[Scalar] | None = None,
    manual_normalization: bool = False,
) -> Tensor:
    """Take a range of each dim, cut to what is there."""
    steps = [builder.constant(1)] * arg.ndim if strides is None else strides
    for what, found in (
        ("start_indices", start_indices),
        ("end_indices", end_indices),
        ("strides", steps),
    ):
        if len(found) != arg.ndim:
            raise builder.error(f"{what} has {len(found)} entries, expected {arg.ndim} for {arg}")
    node, sizes = arg.node, list(arg.sizes)
    for dim, (first, last, step) in enumerate(zip(start_indices, end_indices, steps, strict=True)):
        if step.value != 1:
            raise builder.error(f"strides[{dim}] is {step}, expected 1")
        start = builder.integer(first, f"start_indices[{dim}]")
        end = builder.integer(last, f"end_indices[{dim}]")
        is_known = isinstance(start, int) and isinstance(end, int)
        if isinstance(start, int) and start < 0:
            raise builder.error(f"start_indices[{dim}] is {start}, expected 0 or more")
        if is_known and end < start:
            raise builder.error(f"end_indices[{dim}] is {end}, less than the start {start}")
        known = sizes[dim]
        if is_known and start == 0 and known is not None and end >= known:
            continue
        node = builder.call(aten.slice.Tensor, node, dim, start, end)
        is_known = is_known and known is not None
        sizes[dim] = max(min(end, known) - start, 0) if is_known and known is not None else None
    if node is arg.node:
        node = builder.call(aten.alias.default, node)
    return builder.tensor(node, arg.dtype(), tuple(sizes))


@operation("shape")
def cat(
    builder: Builder, tensors: list[Tensor], dim: int = 0, manual_padding: bool = False
) -> Tensor:
    """Put tensors of one dtype behind each other."""
    if not tensors:
        raise builder.error("takes one tensor or more")
    if manual_padding:
        raise builder.error("takes tensors as they are: manual_padding is not available")
    first = tensors[0]
    place = builder.dim(dim, first.ndim)
    for other in tensors[1:]:
        fits = other.ndim == first.ndim and all(
            a == b or d == place or None in (a, b)
            for d, (a, b) in enumerate(zip(first.sizes, other.sizes, strict=True))
        )
        if not fits or other.dtype() is not first.dtype():
            raise builder.error(f"{other} does not fit {first} but for dim {place}")
    along = [tensor.sizes[place] for tensor in tensors]
    total = None if None in along else sum(size for size in along if size is not None)
    sizes = (*first.sizes[:place], total, *first.sizes[place + 1 :])
    return builder.tensor(builder.call(aten.cat.default, tensors, place), first.dtype(), sizes)


@operation("shape")
def pad(
    builder: Builder, arg: Tensor, pad_widths: list[Scalar], value: Scalar | None = None
) -> Tensor:
    """Put `value`, by default 0, around: before and after the last dim, the one before, ..."""
    if len(pad_widths) % 2 or len(pad_widths) > 2 * arg.ndim:
        raise builder.error(
            f"pad_widths has {len(pad_widths)} entries, expected an even number up to "
            f"{2 * arg.ndim} for {arg}"
        )
    fill: Any = 0
    if value is not None:
        if value.dtype().rank_of_kind != arg.dtype().rank_of_kind:
            raise builder.error(f"value is {value}, expected one of {arg.dtype()}")
        fill = builder.number(value, "value")
    widths = [builder.integer(width, f"pad_widths[{i}]") for i, width in enumerate(pad_widths)]
    sizes = list(arg.sizes)
    for place in range(len(widths) // 2):
        both = widths[2 * place], widths[2 * place + 1]
        now, dim = sizes[-1 - place], arg.ndim - 1 - place
        is_known = now is not None and all(isinstance(width, int) for width in both)
        sizes[dim] = now + sum(both) if is_known and now is not None else None
    node = builder.call(aten.constant_pad_nd.default, arg, widths, fill)
    return builder.tensor(node, arg.dtype(), tuple(sizes))


@operation("shape")
def stride_order(builder: Builder, arg: Tensor, stride_order: list[int]) -> Tensor:
    """Copy with other strides: 0 stands at the dim with the smallest, 1 at the next, ..."""
    if not stride_order:
        return builder.tensor(builder.call(aten.clone.default, arg), arg.dtype(), arg.sizes)
    if len(builder.dims(stride_order, arg.ndim, "stride_order")) != arg.ndim:
        raise builder.error(f"stride_order {stride_order} has no entry for each dim of {arg}")
    places = [builder.dim(order, arg.ndim) for order in stride_order]
    outer_first = sorted(range(arg.ndim), key=lambda dim: -places[dim])
    back = [outer_first.index(dim) for dim in range(arg.ndim)]
    node = builder.call(aten.permute.default, arg, outer_first)
    # As a contiguous tensor of its own, whatever `arg` is.
    node = builder.call(aten.clone.default, node, memory_format=torch.contiguous_format)
    return builder.tensor(builder.call(aten.permute.default, node, back), arg.dtype(), arg.sizes)
