# SPDX-License-Identifier: Apache-2.0
"""Floats that a call brings, and what Python makes of them before an operator takes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Node

__all__ = ["HostNumber", "host_number"]


@dataclasses.dataclass(frozen=True)
class HostNumber:
    """A float that is only known at the call.

    As a tree of operations, since a symbolic expression would compute in another order: for floats
    `(a + b) - a` is not `b`.

    Attributes:
        name: of the input that brings it; "" for what is made of others.
        operation: the function that Python calls, such as `operator.mul`; None for an input.
        operands: of the operation: such numbers, sizes and constants.
    """

    name: str = ""
    operation: Callable[..., Any] | None = None
    operands: tuple[HostNumber | torch.SymInt | float, ...] = ()

    def __repr__(self) -> str:
        if self.operation is None:
            return self.name
        return f"{self.operation.__name__}({', '.join(map(str, self.operands))})"


def host_number(node: Node, values: Mapping[Node, Any]) -> HostNumber | float:
    """Return the float of a node, as far as it is known.

    Args:
        node: a placeholder, or a call of numbers.
        values: what the nodes before it are.
    """
    number = node.meta["val"]
    if number.node.expr.is_number:
        return float(number.node.expr)
    if node.op == "placeholder":
        return HostNumber(str(number))
    assert callable(node.target)
    operands: tuple[Any, ...] = tuple(values[o] if isinstance(o, Node) else o for o in node.args)
    return HostNumber(operation=node.target, operands=operands)
