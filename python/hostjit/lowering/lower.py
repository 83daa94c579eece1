# SPDX-License-Identifier: Apache-2.0
"""From a captured functional ATen graph to a Host IR program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from hostjit import _C
from hostjit.capturing.dynamic_dims import is_number
from hostjit.capturing.numbers.graph_sizes import with_sizes_in_place
from hostjit.capturing.traced_graph import source_location
from hostjit.kernels.sizes import Size
from hostjit.lowering import allocation_rules as _allocation_rules  # noqa: F401
from hostjit.lowering import complex_rules as _complex_rules  # noqa: F401
from hostjit.lowering import copy_rules as _copy_rules  # noqa: F401  # registers its rules
from hostjit.lowering import item_rules as _item_rules  # noqa: F401
from hostjit.lowering import math_rules as _math_rules  # noqa: F401
from hostjit.lowering import matrix_rules as _matrix_rules  # noqa: F401
from hostjit.lowering import put_rules as _put_rules  # noqa: F401
from hostjit.lowering import scan_rules as _scan_rules  # noqa: F401
from hostjit.lowering import user_kernel_rules as _user_kernel_rules  # noqa: F401
from hostjit.lowering import view_rules as _view_rules  # noqa: F401
from hostjit.lowering.complex_parts import with_complex_in_parts
from hostjit.lowering.complex_results import Wholes
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.control_rules import CONTROL_RULES
from hostjit.lowering.cuda_launches import add_kernels, add_user_kernels
from hostjit.lowering.destinations import Destinations
from hostjit.lowering.devices import device_of, kernel_devices
from hostjit.lowering.fused_groups import lower_group
from hostjit.lowering.grouping import PointwiseGroup, schedule
from hostjit.lowering.loop_state import with_state_in_place
from hostjit.lowering.registry import lowers
from hostjit.lowering.writes_in_place import with_writes_in_place

__all__ = ["identifier", "lower", "results_of"]


def lower(graph: Graph, name: str) -> _C.Program:
    """Lower a captured functional ATen graph to Host IR.

    Groups of pointwise operators become kernels; operators with a rule become their nodes; any
    other becomes an ATen call, so that no captured graph is refused.

    Args:
        graph: placeholders become the inputs of the program, results its outputs: tensors, and
            sizes that are only known at the call.
        name: of what was captured, for the program's name.
    """
    sized = with_sizes_in_place(graph)
    parted = with_complex_in_parts(sized, is_own=sized is not graph)
    graph = with_writes_in_place(parted, is_own=parted is not graph)
    context = _lowered(graph, name)
    if context.indices.late:
        context = _lowered(graph, name, context.indices.late)
    add_kernels(context.program, context.cuda_kernels)
    add_user_kernels(context.program, context.user_kernels)
    return context.program


def _lowered(graph: Graph, name: str, sizes: Sequence[Size] = ()) -> LoweringContext:
    """Lower a graph, whose sizes are in place; make the index values of `sizes` first."""
    context = LoweringContext(identifier(name), kernel_devices(graph))
    context.add_inputs([node for node in graph.nodes if node.op == "placeholder"])
    for size in sizes:
        context.indices.value(size)
    _lower_items(context, Destinations(schedule(graph, devices=context.devices)))
    context.program.set_outputs([context.result(result) for result in results_of(graph)])
    return context


def _lower_items(context: LoweringContext, work: Destinations) -> None:
    """Lower work whose inputs have values."""
    profile, wholes = _C.profile_ranges(), Wholes(work.items)
    for item in work.items:
        if isinstance(item, Node) and work.is_done(item):
            context.bind(item, context.value(item.args[0]))
            continue
        if profile:
            context.create("range_push", {"label": _label(item)})
        if isinstance(item, PointwiseGroup):
            lower_group(context, item, wholes, work.targets)
        else:
            _lower_node(context, item)
        if profile:
            context.create("range_pop", {})


def results_of(graph: Graph) -> Sequence[Node]:
    """Return the results of a graph, all tensors."""
    results = graph.output_node().args[0]
    assert isinstance(results, (tuple, list))
    return results  # type: ignore[return-value]


def _lower_node(context: LoweringContext, node: Node) -> None:
    context.location = source_location(node) or ""
    control = CONTROL_RULES.get(node.target)
    if control is not None:
        control(context, node, _lower_region)
        return
    rule = lowers.find(node.target)
    if rule is None or not _has_kernels(context, node) or not rule(context, node):
        context.aten_call(node)


def _has_kernels(context: LoweringContext, node: Node) -> bool:
    device = device_of(node)
    return device is None or device in context.devices


def _lower_region(
    context: LoweringContext, graph: Graph, operands: Sequence[Any], *, carried: int = 0
) -> list[_C.Value]:
    """Lower the graph of a region on `operands`, and return the values of its results.

    `carried`: so many of the results are copied to the first operands then, or are those.
    """
    given = zip(graph.find_nodes(op="placeholder"), operands, strict=True)
    sized = with_sizes_in_place(
        graph, {n: number for n, number in given if isinstance(n.meta["val"], torch.SymFloat)}
    )
    parted = with_complex_in_parts(sized, is_own=sized is not graph)
    graph = with_state_in_place(parted, carried, is_own=parted is not graph)
    for node, operand in zip(graph.find_nodes(op="placeholder"), operands, strict=True):
        if not is_number(node.meta["val"]):
            context.bind(node, operand)
    work = Destinations(schedule(graph, devices=context.devices), of_region=True)
    _lower_items(context, work)
    return [context.value(result) for result in results_of(graph)]


def _label(item: PointwiseGroup | Node) -> str:
    """Return names of operators with the line of the user's that they come from."""
    nodes = [item] if isinstance(item, Node) else item.members
    names = item.name if isinstance(item, Node) else " ".join(str(n.target) for n in nodes)
    location = next(filter(None, map(source_location, nodes)), None)
    return f"{names} ({location})" if location else names


def identifier(name: str) -> str:
    """Return the name of a program for what was captured."""
    text = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return text if text[:1].isalpha() or text[:1] == "_" else f"_{text}"
