# SPDX-License-Identifier: Apache-2.0
"""Refuses writes of values whose type eager would not cast to that of what is written.

PyTorch's traces let some of them pass: `counts.mul_(0.5)` of ints would be rounded.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch

from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.traced_graph import source_location

__all__ = ["check_written_types"]

_OF_TWO = ("add_", "sub_", "subtract_", "mul_", "multiply_", "__iadd__", "__isub__", "__imul__")
_OF_THREE = ("addcmul_", "addcdiv_")
# What these compute of ints is float.
_FLOAT = ("ldexp_", "logit_")
_COUNTS: dict[Any, int] = {
    **dict.fromkeys((*_OF_TWO, operator.iadd, operator.isub, operator.imul, "ldexp_"), 2),
    **dict.fromkeys(_OF_THREE, 3),
    "logit_": 1,
}


def check_written_types(graph: torch.fx.Graph) -> None:
    """Raise CaptureError where eager raises because of the types of an operator's operands.

    `graph`: as Dynamo makes it, with examples of values.
    """
    for node in graph.nodes:
        count = _COUNTS.get(node.target) if node.op in ("call_method", "call_function") else None
        if count is None:
            continue
        operands = [*map(_example, node.args[:count]), *map(_example, node.kwargs.values())]
        written = operands[0] if operands else None
        if not isinstance(written, torch.Tensor):
            continue
        found = functools.reduce(torch.promote_types, _types(operands))
        if node.target in _FLOAT and not (found.is_floating_point or found.is_complex):
            found = torch.get_default_dtype()
        if not torch.can_cast(found, written.dtype):
            raise CaptureError(
                CaptureFailure.USER_EXCEPTION,
                f"a result of {found} can't be cast to {written.dtype}, which is written",
                where=source_location(node),
            )


def _types(operands: Sequence[Any]) -> list[torch.dtype]:
    """The types that operands have beside the first of them, as in PyTorch's promotion."""
    first = operands[0]
    kinds = (torch.Tensor, bool, int, float, complex)
    return [torch.result_type(first, x) for x in operands if isinstance(x, kinds)]


def _example(value: Any) -> Any:
    if isinstance(value, torch.fx.Node):
        # Of numbers that the graph is given in place of Dynamo's inputs, the other one.
        value = value.meta.get("example_value", value.meta.get("val"))
    if isinstance(value, torch.SymFloat):
        return 1.0
    return 1 if isinstance(value, torch.SymInt) else value
