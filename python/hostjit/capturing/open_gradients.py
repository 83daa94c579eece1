# SPDX-License-Identifier: Apache-2.0
"""Gradients of operators whose formulas of PyTorch read a number as it is now.

They are those of eager, with a number that is only known at the call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

__all__ = ["keep_numbers_open"]


class _Power(torch.autograd.Function):
    """A tensor to the power of a number."""

    @staticmethod
    def forward(x: Tensor, exponent: float) -> Tensor:
        return torch.pow(x, exponent)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.exponent = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        if ctx.exponent == 0.0:
            return torch.zeros_like(gradient), None
        return gradient * (torch.pow(x, ctx.exponent - 1.0) * ctx.exponent), None


class _PowerOfNumber(torch.autograd.Function):
    """A positive number to the power of a tensor."""

    @staticmethod
    def forward(base: float, exponent: Tensor) -> Tensor:
        return torch.pow(base, exponent)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.base = inputs[0]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (result,) = ctx.saved_tensors
        base = torch.full((), ctx.base, dtype=result.dtype, device=result.device)
        return None, gradient * (result * base.log())


class _Interpolation(torch.autograd.Function):
    """A step from one tensor to another of its shape."""

    @staticmethod
    def forward(start: Tensor, end: Tensor, weight: float) -> Tensor:
        return torch.lerp(start, end, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.weight = inputs[2]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        needs_start, needs_end, _ = ctx.needs_input_grad
        return (
            gradient * (1.0 - ctx.weight) if needs_start else None,
            gradient * ctx.weight if needs_end else None,
            None,
        )


def power(x: Tensor, exponent: float) -> Any:
    """`x ** exponent`."""
    return _Power.apply(x, exponent)  # type: ignore[no-untyped-call]


def power_of_number(base: float, exponent: Tensor) -> Any:
    """`base ** exponent` for a positive base."""
    return _PowerOfNumber.apply(base, exponent)  # type: ignore[no-untyped-call]


def interpolation(start: Tensor, end: Tensor, weight: float) -> Any:
    """`torch.lerp` of two tensors of one shape."""
    return _Interpolation.apply(start, end, weight)  # type: ignore[no-untyped-call]


def keep_numbers_open(module: GraphModule) -> None:
    """Put these in the place of calls of Dynamo's graph that take an open float."""
    changed = False
    for node in module.graph.nodes:
        function = None if node.kwargs else _choose(node)
        if function is not None:
            node.op, node.target = "call_function", function
            changed = True
    if changed:
        module.recompile()


def _choose(node: Node) -> Callable[..., Any] | None:
    if node.op not in ("call_function", "call_method") or node.target not in _OPERATORS:
        return None
    kinds = tuple(map(_kind, node.args))
    values = [_value(argument) for argument in node.args]
    tensors = [value for value in values if isinstance(value, Tensor)]
    if any(x.dtype is not tensors[0].dtype or x.shape != tensors[0].shape for x in tensors):
        return None
    if node.target in _INTERPOLATIONS:
        return interpolation if kinds == (Tensor, Tensor, float) else None
    if kinds == (float, Tensor):
        return power_of_number if values[0] > 0.0 else None
    return power if kinds == (Tensor, float) else None


def _kind(argument: Any) -> type | None:
    value = _value(argument)
    if isinstance(value, torch.SymFloat):
        return float
    is_tensor = isinstance(value, Tensor) and value.dtype.is_floating_point
    return Tensor if is_tensor else None


def _value(argument: Any) -> Any:
    if not isinstance(argument, Node):
        return argument
    return argument.meta.get("example_value", argument.meta.get("val"))


_INTERPOLATIONS = (torch.lerp, "lerp")
_OPERATORS = (*_INTERPOLATIONS, operator.pow, torch.pow, "pow", "__pow__")
