# SPDX-License-Identifier: Apache-2.0
"""Tells whether a captured call is one for autograd to know of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._functorch.autograd_function import AutogradFunctionApply

from hostjit.capturing.overlap import may_write
from hostjit.capturing.traced_graph import storage_of

__all__ = [
    "marks_are_kept",
    "marks_input_dirty",
    "needs_backward",
    "saved_tensor_hooks_set_aside",
    "switches_gradients_for_writes",
]

_FUNCTION_APPLY = torch.ops.higher_order.autograd_function_apply


def needs_backward(graph: torch.fx.Graph, inputs: Sequence[torch.Tensor]) -> bool:
    """Tell whether eager would record something for a backward pass, given gradients are enabled.

    Args:
        graph: Dynamo's, its placeholders in the order of `inputs`.
        inputs: the live tensors.
    """
    tensors = [tensor for tensor in inputs if isinstance(tensor, torch.Tensor)]
    if not any(tensor.requires_grad for tensor in tensors):
        return False
    if any(_requires_grad(node) for node in _results(graph)):
        return True
    writes = any(_writes_with_gradients(graph))
    return writes or marks_input_dirty(graph) or _returns_views(graph)


def marks_input_dirty(graph: torch.fx.Graph) -> bool:
    """Tell whether an autograd.Function of Dynamo's graph changes an input of it in place.

    AOTAutograd would lose the node: what is returned would be the input as it was to autograd.
    """
    calls = [node for node in graph.nodes if node.target is _FUNCTION_APPLY]
    changed = {storage_of(_example(node)) for call in calls for node in _dirty_operands(call)}
    return bool(changed) and any(
        storage_of(_example(node)) in changed for node in graph.nodes if node.op == "placeholder"
    )


def marks_are_kept() -> bool:
    """Tell whether Dynamo's graphs say what an autograd.Function marks; those of 2.11 do not."""
    return "dirty_idx" in AutogradFunctionApply.__call__.__code__.co_consts


def _written(node: torch.fx.Node) -> list[torch.fx.Node]:
    """What a node may write."""
    operands = [*node.args[:1], node.kwargs.get("out")] if may_write(node) else []
    return [operand for operand in operands if isinstance(operand, torch.fx.Node)]


def _example(node: torch.fx.Node) -> Any:
    return node.meta.get("example_value")


def _dirty_operands(call: torch.fx.Node) -> list[torch.fx.Node]:
    """What an autograd.Function is given, changes and returns.

    Where Dynamo does not say what is returned, all that is changed.
    """
    body = getattr(call.graph.owning_module, str(call.args[0].target))  # type: ignore[union-attr]
    results: Any = body.graph.output_node().args[0][0]
    results = results if isinstance(results, (tuple, list)) else (results,)
    marked = [results[index] for index in call.kwargs.get("dirty_idx", ())]  # type: ignore[union-attr]
    if not marks_are_kept():
        marked = [operand for node in body.graph.nodes for operand in _written(node)]
    dirty = {storage_of(_example(node)) for node in marked}
    given = [node for node in body.graph.nodes if node.op == "placeholder"]
    return [
        operand
        for operand, inner in zip(call.args[2:], given, strict=False)
        if isinstance(operand, torch.fx.Node) and storage_of(_example(inner)) in dirty
    ]


def _results(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    return [node for node in graph.output_node().all_input_nodes if node.op != "placeholder"]


def _requires_grad(node: torch.fx.Node) -> bool:
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) and value.requires_grad


def switches_gradients_for_writes(graph: torch.fx.Graph) -> bool:
    """Tell whether a call without gradients switches them on and writes an input, or a view of one.

    What is written needs a gradient then, if what is written into it does.
    """
    given = {storage_of(_example(node)) for node in graph.nodes if node.op == "placeholder"}
    return not torch.is_grad_enabled() and any(
        storage_of(_example(written)) in given
        for node in _writes_with_gradients(graph, enabled=False)
        for written in _written(node)
    )


def _writes_with_gradients(graph: torch.fx.Graph, enabled: bool = True) -> Iterator[torch.fx.Node]:
    """Yield such writes. An optimizer writes parameters too, but where gradients are off.

    `enabled`: gradients are on where the graph begins.
    """
    for node in graph.nodes:
        if node.target is torch._C._set_grad_enabled:
            enabled = bool(node.args[0])
        elif enabled and may_write(node):
            if any(_requires_grad(operand) for operand in (node, *node.all_input_nodes)):
                yield node


def _returns_views(graph: torch.fx.Graph) -> bool:
    """A view of a tensor with a gradient, such as `x.detach()`, is one to autograd too."""
    with_gradient = {
        storage_of(node.meta.get("example_value"))
        for node in graph.nodes
        if node.op == "placeholder" and _requires_grad(node)
    }
    return any(
        storage_of(node.meta.get("example_value")) in with_gradient for node in _results(graph)
    )


@contextlib.contextmanager
def saved_tensor_hooks_set_aside() -> Iterator[None]:
    """Hide hooks on saved tensors: a trace would take them for a part of the program.

    What a compiled call saves is given to the hooks that are there at the call.
    """
    autograd: Any = torch._C._autograd
    hooks = []
    while (found := autograd._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(found)
        autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            autograd._push_saved_tensors_default_hooks(pack, unpack)
