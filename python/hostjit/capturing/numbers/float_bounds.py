# SPDX-License-Identifier: Apache-2.0
"""Which values of open floats, and of open ints among tensors, a program is valid for."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_leaves
from torch.utils._sympy.value_ranges import ValueRanges

from hostjit.capturing.control_flow.node_operators import with_regions
from hostjit.capturing.dynamic_dims import refusal

__all__ = ["assume_defined", "bounds_of_types", "float_bounds"]

_GREATEST = torch.finfo(torch.float64).max
# From this on, math.cosh raises OverflowError.
_MOST_OF_COSH = 710.0


def assume_defined(graph: Graph) -> None:
    """Assume that Python computes the floats of a graph without an exception, as in this call.

    Raises CaptureError where it does not in this call.
    """
    for node in with_regions(graph):
        if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.SymFloat):
            continue
        values = [o.meta["val"] if isinstance(o, Node) else o for o in node.args]
        if not all(_is_defined(node.target, values)):
            raise refusal(f"{node.target} of a number raises, or is complex")


def _is_defined(operation: Any, values: list[Any]) -> Iterator[bool]:
    """The conditions for an operation of real numbers to have a real result."""
    if operation in (operator.truediv, operator.floordiv, operator.mod):
        yield bool(values[1] != 0)
    elif operation is operator.pow:
        yield from _power_is_defined(*values)
    elif operation in _DOMAINS:
        yield bool(_DOMAINS[operation](values[0]))


def _power_is_defined(base: Any, exponent: Any) -> Iterator[bool]:
    if isinstance(exponent, int | float) and exponent == int(exponent):
        if exponent < 0:
            yield bool(base != 0)
        elif exponent > 1:
            yield bool(abs(base) <= _GREATEST ** (1 / exponent))
            return
    else:
        yield bool(base > 0) or bool(base >= 0 and exponent > 0)
    yield bool(abs(base**exponent) <= _GREATEST)


_DOMAINS: dict[Callable[..., Any], Callable[[Any], Any]] = {
    torch._sym_sqrt: lambda x: x >= 0,  # type: ignore[attr-defined]
    torch._sym_log2: lambda x: x > 0,  # type: ignore[attr-defined]
    torch._sym_asin: lambda x: abs(x) <= 1,  # type: ignore[attr-defined]
    torch._sym_acos: lambda x: abs(x) <= 1,  # type: ignore[attr-defined]
    torch._sym_cosh: lambda x: abs(x) <= _MOST_OF_COSH,  # type: ignore[attr-defined]
    torch._sym_sinh: lambda x: abs(x) <= _MOST_OF_COSH,  # type: ignore[attr-defined]
}


def float_bounds(environment: ShapeEnv, symbol: Any, now: float, graph: Graph) -> ValueRanges[Any]:
    """Return the range of an open float that follows from what was assumed about it.

    It is noted in the environment, which then finds assumptions implied. What the value must differ
    from is a bound, too: on the side where it is.

    Args:
        environment: in which the program was traced.
        symbol: of the float.
        now: its value in the call that was traced.
        graph: in whose types the float has to fit, because eager raises for others.
    """
    known = environment.replace(symbol)
    if known.is_number:  # some operator had to know it
        return ValueRanges(known, known)
    held = bounds_of_types(graph, float, symbol)
    least, most = held.lower, held.upper
    for guard in environment.guards:
        assumed = environment.replace(guard.expr)
        if assumed.free_symbols != {symbol} or not isinstance(assumed, sympy.core.relational.Rel):
            continue
        for low, high in _bounds_in(assumed, symbol, now):
            least, most = max(least, low), min(most, high)
    bounds: ValueRanges[Any] = ValueRanges(sympy.Float(least), sympy.Float(most))
    environment.var_to_range[symbol] = bounds
    return bounds


def _bounds_in(assumed: Any, symbol: Any, now: float) -> Iterator[tuple[float, float]]:
    left, right, kind = assumed.lhs, assumed.rhs, type(assumed)
    if left.is_number:
        left, right, kind = right, left, assumed.reversed.func
    if not right.is_number:
        return
    limit = float(right)
    if left == symbol:
        yield _range(kind, limit, now)
    elif left == sympy.Abs(symbol) and kind in (sympy.Le, sympy.Lt):
        inside = limit if kind is sympy.Le else math.nextafter(limit, -math.inf)
        yield -inside, inside


def _range(kind: type, limit: float, now: float) -> tuple[float, float]:
    above, below = math.nextafter(limit, math.inf), math.nextafter(limit, -math.inf)
    if kind is sympy.Ne:
        kind = sympy.Gt if now > limit else sympy.Lt
    ranges = {
        sympy.Gt: (above, math.inf),
        sympy.Ge: (limit, math.inf),
        sympy.Lt: (-math.inf, below),
        sympy.Le: (-math.inf, limit),
        sympy.Eq: (limit, limit),
    }
    return ranges[kind]


def bounds_of_types(graph: Graph, kind: type[int | float], symbol: Any) -> ValueRanges[Any]:
    """Return the range of the numbers that the types which operators compute in all hold.

    Eager raises for others. Of ints, half precision is the one that is narrower than what an open
    int may be, or that has a check of its own.

    Args:
        graph: functional, and lowered.
        kind: of the number.
        symbol: of an int; every float counts.
    """
    least, most = -_GREATEST, _GREATEST
    for node in with_regions(graph):
        operands = [o.meta.get("val") for o in node.all_input_nodes]
        if kind is float and not any(isinstance(x, torch.SymFloat) for x in operands):
            continue
        if kind is int and not any(_depends(x, symbol) for x in _scalars(node)):
            continue
        result: Any = node.meta.get("val")
        for tensor in tree_leaves([*operands, result]):
            if not isinstance(tensor, torch.Tensor) or tensor.dtype.is_complex:
                continue
            if tensor.dtype.is_floating_point:
                greatest = torch.finfo(tensor.dtype).max
                least, most = max(least, -greatest), min(most, greatest)
            elif kind is float and tensor is result and result.dtype is not torch.bool:
                limits = torch.iinfo(result.dtype)
                # As a float the greatest of 64 bits is one more than that.
                greatest = min(float(limits.max), math.nextafter(2.0**63, 0))
                least, most = max(least, float(limits.min)), min(most, greatest)
    return ValueRanges(sympy.Float(least), sympy.Float(most))


def _scalars(node: Node) -> Iterator[Any]:
    """The operands of an operator that are numbers, and neither sizes nor places."""
    schema = getattr(node.target, "_schema", None)
    for index, argument in enumerate(schema.arguments if schema is not None else ()):
        if "number" in str(argument.type):
            value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            yield value.meta.get("val") if isinstance(value, Node) else value


def _depends(value: Any, symbol: Any) -> bool:
    return isinstance(value, torch.SymInt) and symbol in value.node.expr.free_symbols
