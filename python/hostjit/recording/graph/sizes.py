# SPDX-License-Identifier: Apache-2.0
"""Operators whose results have sizes that depend on values, in the form in which sizes are known.

A replay compares the sizes with those that it was recorded for before it does anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from hostjit.recording.graph.distinct_values import (
    has_form_of_unique_dim,
    record_bincount,
    record_unique,
    record_unique_consecutive,
    record_unique_dim,
)
from hostjit.recording.graph.writer import Writer

if TYPE_CHECKING:
    from hostjit.recording.graph.recorder import Recorder

__all__ = ["has_unknown_sizes", "record_sized"]

aten = torch.ops.aten
Node = torch.fx.Node

_OF_DISTINCT_VALUES = (
    *(aten._unique2.default, aten.unique_consecutive.default, aten.unique_dim.default),
    aten.bincount.default,
)
_MASKS = (torch.bool, torch.uint8)


def has_unknown_sizes(func: Any, args: Sequence[Any]) -> bool:
    """Tell whether the sizes of what an operator returns depend on values, and there is a form."""
    if func is aten.index.Tensor:
        return any(index is not None and index.dtype in _MASKS for index in args[1])
    if func is aten.unique_dim.default and not has_form_of_unique_dim(*args[:2]):
        return False
    if func in _OF_DISTINCT_VALUES and args[0].numel() == 0:
        return _finds_nothing(func, args)
    return func in _FORMS


def record_sized(
    recorder: Recorder, func: Any, given: Sequence[Any], args: Any, kwargs: Any, result: Any
) -> Node | tuple[Node, ...]:
    """Record a call that `has_unknown_sizes` and gave `result`; return what that is in the graph.

    `given`: the tensors for which `args` has nodes.
    """
    form = _nothing if _finds_nothing(func, given) else _FORMS[func]
    return form(Writer(recorder, func), given, args, kwargs, result)


def _finds_nothing(func: Any, given: Sequence[Any]) -> bool:
    """Whether an operator looks for the distinct values of a tensor that has none."""
    if func is aten.unique_consecutive.default and len(given) > 3:  # along a dim
        return False
    of_all = (aten._unique2.default, aten.unique_consecutive.default)
    return func in of_all and given[0].numel() == 0


def _nothing(write: Writer, given: Any, args: Any, kwargs: Any, result: Any) -> tuple[Node, ...]:
    return tuple(
        write.call(
            aten.empty_strided.default,
            *(list(found.shape), list(found.stride())),
            dtype=found.dtype,
            device=found.device,
        )
        for found in result
    )


def _nonzero(write: Writer, given: Any, args: Any, kwargs: Any, result: Any) -> Node:
    places = write.places(args[0], result.shape[0])
    sizes, strides = list(result.shape), list(result.stride())
    if strides == [sizes[1], 1]:
        return places
    if not result.numel():
        kind = {"dtype": torch.int64, "device": result.device}
        return write.call(aten.empty_strided.default, sizes, strides, **kind)
    transposed = write.call(aten.t.default, places)  # eager returns columns one after another
    columns = write.call(aten.clone.default, transposed, memory_format=torch.contiguous_format)
    return write.call(aten.t.default, columns)


def _index(write: Writer, given: Any, args: Any, kwargs: Any, result: Any) -> Node:
    indices: list[Any] = []
    for tensor, node in zip(given[1], args[1], strict=True):
        if tensor is None or tensor.dtype not in _MASKS:
            indices.append(node)
            continue
        with torch.utils._python_dispatch._disable_current_modes():
            count = int(tensor.count_nonzero())
        places = write.places(node, count)
        indices += [write.call(aten.select.int, places, 1, dim) for dim in range(tensor.dim())]
    return write.call(aten.index.Tensor, args[0], indices)


def _masked_select(write: Writer, given: Any, args: Any, kwargs: Any, result: Any) -> Node:
    shape = list(torch.broadcast_shapes(given[0].shape, given[1].shape))
    source, mask = (write.call(aten.expand.default, node, shape) for node in args[:2])
    places = write.places(mask, result.shape[0])
    if not shape:
        source = write.call(aten.reshape.default, source, [1])
        zeros = write.call(aten.new_zeros.default, places, [result.shape[0]])
        return write.call(aten.index.Tensor, source, [zeros])
    indices = [write.call(aten.select.int, places, 1, dim) for dim in range(len(shape))]
    return write.call(aten.index.Tensor, source, indices)


def _repeat_interleave(write: Writer, given: Any, args: Any, kwargs: Any, result: Any) -> Node:
    size = result.shape[0]
    if kwargs.get("output_size") is None:
        total = write.call(aten.sum.default, args[0], dtype=torch.int64)
        write.expect(total, size)
    return write.call(aten.repeat_interleave.Tensor, args[0], output_size=size)


_Form = Callable[[Writer, Any, Any, Mapping[str, Any], Any], Node | tuple[Node, ...]]
_FORMS: dict[Any, _Form] = {
    aten.nonzero.default: _nonzero,
    aten.index.Tensor: _index,
    aten.masked_select.default: _masked_select,
    aten.repeat_interleave.Tensor: _repeat_interleave,
    aten._unique2.default: record_unique,
    aten.unique_consecutive.default: record_unique_consecutive,
    aten.unique_dim.default: record_unique_dim,
    aten.bincount.default: record_bincount,
}
