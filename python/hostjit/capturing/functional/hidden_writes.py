# SPDX-License-Identifier: Apache-2.0
"""Writes that eager hides from autograd: the version of the tensor stays.

Those are of the statistics of a batch norm, and what is written through `.data`. A backward pass
that saved such a tensor before does not raise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor

from hostjit.capturing.functional.graph_writes import written_nodes
from hostjit.capturing.overlap import may_write
from hostjit.capturing.python_kernels import python_kernels_changed
from hostjit.capturing.traced_graph import storage_of

__all__ = ["HIDDEN", "batch_norms_hide_writes", "hide_writes", "is_hidden", "mark_hidden"]

# The entry of `meta` of a node that writes so.
HIDDEN = "hidden_from_autograd"

_batch_norm = torch.ops.aten.native_batch_norm.default
_get_data = torch._C._autograd._get_data_attr  # type: ignore[attr-defined]


def mark_hidden(graph: torch.fx.Graph, inputs: Iterable[int] | None = None) -> None:
    """Say of writes of inputs, of all by default, that they are hidden."""
    places = graph.find_nodes(op="placeholder")
    chosen = set(places if inputs is None else (places[index] for index in inputs))
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        if node.args[0] in chosen:
            node.meta[HIDDEN] = True


def is_hidden(tensor: FunctionalTensor) -> bool:
    """Tell whether all writes of a tensor so far were hidden."""
    return torch._functionalize_are_all_mutations_hidden_from_autograd(tensor.elem)


def hide_writes(module: torch.fx.GraphModule, *, with_gradients: bool = False) -> None:
    """Have a graph hide from autograd what is marked, and what it writes through `.data`.

    `with_gradients`: not of a tensor that needs gradients, whose new value they would have to see.
    """
    graph = module.graph
    data: set[torch.fx.Node] = set()
    found: list[tuple[torch.fx.Node, list[torch.fx.Node]]] = []
    for node in graph.nodes:
        if node.target is _get_data:
            if not (with_gradients and _value(node.args[0]).requires_grad):
                data.add(node)
        elif HIDDEN in node.meta:
            found.append((node, written_nodes(node)))
        elif operands := data.intersection(node.all_input_nodes):
            if may_write(node) and (written := data.intersection(written_nodes(node))):
                found.append((node, list(written)))
            memory = {storage_of(_value(operand)) for operand in operands}
            if storage_of(_value(node)) in memory:
                data.add(node)
    for node, targets in found:
        if node.next.target is _hide:  # in an earlier trace
            continue
        with graph.inserting_before(node):
            counts = graph.call_function(_writes_of, (targets,))
        with graph.inserting_after(node):
            graph.call_function(_hide, (targets, counts))
    if found:
        module.recompile()


def _value(node: Any) -> Any:
    return node.meta.get("example_value", node.meta.get("val"))


def _writes_of(tensors: Iterable[Any]) -> list[int]:
    """Count the writes of functional tensors so far."""
    return [torch._functionalize_mutation_counter(element) for element in _elements(tensors)]


def _hide(tensors: Iterable[Any], before: Iterable[int]) -> None:
    """Hide the writes after those that were counted."""
    for element, count in zip(_elements(tensors), before, strict=True):
        for _ in range(torch._functionalize_mutation_counter(element) - count):
            torch._functionalize_mark_mutation_hidden_from_autograd(element)


def _elements(tensors: Iterable[Any]) -> list[torch.Tensor]:
    return [tensor.elem for tensor in tensors if isinstance(tensor, FunctionalTensor)]


def batch_norms_hide_writes() -> contextlib.AbstractContextManager[None]:
    """Trace batch norms whose writes of statistics are hidden."""
    keys = torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd
    known = _batch_norm.py_kernels
    return python_kernels_changed({_batch_norm: {key: _hiding(known[key]) for key in keys}})


def _hiding(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        before = _writes_of(given)
        results = kernel(*args, **kwargs)
        _hide(given, before)
        return results

    return call
