# SPDX-License-Identifier: Apache-2.0
"""PyTorch's sizes, which may be symbolic expressions, as the sizes of kernels and Host IR.

This is the only place where lowering reads the sizes of tensors. A `Size` has no order and no
guards: what is decided by one holds for all values of its symbols.
"""

from __future__ import annotations

import contextlib
import functools
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.fx import Graph
from torch.utils._sympy import functions
from torch.utils._sympy.numbers import IntInfinity, NegativeIntInfinity
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from hostjit.capturing.dynamic_dims import is_size_symbol, is_symbolic, no_more_guards, refusal
from hostjit.capturing.open_sizes import known
from hostjit.kernels.sizes import Size, Symbol, as_size, at_most, defined, quotient

__all__ = [
    "check_range",
    "element_count",
    "is_contiguous",
    "offset_of",
    "shape_of",
    "size_of",
    "size_of_expression",
    "strides_of",
    "symbolic_views",
]


def size_of(number: int | torch.SymInt) -> Size:
    """A number of PyTorch as a size; raises CaptureError for one that Host IR can't write."""
    if isinstance(number, int):
        return number
    node = number.node
    # A symbol that is one has been replaced; an expression has not, but tensors are broadcast.
    if not node.expr.is_Symbol and known(number == 1):
        return 1
    return size_of_expression(node.expr, node.shape_env)


def shape_of(tensor: torch.Tensor) -> tuple[Size, ...]:
    """The sizes of a tensor."""
    return tuple(map(size_of, tensor.shape))


def strides_of(tensor: torch.Tensor) -> tuple[Size, ...]:
    """The strides of a tensor, in elements."""
    return tuple(map(size_of, tensor.stride()))


def offset_of(tensor: torch.Tensor) -> Size:
    """Where a tensor starts in its storage."""
    return size_of(tensor.storage_offset())


def element_count(tensor: torch.Tensor) -> Size:
    """The number of elements of a tensor."""
    return math.prod(shape_of(tensor))


def is_contiguous(shape: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Whether strides are those of row-major order, whatever the symbols are."""
    expected: Size = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if stride != expected:
            return False
        expected = expected * size
    return True


def check_range(number: torch.SymInt) -> None:
    """Raise CaptureError for a number that open numbers may take out of 64 bits.

    One that consists of sizes alone is taken to fit, and so is an offset, which is one of memory.
    """
    environment = number.node.shape_env
    ranges = dict(environment.var_to_range)
    sizes = {symbol for symbol in ranges if is_size_symbol(symbol, environment)}
    for symbol in sizes:
        ranges[symbol] = ranges[symbol] & _SIZES
    for part in sympy.preorder_traversal(number.node.expr):
        if part.is_integer and not part.free_symbols <= sizes:
            bounds = bound_sympy(part, ranges)
            if bounds.lower < _INT64.lower or bounds.upper > _INT64.upper:
                raise refusal(f"{part} may be no int64")


@contextlib.contextmanager
def _without_guards(mode: Any) -> Any:
    with no_more_guards(mode.shape_env), enable_python_dispatcher(), mode:
        yield


def symbolic_views(graph: Graph) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """What views of a graph are computed under: with symbols, fake tensors that make no guards."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and is_symbolic(value):
            return functools.partial(_without_guards, value.fake_mode)  # type: ignore[attr-defined]
    return contextlib.nullcontext


_INT64 = ValueRanges(-(1 << 63), (1 << 63) - 1)
# No tensor has so many elements along a dim, though nobody says it.
_SIZES = ValueRanges(0, (1 << 31) - 1)
# The least value of what may be any number.
_UNKNOWN = -(1 << 62)
# Functions of two sizes as operations of `index_binary`.
_OPERATIONS: dict[Any, str] = {
    functions.FloorDiv: "floordiv",
    functions.CleanDiv: "floordiv",
    functions.CeilDiv: "ceildiv",
    functions.Mod: "mod",
    functions.PythonMod: "mod",
}
# What rounds a float, by what divides ints in the same direction; sizes are not negative.
_OF_FLOATS: dict[Any, Any] = {
    functions.TruncToInt: functions.FloorDiv,
    functions.FloorToInt: functions.FloorDiv,
    functions.CeilToInt: functions.CeilDiv,
}
# A size below 2**31 times a fraction of so few bits is a double, or as far from any int as one.
_EXACT_FACTOR = 1 << 21
_FOLDS: dict[Any, str] = {
    functions.Min: "min",
    functions.Max: "max",
    sympy.Min: "min",
    sympy.Max: "max",
}


# The sizes of expressions, for as long as an environment learns nothing more: bounds and remainders
# of large ones take sympy long, and kernels, groups and views ask for the same few.
_KNOWN: weakref.WeakKeyDictionary[Any, tuple[int, dict[Any, Size]]] = weakref.WeakKeyDictionary()


def size_of_expression(expression: Any, environment: Any) -> Size:
    """An expression of PyTorch as a size; raises CaptureError for one that Host IR can't write."""
    if expression.is_Integer:
        return int(expression)
    version, sizes = _KNOWN.get(environment, (-1, {}))
    if version != environment._version_counter:
        sizes = {}
        _KNOWN[environment] = environment._version_counter, sizes
    size = sizes.get(expression)
    if size is None:
        size = sizes[expression] = _written(expression, environment)
    return size


def _written(expression: Any, environment: Any) -> Size:
    if expression.is_Symbol:
        return as_size(Symbol(str(expression), _least(expression, environment)))
    kind = type(expression)
    if kind in _OF_FLOATS:
        rounded = _rounded(expression, environment)
        if rounded is None:
            raise _no_form(expression)
        return size_of_expression(rounded, environment)
    parts = [size_of_expression(part, environment) for part in _factors(expression)]
    if expression.is_Add:
        return sum(parts)
    if expression.is_Mul or expression.is_Pow:
        return math.prod(parts)
    if kind in _OPERATIONS:
        left, right = parts
        if _OPERATIONS[kind] == "floordiv":
            return _floordiv(expression, left, right, environment)
        return defined(_OPERATIONS[kind], left, right, _least(expression, environment))
    if kind is functions.ModularIndexing:
        whole, divisor, modulus = parts
        return defined("mod", defined("floordiv", whole, divisor), modulus)
    if kind in _FOLDS:
        least = _least(expression, environment)
        return functools.reduce(lambda a, b: _fold(_FOLDS[kind], a, b, least), parts)
    if kind is sympy.Abs:
        (part,) = parts
        return _fold("max", part, -1 * part, _least(expression, environment))
    raise _no_form(expression)


def _no_form(expression: Any) -> Exception:
    return refusal(f"a size is {expression}, which has no form in Host IR")


def _floordiv(expression: Any, left: Size, right: Size, environment: Any) -> Size:
    whole, divisor = expression.args
    exact = quotient(left, right)
    if exact is not None and at_most(1, right):
        return exact
    # What a view with -1 leaves of a dim that it splits: n // (n // k) where k divides n.
    if isinstance(divisor, functions.FloorDiv) and divisor.args[0] == whole:
        if _divides(divisor.args[1], whole, environment) and at_most(1, left):
            return size_of_expression(divisor.args[1], environment)
    some = at_most(1, left) and _divides(divisor, whole, environment)
    return defined("floordiv", left, right, max(_least(expression, environment), int(some)))


def _rounded(expression: Any, environment: Any) -> Any:
    """The quotient of ints that is equal to a float that is rounded; None where none is.

    The float is a size times a fraction or over an int, of so few bits that no double on the way
    is on the other side of an int than the exact number.
    """
    found = _fraction_of_size(expression.args[0])
    if found is None:
        return None
    size, fraction = found
    most = _EXACT_FACTOR
    if fraction <= 0 or fraction.p * fraction.q > most or environment.bound_sympy(size).lower < 0:
        return None
    divide = _OF_FLOATS[type(expression)]
    return divide(size * fraction.p, fraction.q)


def _fraction_of_size(number: Any) -> tuple[Any, Any] | None:
    """A float as an int and a rational that it is the product of, as exact as a double is."""
    if isinstance(number, functions.IntTrueDiv) and number.args[1].is_Integer:
        return number.args[0], sympy.Integer(1) / number.args[1]
    if isinstance(number, functions.FloatTrueDiv):
        size, divisor = number.args
        if isinstance(size, functions.ToFloat) and divisor.is_Float and divisor:
            return size.args[0], 1 / sympy.Rational(float(divisor))
        return None
    sizes, fraction = [], sympy.Integer(1)
    for part in sympy.Mul.make_args(number):
        if part.is_Float:
            fraction *= sympy.Rational(float(part))
        else:
            sizes.append(part)
    if len(sizes) != 1 or not isinstance(sizes[0], functions.ToFloat):
        return None
    return sizes[0].args[0], fraction


def _divides(divisor: Any, whole: Any, environment: Any) -> bool:
    """Whether a division is known to leave nothing, by what the capture has assumed."""
    for rest in environment.divisible:
        dividend, known = rest.args
        # Of a product, where the rest of it is in the divisor too.
        if known * whole == dividend * divisor:
            return True
    return bool(functions.Mod(whole, divisor) == 0)


def _fold(operation: str, left: Size, right: Size, least: int) -> Size:
    """The smaller or the larger of two sizes: one of them where that is known."""
    for low, high in ((left, right), (right, left)):
        if at_most(low, high):
            return high if operation == "max" else low
    return defined(operation, left, right, least)


def _factors(expression: Any) -> list[Any]:
    if not expression.is_Pow:
        return list(expression.args)
    base, exponent = expression.args
    if not exponent.is_Integer or exponent < 0:
        raise refusal(f"a size is {expression}, which is no polynomial")
    return [base] * int(exponent)


def _least(expression: Any, environment: Any) -> int:
    lower = environment.bound_sympy(expression).lower
    return _UNKNOWN if isinstance(lower, (IntInfinity, NegativeIntInfinity)) else int(lower)
