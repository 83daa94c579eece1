# SPDX-License-Identifier: Apache-2.0
"""Gradients of operators whose formulas of PyTorch read a number as it is now.

They are those of eager, with a number that is only known at the call.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from hostjit.capturing.numbers.open_indices import get_item, is_open_index, set_item

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


class _Norm(torch.autograd.Function):
    """A vector norm of an order that has no formula of its own."""

    @staticmethod
    def forward(x: Tensor, order: float, dim: Any, keepdim: bool) -> Tensor:
        result: Tensor = torch.linalg.vector_norm(x, order, dim, keepdim)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.order, dim, keepdim = inputs
        dims = [] if dim is None or keepdim else [dim] if isinstance(dim, int) else dim
        ctx.dims = sorted(number % x.dim() for number in dims)
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, norm = ctx.saved_tensors
        for dim in ctx.dims:
            gradient, norm = gradient.unsqueeze(dim), norm.unsqueeze(dim)
        scale = (gradient / torch.pow(norm, ctx.order - 1.0)).masked_fill(norm == 0, 0.0)
        slope = (x.sgn() * torch.pow(x.abs(), ctx.order - 1.0)).masked_fill(x == 0, 0.0)
        return slope * scale, None, None, None


def power(x: Tensor, exponent: float) -> Any:
    """`x ** exponent`."""
    return _Power.apply(x, exponent)  # type: ignore[no-untyped-call]


def power_of_number(base: float, exponent: Tensor) -> Any:
    """`base ** exponent` for a positive base."""
    return _PowerOfNumber.apply(base, exponent)  # type: ignore[no-untyped-call]


def interpolation(start: Tensor, end: Tensor, weight: float) -> Any:
    """`torch.lerp` of two tensors of one shape."""
    return _Interpolation.apply(start, end, weight)  # type: ignore[no-untyped-call]


def norm(x: Tensor, order: float, dim: Any, keepdim: bool) -> Any:
    """`torch.linalg.vector_norm` of a positive order that is not 1 or 2."""
    return _Norm.apply(x, order, dim, keepdim)  # type: ignore[no-untyped-call]


def keep_numbers_open(module: GraphModule) -> None:
    """Put these in the place of calls of Dynamo's graph that take an open float.

    And functions that keep open ints open in the place of indexing by such.
    """
    changed = False
    for node in module.graph.nodes:
        if _is_norm(node):
            node.op, node.target, changed = "call_function", norm, True
            continue
        if node.target in _INDEXING and is_open_index(*map(_values, node.args[:2])):
            node.target, changed = _INDEXING[node.target], True
            continue
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


def _is_norm(node: Node) -> bool:
    """Whether a node is a norm of such an order; then its arguments are put in their places."""
    if node.op not in ("call_function", "call_method") or node.target not in _NORMS:
        return False
    named = {"p" if name == "ord" else name: value for name, value in node.kwargs.items()}
    try:
        arguments = _NORM.bind(*node.args, **named)
    except TypeError:  # a dtype, for one
        return False
    arguments.apply_defaults()
    x, order = (_value(arguments.arguments[name]) for name in ("x", "p"))
    if not isinstance(order, torch.SymFloat) or not isinstance(x, Tensor):
        return False
    if x.dtype not in (torch.float32, torch.float64):
        return False
    if not order > 0.0 or order == 1.0 or order == 2.0:
        return False
    node.args, node.kwargs = arguments.args, {}
    return True


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


def _values(argument: Any) -> Any:
    return torch.fx.node.map_arg(argument, _value)


_INDEXING = {operator.getitem: get_item, operator.setitem: set_item}
_INTERPOLATIONS = (torch.lerp, "lerp")
_OPERATORS = (*_INTERPOLATIONS, operator.pow, torch.pow, "pow", "__pow__")

_NORMS = (torch.norm, torch.linalg.vector_norm, "norm")
_NORM = inspect.signature(lambda x, p, dim=None, keepdim=False: None)
