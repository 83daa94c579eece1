# SPDX-License-Identifier: Apache-2.0
"""Gradients that can be differentiated again: the program's operators, run by PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._dynamo

from hostjit.capturing.contexts import eager_graph

__all__ = ["second_derivatives"]

Tensors = Sequence[torch.Tensor | None]


def second_derivatives(
    module: torch.fx.GraphModule, tangent_results: Sequence[int]
) -> Callable[[Sequence[torch.Tensor], Tensors], Tensors]:
    """Return what computes the gradients of a call's inputs, with a graph in grad mode.

    The caller sees to it that the graph may be run a second time: it draws no random numbers and
    changes no input.

    Args:
        module: Dynamo's graph of the call; autocast is to be as it was in the call.
        tangent_results: the results of `module` that have a gradient, in the order in which their
            gradients are given.
    """
    count = sum(node.op == "placeholder" for node in module.graph.nodes)
    autocast: dict[str, Any] = {
        "enabled": torch.is_autocast_enabled("cpu"),
        "dtype": torch.get_autocast_dtype("cpu"),
    }

    run = eager_graph(module)

    def gradients(inputs: Sequence[torch.Tensor], tangents: Tensors) -> Tensors:
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
