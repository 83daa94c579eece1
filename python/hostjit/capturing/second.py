# SPDX-License-Identifier: Apache-2.0
"""Gradients that can be differentiated again: the program's operators, run by PyTorch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
import torch._dynamo

from hostjit.capturing.contexts import eager_graph

__all__ = ["depending_results", "second_derivatives"]

aten = torch.ops.aten

Tensors = Sequence[torch.Tensor | None]


def depending_results(
    graph: torch.fx.Graph, written: Collection[int], num_results: int
) -> frozenset[int]:
    """Return the results that depend on what the inputs were that the graph writes.

    Those of a batch norm do not depend on the statistics that it updates.

    Args:
        graph: the functional graph of a call.
        written: these inputs.
        num_results: how many of the graph's results are the call's; the rest is only kept.
    """
    placeholders = graph.find_nodes(op="placeholder")
    depending = {placeholders[index] for index in written}
    for node in graph.nodes:
        if not depending.isdisjoint(_operands(node)):
            depending.add(node)
    results: Any = graph.output_node().args[0]
    return frozenset(n for n, node in enumerate(results[:num_results]) if node in depending)


def _operands(node: torch.fx.Node) -> Sequence[torch.fx.Node]:
    """Return what a value is made of: of batch statistics, not of those that are updated."""
    norm: Any = node.args[0] if node.target is operator.getitem else None
    if norm is None or norm.target is not aten._native_batch_norm_legit_functional.default:
        return node.all_input_nodes
    x, weight, bias, _, _, is_training = norm.args[:6]
    if is_training is not True or node.args[1] not in (0, 1, 2):
        return node.all_input_nodes
    return [operand for operand in (x, weight, bias) if isinstance(operand, torch.fx.Node)]


def second_derivatives(
    module: torch.fx.GraphModule, tangent_results: Sequence[int], written: Collection[int] = ()
) -> Callable[[Sequence[torch.Tensor], Tensors], Tensors]:
    """Return what computes the gradients of a call's inputs, with a graph in grad mode.

    The caller sees to it that the graph may be run a second time: it draws no random numbers, and
    no result depends on what the inputs were that it writes.

    Args:
        module: Dynamo's graph of the call; autocast is to be as it was in the call.
        tangent_results: the results of `module` that have a gradient, in the order in which their
            gradients are given.
        written: the inputs that it writes; what is run again writes copies.
    """
    count = sum(node.op == "placeholder" for node in module.graph.nodes)
    autocast: dict[str, Any] = {
        "enabled": torch.is_autocast_enabled("cpu"),
        "dtype": torch.get_autocast_dtype("cpu"),
    }

    run = eager_graph(module)

    def gradients(inputs: Sequence[torch.Tensor], tangents: Tensors) -> Tensors:
        inputs = [x.clone() if n in written else x for n, x in enumerate(inputs)]
        with torch.enable_grad(), torch.autocast("cpu", **autocast):
            results = run(*inputs[:count])
        pairs = [
            (results[index], tangent)
            for index, tangent in zip(tangent_results, tangents, strict=True)
            if tangent is not None
        ]
        tensors = [n for n, value in enumerate(inputs[:count]) if isinstance(value, torch.Tensor)]
        wanted = [index for index in tensors if inputs[index].requires_grad]
        found = torch.autograd.grad(
            [result for result, _ in pairs],
            [inputs[index] for index in wanted],
            [tangent for _, tangent in pairs],
            create_graph=torch.is_grad_enabled(),
            allow_unused=True,
        )
        by_input = dict(zip(wanted, found, strict=True))
        return [by_input.get(index) for index in range(len(inputs))]

    unseen: Callable[[Sequence[torch.Tensor], Tensors], Tensors] = torch._dynamo.disable(gradients)
    return unseen
