# SPDX-License-Identifier: Apache-2.0
"""What a capture with open sizes and numbers assumed about them, as one function of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import sympy  # type: ignore[import-untyped]
from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP, ShapeEnv
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.printers import PythonPrinter

from hostjit.capturing.dynamic_dims import refusal
from hostjit.capturing.guards.size_condition import SizeCondition

__all__ = ["assumptions", "size_guard"]


def assumptions(environment: ShapeEnv) -> list[Any]:
    """Return what has been assumed about sizes so far, as symbolic truths."""
    assumed = [guard.expr for guard in environment.guards]
    # Sizes were simplified by these, whether a guard says so or not.
    return assumed + [sympy.Eq(rest, 0) for rest in environment.divisible]


def size_guard(
    environment: ShapeEnv,
    names: Sequence[str],
    numbers: Sequence[str] = (),
    dependent: Mapping[str, str] | None = None,
    assumed: Set[Any] = frozenset(),
) -> tuple[SizeCondition, list[int]]:
    """Return a function that tells whether a program is valid for sizes, and what it is given.

    Args:
        environment: in which the program was traced.
        names: the symbols whose values the function is given, in this order.
        numbers: open numbers that it may be given besides. They are known to be in their ranges.
        dependent: those of all these that are no symbols of the environment, as expressions of
            such.
        assumed: those of the assumptions that somebody else checks if this function cannot.

    Returns the function of the values of `names` and of some numbers, and the positions of these.
    Raises CaptureError when it depends on more.
    """
    known = {*names, *numbers}
    conditions: list[str] = []
    used = set(dependent or ())
    for name, text in (dependent or {}).items():
        conditions.append(f"{name} == {text}")
        used |= {str(symbol) for symbol in sympy.sympify(text).free_symbols}
    for assumption in assumptions(environment):
        expression = environment.replace(assumption)
        if expression == True or _is_implied(environment, expression):  # noqa: E712
            continue
        needed = {str(symbol) for symbol in expression.free_symbols}
        unknown = needed - known
        if unknown and assumption in assumed:
            continue
        if unknown:
            raise refusal(f"it depends on {', '.join(sorted(unknown))}, which is no size of a dim")
        used |= needed
        conditions.append(_text(expression))
    for symbol, bounds in environment.var_to_range.items():
        if str(symbol) in names:
            if bounds.lower != -int_oo:
                conditions.append(f"{symbol} >= {int(bounds.lower)}")
            if bounds.upper != int_oo:
                conditions.append(f"{symbol} <= {int(bounds.upper)}")
    given = [index for index, name in enumerate(numbers) if name in used - set(names)]
    parameters = [*names, *(numbers[index] for index in given)]
    text = " and ".join(conditions) or "True"
    # Of PyTorch's own expressions.
    return SizeCondition(parameters, text, SYMPY_INTERP), given


def _is_implied(environment: ShapeEnv, expression: Any) -> bool:
    """Whether the ranges of its symbols, which are checked anyway, make a condition true."""
    bounds = environment.bound_sympy(expression)
    return bool(bounds.is_singleton() and bounds.lower == True)  # noqa: E712


def _text(expression: Any) -> str:
    return f"({PythonPrinter().doprint(expression)})"
