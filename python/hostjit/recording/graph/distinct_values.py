# SPDX-License-Identifier: Apache-2.0
"""Distinct values and their counts, in the form in which sizes are known: sorted, then compared.

The results have no gradients, as those of the operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from hostjit.recording.graph.writer import Writer

__all__ = [
    "has_form_of_unique_dim",
    "record_bincount",
    "record_unique",
    "record_unique_consecutive",
    "record_unique_dim",
]

aten = torch.ops.aten
Node = torch.fx.Node
# One sort for each column of the slices that are compared.
_MOST_COLUMNS = 16


def record_unique(
    write: Writer, given: Any, args: Any, kwargs: Mapping[str, Any], result: Any
) -> tuple[Node, ...]:
    """Record `aten._unique2`: values, and where they are in it and how often, if that was asked."""
    count = given[0].numel()
    flat = write.call(aten.reshape.default, write.call(aten.detach.default, args[0]), [count])
    ordered, order = _sorted(write, flat)
    starts, runs = _runs(write, _neighbours_differ(write, ordered, count), result[0].shape[0])
    values = write.call(aten.index.Tensor, ordered, [starts])
    return _with_places(write, values, starts, runs, order, count, result)


def record_unique_consecutive(
    write: Writer, given: Any, args: Any, kwargs: Mapping[str, Any], result: Any
) -> tuple[Node, ...]:
    """Record `aten.unique_consecutive`, of values or of slices along a dim."""
    dim = args[3] if len(args) > 3 else kwargs.get("dim")
    source = write.call(aten.detach.default, args[0])
    if dim is None:
        count = given[0].numel()
        source = write.call(aten.reshape.default, source, [count])
        starts, runs = _runs(write, _neighbours_differ(write, source, count), result[0].shape[0])
        values = write.call(aten.index.Tensor, source, [starts])
    else:
        count = given[0].shape[dim]
        source = _slices(write, source, dim, given[0])
        starts, runs = _runs(write, _slices_differ(write, source, count), result[0].shape[dim])
        values = write.call(aten.index.Tensor, source, [starts])
        values = _back_in_place(write, values, dim, result[0])
    return _with_places(write, values, starts, runs, None, count, result)


def has_form_of_unique_dim(source: torch.Tensor, dim: int) -> bool:
    """Tell whether `unique_dim` has a form: the slices are short, and no value is NaN."""
    columns = source.numel() // max(source.shape[dim], 1) if source.dim() else 0
    with torch.utils._python_dispatch._disable_current_modes():
        return 0 < columns <= _MOST_COLUMNS and not bool(source.isnan().any())


def record_unique_dim(
    write: Writer, given: Any, args: Any, kwargs: Mapping[str, Any], result: Any
) -> tuple[Node, ...]:
    """Record `aten.unique_dim`: the slices in lexicographic order."""
    dim, count = args[1], given[0].shape[args[1]]
    source = write.call(aten.detach.default, args[0])
    if given[0].is_floating_point():
        nans = write.call(aten.isnan.default, source)
        write.expect(write.call(aten.count_nonzero.default, nans), 0)
    slices = _slices(write, source, dim, given[0])
    order: Node | None = None
    for column in reversed(range(given[0].numel() // count)):
        keys = write.call(aten.select.int, slices, 1, column)
        if order is not None:
            keys = write.call(aten.index.Tensor, keys, [order])
        _, places = _sorted(write, keys)
        order = places if order is None else write.call(aten.index.Tensor, order, [places])
    ordered = write.call(aten.index.Tensor, slices, [order])
    starts, runs = _runs(write, _slices_differ(write, ordered, count), result[0].shape[dim])
    values = write.call(aten.index.Tensor, ordered, [starts])
    values = _back_in_place(write, values, dim, result[0])
    return _with_places(write, values, starts, runs, order, count, result)


def record_bincount(
    write: Writer, given: Any, args: Any, kwargs: Mapping[str, Any], result: Any
) -> Node:
    """Record `aten.bincount`, with or without weights."""
    weights = args[1] if len(args) > 1 else kwargs.get("weights")
    source = write.call(aten._to_copy.default, args[0], dtype=torch.int64)
    negative = write.call(aten.count_nonzero.default, write.call(aten.lt.Scalar, source, 0))
    write.expect(negative, 0)  # otherwise eager raises
    least = args[2] if len(args) > 2 else kwargs.get("minlength", 0)
    largest = write.call(aten.add.Tensor, write.call(aten.max.default, source), 1)
    size = result.shape[0]
    write.expect(write.call(aten.clamp_min.default, largest, least), size)
    kind = {"dtype": result.dtype, "device": result.device}
    zeros = write.call(aten.zeros.default, [size], **kind)
    if weights is None:
        added = write.call(aten.ones.default, list(given[0].shape), **kind)
    else:
        detached = write.call(aten.detach.default, weights)
        added = write.call(aten._to_copy.default, detached, dtype=result.dtype)
    return write.call(aten.scatter_add.default, zeros, 0, source, added)


def _sorted(write: Writer, values: Node) -> tuple[Node, Node]:
    found = write.call(aten.sort.stable, values, stable=True, dim=0)
    return write.item(found, 0), write.item(found, 1)


def _neighbours_differ(write: Writer, values: Node, count: int) -> Node:
    """Return for each value whether it is another than the one before; the first is."""
    later = write.call(aten.slice.Tensor, values, 0, 1, count)
    earlier = write.call(aten.slice.Tensor, values, 0, 0, count - 1)
    return write.call(aten.ne.Tensor, later, earlier)


def _slices(write: Writer, source: Node, dim: int, given: torch.Tensor) -> Node:
    """Return the slices along a dim as rows."""
    moved = write.call(aten.permute.default, source, _dim_first(dim, given.dim()))
    count = given.shape[dim]
    return write.call(aten.reshape.default, moved, [count, given.numel() // count])


def _back_in_place(write: Writer, rows: Node, dim: int, like: torch.Tensor) -> Node:
    """Return rows as slices along a dim, with the sizes and strides that eager gives them."""
    order = _dim_first(dim, like.dim())
    moved = write.call(aten.reshape.default, rows, [like.shape[axis] for axis in order])
    slices = write.call(aten.permute.default, moved, [order.index(x) for x in range(like.dim())])
    if not like.is_cuda:
        return slices
    # There eager picks them along the dim, and packs them thereby.
    return write.call(aten.clone.default, slices, memory_format=torch.contiguous_format)


def _dim_first(dim: int, rank: int) -> list[int]:
    dim %= rank
    return [dim, *(axis for axis in range(rank) if axis != dim)]


def _slices_differ(write: Writer, slices: Node, count: int) -> Node:
    return write.call(aten.any.dim, _neighbours_differ(write, slices, count), 1)


def _runs(write: Writer, differ: Node, size: int) -> tuple[Node, Node]:
    """Return where runs of equal values start, [size], and the run that each value is in."""
    first = write.call(aten.new_ones.default, differ, [1])
    begins = write.call(aten.cat.default, [first, differ])
    places = write.call(aten.reshape.default, write.places(begins, size), [size])
    numbers = write.call(aten.cumsum.default, begins, 0, dtype=torch.int64)
    return places, write.call(aten.sub.Tensor, numbers, 1)


def _with_places(
    write: Writer,
    values: Node,
    starts: Node,
    runs: Node,
    order: Node | None,
    count: int,
    result: Any,
) -> tuple[Node, ...]:
    """Return the results: what was not asked for is empty.

    `order`: where the values of the runs are in what was sorted; None: they are in their places.
    """
    _, inverse, counts = result
    kind = {"dtype": torch.int64, "device": inverse.device}
    places = lengths = write.call(aten.empty.memory_format, [0], **kind)
    if inverse.numel():
        places = runs
        if order is not None:
            zeros = write.call(aten.zeros_like.default, runs)
            places = write.call(aten.scatter.src, zeros, 0, order, runs)
        places = write.call(aten.reshape.default, places, list(inverse.shape))
    if counts.numel():
        end = write.call(aten.full.default, [1], count, **kind)
        rest = write.call(aten.slice.Tensor, starts, 0, 1, counts.shape[0])
        ends = write.call(aten.cat.default, [rest, end])
        lengths = write.call(aten.sub.Tensor, ends, starts)
    return values, places, lengths
