# SPDX-License-Identifier: Apache-2.0
"""Writes of a graph that PyTorch's functionalisation gets wrong, found before it runs.

Of a graph with gradients, AOTAutograd's code sees every write before anything of hostjit's does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from hostjit.capturing.dynamic_dims import is_symbolic
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.overlap import may_write, overlaps, overlaps_itself, writes_clones
from hostjit.capturing.traced_graph import placeholder_values, source_location, storage_of

__all__ = [
    "refuse_overlapping_writes",
    "refuse_views_at_any_size",
    "refuse_writes_through_unfold",
    "written_inputs",
    "written_nodes",
]

aten = torch.ops.aten


def refuse_writes_through_unfold(graph: torch.fx.Graph) -> None:
    """Raise CaptureError for a write to a view of `unfold`.

    Functionalisation takes the elements of the base that are in no window for zeros.
    """
    unfolded: set[torch.fx.Node] = set()
    for node in graph.nodes:
        if node.target in ("unfold", torch.Tensor.unfold, aten.unfold.default):
            unfolded.add(node)
        elif unfolded.intersection(node.all_input_nodes):
            if may_write(node) and unfolded.intersection(written_nodes(node)):
                raise _refusal(node, "writes to windows of unfold")
            memory = {storage_of(_value(operand)) for operand in unfolded & {*node.all_input_nodes}}
            if any(storage_of(value) in memory for value in tree_leaves(_value(node))):
                unfolded.add(node)


def refuse_overlapping_writes(graph: torch.fx.Graph) -> None:
    """Raise CaptureError where a node writes elements twice, or reads them at other places too.

    Eager raises for most of these. Functionalisation reads everything before it writes, and adds up
    what is written to one element.
    """
    for node in graph.nodes:
        if not may_write(node):
            continue
        written = written_nodes(node)
        others = [operand for operand in _nodes((node.args, node.kwargs)) if operand not in written]
        tensors = _tensors(written)
        is_item = "setitem" in str(node.target)
        part = _written_part(node) if is_item else None
        if part is not None:
            tensors = [part]
        elif is_item or node.target is aten.copy_.default:
            others = []  # which part is written, and from where, is seen where it is copied
        for index, tensor in enumerate(tensors):
            if overlaps_itself(tensor) or any(
                overlaps(tensor, other, same_is_fine=False) for other in tensors[index + 1 :]
            ):
                raise _refusal(node, "writes to memory more than once")
            if any(overlaps(tensor, other, same_is_fine=True) for other in _tensors(others)):
                raise _refusal(node, "writes to memory that it reads at other places")


def _written_part(node: torch.fx.Node) -> torch.Tensor | None:
    """Return the view that `x[key] = y` writes; None where others than known numbers say which.

    Of views of open sizes nothing is known that would not refuse those that have nothing in common.
    """
    place: Any = map_arg(tuple(node.args[:2]), _value)
    base, key = place
    parts = [p for item in (key if isinstance(key, tuple) else (key,)) for p in _numbers_of(item)]
    is_known = all(part is None or part is ... or type(part) is int for part in parts)
    if not (is_known and isinstance(base, torch.Tensor)) or is_symbolic(base):
        return None
    try:
        written: torch.Tensor = base[key]
    except IndexError:
        return None
    return written


def _numbers_of(key: Any) -> tuple[Any, ...]:
    return (key.start, key.stop, key.step) if isinstance(key, slice) else (key,)


def refuse_views_at_any_size(module: torch.fx.GraphModule, written: Collection[int]) -> None:
    """Raise CaptureError where a result is a view, of open sizes, of an input that is written.

    AOTAutograd makes it where it lies in the new value, which begins at its memory's start, and not
    where the input begins. `written`: the positions of such inputs.
    """
    inputs = placeholder_values(module)
    memory = {storage_of(inputs[position]) for position in written}
    for node in module.graph.output_node().all_input_nodes:
        value = _value(node)
        is_view = node.op != "placeholder" and storage_of(value) in memory
        if is_view and isinstance(value, torch.Tensor) and is_symbolic(value):
            raise CaptureError(
                CaptureFailure.UNSUPPORTED_PROGRAM,
                "a result of open sizes is a view of an input that the call changes",
                where=source_location(node),
                hint="return a clone of it",
            )


def written_inputs(module: torch.fx.GraphModule) -> list[int]:
    """Return the positions of the inputs of which a graph may write elements.

    Running statistics that a normalization writes are left out: they share no memory.
    """
    inputs = placeholder_values(module)
    tensors = [(i, value) for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
    found: set[int] = set()
    for node in module.graph.nodes:
        name = getattr(node.target, "__name__", node.target)
        if not may_write(node) or name in ("batch_norm", "instance_norm"):
            continue
        knows = isinstance(node.target, (str, torch._ops.OpOverload)) or not writes_clones(node)
        written = written_nodes(node) if knows else _nodes((node.args, node.kwargs))
        for view in _tensors(written):
            found |= {i for i, value in tensors if overlaps(view, value, same_is_fine=False)}
    return sorted(found)


def written_nodes(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Return what a node that may write would write: of a list of tensors each, as often."""
    if isinstance(node.target, torch._ops.OpOverload):
        arguments = node.target._schema.arguments
        names = {a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write}
        given = zip(arguments, node.args, strict=False)
        by_position = [value for argument, value in given if argument.name in names]
        return _nodes([*by_position, *(v for name, v in node.kwargs.items() if name in names)])
    out = node.kwargs.get("out")
    return _nodes(list(node.args[:1]) if out is None else out)


def _nodes(value: Any) -> list[torch.fx.Node]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.fx.Node)]


def _value(node: torch.fx.Node) -> Any:
    """Return the value of a node in the trace: of a tensor in a transform what it is made of."""
    value = node.meta.get("example_value", node.meta.get("val"))
    while torch.is_tensor(value) and torch._C._functorch.is_functorch_wrapped_tensor(value):
        value = torch._C._functorch.get_unwrapped(value)
    return value


def _tensors(nodes: Sequence[torch.fx.Node]) -> list[torch.Tensor]:
    return [value for value in map(_value, nodes) if isinstance(value, torch.Tensor)]


def _refusal(node: torch.fx.Node, what: str) -> CaptureError:
    return CaptureError(
        CaptureFailure.UNSUPPORTED_PROGRAM,
        f"{getattr(node.target, '__name__', node.target)} {what}",
        where=source_location(node),
        hint="write to a clone, or clone what is read",
    )
