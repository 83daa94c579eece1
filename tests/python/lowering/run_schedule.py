# SPDX-License-Identifier: Apache-2.0
"""Runs schedules without the core: kernels by MCJIT, the other nodes eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from mcjit import CompiledKernel
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from hostjit.lowering.grouping import PointwiseGroup, ScheduleItem, schedule

__all__ = ["capture", "check", "names", "run"]


def capture(function: Callable[..., Any], *arguments: torch.Tensor) -> GraphModule:
    """A functional ATen graph with fake metadata and no dead nodes."""
    module = make_fx(torch.func.functionalize(function), tracing_mode="fake")(*arguments)
    module.graph.eliminate_dead_code()
    return module


def run(module: GraphModule, items: list[ScheduleItem], *arguments: torch.Tensor) -> Any:
    """Run a schedule of the module's graph on real tensors."""
    values: dict[Node, Any] = {}
    inputs = iter(arguments)
    output: Node | None = None
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(inputs)
        elif node.op == "get_attr":
            values[node] = getattr(module, str(node.target))
        elif node.op == "output":
            output = node
    for item in items:
        if isinstance(item, PointwiseGroup):
            buffers = [values[node] for node in item.inputs]
            for node in item.outputs:
                fake = node.meta["val"]
                values[node] = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype)
                buffers.append(values[node])
            CompiledKernel(item.kernel, optimise=False)(*buffers)
        else:
            assert callable(item.target)
            args = torch.fx.map_arg(item.args, values.__getitem__)
            kwargs = torch.fx.map_arg(item.kwargs, values.__getitem__)
            values[item] = item.target(*args, **kwargs)
    assert output is not None
    return torch.fx.map_arg(output.args[0], values.__getitem__)


def check(
    function: Callable[..., Any], *arguments: torch.Tensor, exact_strides: bool = True
) -> list[ScheduleItem]:
    """Compare a function's schedule with eager, and return it."""
    copies = [argument.clone() for argument in arguments]
    module = capture(function, *arguments)
    items = schedule(module.graph)
    expected = function(*copies)
    actual = run(module, items, *arguments)
    torch.testing.assert_close(
        actual, expected, equal_nan=True, check_stride=exact_strides, msg=lambda m: f"{m}\n{items}"
    )
    torch.testing.assert_close(arguments, tuple(copies), equal_nan=True)
    return items


def names(items: list[ScheduleItem]) -> list[Any]:
    """A schedule for assertions: a group is the list of its members' names."""
    return [
        [node.name for node in item.members] if isinstance(item, PointwiseGroup) else item.name
        for item in items
    ]
