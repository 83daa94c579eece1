# SPDX-License-Identifier: Apache-2.0
"""Tells whether a captured call is one for autograd to know of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from hostjit.capture.overlap import may_write
from hostjit.capture.traced_graph import storage_of

__all__ = ["needs_backward", "saved_tensor_hooks_set_aside"]


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
    return _writes_with_gradients(graph) or _returns_views(graph)


def _results(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    return [node for node in graph.output_node().all_input_nodes if node.op != "placeholder"]


def _requires_grad(node: torch.fx.Node) -> bool:
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) and value.requires_grad


def _writes_with_gradients(graph: torch.fx.Graph) -> bool:
    """An optimizer writes parameters too, but where gradients are off."""
    enabled = True
    for node in graph.nodes:
        if node.target is torch._C._set_grad_enabled:
            enabled = bool(node.args[0])
        elif enabled and may_write(node):
            if any(_requires_grad(operand) for operand in (node, *node.all_input_nodes)):
                return True
    return False


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
