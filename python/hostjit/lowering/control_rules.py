# SPDX-License-Identifier: Apache-2.0
"""Higher-order operators that control the flow, as ops with regions.

What a region makes is gone at its end: its results are copied to buffers of the region outside,
which hold the results, or the state that a loop carries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch.fx import Graph, Node

from hostjit import _C
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.copies import copy_values
from hostjit.lowering.devices import on_cuda
from hostjit.lowering.sizes import size_of
from hostjit.lowering.types import tensor_type

__all__ = ["CONTROL_RULES"]


class LowerRegion(Protocol):
    """Lowers a graph on values, and numbers, for its placeholders."""

    def __call__(
        self, context: LoweringContext, graph: Graph, operands: Sequence[Any], *, carried: int = 0
    ) -> list[_C.Value]:
        """Return the values of its results, of which the first `carried` become those inputs."""


def lower_cond(context: LoweringContext, node: Node, lower: LowerRegion) -> None:
    """cond(predicate, true_graph, false_graph, operands) -> if."""
    predicate, *branches, operands = node.args
    values = _operands(context, operands)
    buffers = [context.new_buffer(shape) for shape in node.meta["val"]]
    context.create("if", {"condition": _on_the_host(context, context.value(predicate))})
    regions = context.regions()
    for name, branch in zip(("then", "else"), branches, strict=True):
        _copy_all(regions[name], lower(regions[name], _graph(branch), values), buffers)
    context.bind_all(node, buffers)


def lower_while_loop(context: LoweringContext, node: Node, lower: LowerRegion) -> None:
    """while_loop(condition_graph, body_graph, carried, additional) -> while."""
    condition, body, carried, additional = node.args
    assert isinstance(condition, Node)
    buffers = [context.new_buffer(shape) for shape in node.meta["val"]]
    _copy_all(context, _values(context, carried), buffers)
    operands = [*buffers, *_operands(context, additional)]
    goes_on = context.create("allocate", {}, [_C.TensorType("bool", [])])
    _copy_all(context, lower(context, _graph(condition), operands), [goes_on])
    context.create("while", {"condition": goes_on})
    inside = context.regions()["body"]
    results = lower(inside, _graph(body), operands, carried=len(buffers))
    _copy_all(inside, _apart(inside, results, buffers, node), buffers)
    _copy_all(inside, lower(inside, _graph(condition), operands), [goes_on])
    context.bind_all(node, buffers)


def lower_map(context: LoweringContext, node: Node, lower: LowerRegion) -> None:
    """map_impl(graph, walked, operands) -> for."""
    graph, walked, operands = node.args
    _lower_walk(context, node, _graph(graph), (), walked, operands, lower)


def lower_scan(context: LoweringContext, node: Node, lower: LowerRegion) -> None:
    """scan(graph, carried, walked, additional) -> for."""
    graph, carried, walked, operands = node.args
    _lower_walk(context, node, _graph(graph), carried, walked, operands, lower)


CONTROL_RULES: dict[Any, Callable[[LoweringContext, Node, LowerRegion], None]] = {
    torch.ops.higher_order.cond: lower_cond,
    torch.ops.higher_order.while_loop: lower_while_loop,
    torch.ops.higher_order.map_impl: lower_map,
    torch.ops.higher_order.scan: lower_scan,
}


def _lower_walk(
    context: LoweringContext,
    node: Node,
    graph: Graph,
    carried: Any,
    walked: Any,
    operands: Any,
    lower: LowerRegion,
) -> None:
    """Run a graph on the slices of `walked`, one after the other, with state that is carried."""
    buffers = [context.new_buffer(shape) for shape in node.meta["val"]]
    state, stacked = buffers[: len(carried)], buffers[len(carried) :]
    _copy_all(context, _values(context, carried), state)
    begin, end = (
        context.create("index_constant", {"value": size}, ["index"])
        if isinstance(size, int)
        else context.indices.value(size)
        for size in (0, size_of(walked[0].meta["val"].shape[0]))
    )
    index = context.create("for", {"begin": begin, "end": end}, ["index"])
    inside = context.regions()["body"]
    slices = [_slice(inside, context.value(source), index) for source in walked]
    given = [*state, *slices, *_operands(context, operands)]
    results = lower(inside, graph, given, carried=len(state))
    places = [_slice(inside, buffer, index) for buffer in stacked]
    _copy_all(inside, results[len(state) :], places)
    _copy_all(inside, _apart(inside, results[: len(state)], state, node), state)
    context.bind_all(node, buffers)


def _slice(context: LoweringContext, source: _C.Value, index: _C.Value) -> _C.Value:
    """The part of `source` at `index` of its first dimension."""
    whole = tensor_type(source)
    strides = whole.strides[1:] if whole.strides else None  # contiguous ones
    type_ = _C.TensorType(whole.dtype, whole.dims[1:], strides, whole.device)
    value: _C.Value = context.create("select", {"source": source, "index": index}, [type_])
    return value


def _apart(
    context: LoweringContext, values: Sequence[_C.Value], state: Sequence[_C.Value], node: Node
) -> list[_C.Value]:
    """`values`, with copies of those that may share memory with the state they are copied to."""
    result = []
    for value, buffer, shape in zip(values, state, node.meta["val"], strict=False):
        if value not in context.buffers and value != buffer:
            copy = context.new_buffer(shape)
            _copy_all(context, [value], [copy])
            value = copy
        result.append(value)
    return result


def _copy_all(
    context: LoweringContext, sources: Sequence[_C.Value], targets: Sequence[_C.Value]
) -> None:
    for source, target in zip(sources, targets, strict=True):
        if source != target:
            copy_values(context, source, target)


def _on_the_host(context: LoweringContext, condition: _C.Value) -> _C.Value:
    """One bool that an op may branch on: a copy, which waits for the device, of one on CUDA."""
    if not on_cuda(condition):
        return condition
    copied: _C.Value = context.create("allocate", {}, [_C.TensorType("bool", [])])
    copy_values(context, condition, copied)
    return copied


def _values(context: LoweringContext, nodes: Any) -> list[_C.Value]:
    return [context.value(node) for node in nodes]


def _operands(context: LoweringContext, operands: Any) -> list[Any]:
    """The values of tensors that regions read, and numbers as they are."""
    return [context.value(item) if isinstance(item, Node) else item for item in operands]


def _graph(attribute: Any) -> Graph:
    """The graph of a region."""
    graph: Graph = attribute.meta["region"].graph
    return graph
