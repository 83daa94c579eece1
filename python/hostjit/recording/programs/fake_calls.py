# SPDX-License-Identifier: Apache-2.0
"""Calls of operators that are added to functional graphs, with what they make as fake tensors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, Node
from torch.utils._pytree import tree_leaves, tree_map_only

from hostjit.recording.programs.carried import CannotCarryError

__all__ = ["FakeCalls", "decided", "is_like"]

aten = torch.ops.aten


class FakeCalls:
    """Adds calls of operators to graphs, with what they make as fake tensors."""

    def __init__(self, graph: Graph) -> None:
        """`graph`: has values of the mode. Raises CannotCarryError where it has none."""
        values = (node.meta.get("val") for node in graph.nodes)
        mode = next((v.fake_mode for v in values if isinstance(v, FakeTensor)), None)
        if mode is None:
            raise CannotCarryError
        self.mode: FakeTensorMode = mode

    def __call__(self, graph: Graph, target: Any, *args: Any, **kwargs: Any) -> Node:
        node = graph.call_function(target, args, kwargs)
        values: Any = torch.fx.node.map_arg(args, lambda operand: operand.meta["val"])
        with self.mode:
            node.meta["val"] = target(*values, **kwargs)
        return node

    def value_of(self, node: Node, value: Any) -> Any:
        """Return what a call makes, which was `value` in another mode.

        Raises CannotCarryError where it is of another form.
        """
        args, kwargs = torch.fx.node.map_arg(
            (node.args, node.kwargs), lambda operand: operand.meta["val"]
        )
        with self.mode:
            made = node.target(*args, **kwargs)  # type: ignore[operator]
        here, there = tree_leaves(made), tree_leaves(value)
        if len(here) != len(there) or not all(map(is_like, here, there)):
            raise CannotCarryError
        return made

    def like(self, value: Any) -> Any:
        """Return a value of another mode, or several, as one of this."""

        def made(tensor: torch.Tensor) -> torch.Tensor:
            with self.mode:
                return torch.empty_strided(
                    tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
                )

        return tree_map_only(torch.Tensor, made, value)


def decided(
    call: FakeCalls, graph: Graph, found: Sequence[Node], expected: Sequence[torch.Tensor]
) -> Node:
    """Whether the code decides by values as it did, as a bool without dims."""
    each = [_is_as(call, graph, node, value) for node, value in zip(found, expected, strict=True)]
    if not each:
        each.append(call(graph, aten.full.default, [], True, dtype=torch.bool))
    return functools.reduce(
        lambda left, right: call(graph, aten.logical_and.default, left, right), each
    )


def _is_as(call: FakeCalls, graph: Graph, found: Node, expected: torch.Tensor) -> Node:
    if expected.dim():
        found = call(graph, aten.reshape.default, found, [])
    value = expected.item()
    if value is True:
        return found
    if value is False:
        return call(graph, aten.logical_not.default, found)
    return call(graph, aten.eq.Scalar, found, value)


def is_like(value: Any, other: Any) -> bool:
    """Whether two values are of the same form, if they are fake tensors."""
    if not (isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor)):
        return type(value) is type(other)
    forms = [(x.dtype, x.device, x.shape, x.stride()) for x in (value, other)]
    return forms[0] == forms[1]
