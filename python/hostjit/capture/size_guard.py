# SPDX-License-Identifier: Apache-2.0
"""What a capture with open sizes assumed about them, as one function of the sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import sympy  # type: ignore[import-untyped]
from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP, ShapeEnv
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.printers import PythonPrinter

from hostjit.capture.dynamic_dims import refusal

__all__ = ["assumptions", "size_guard"]


def assumptions(environment: ShapeEnv) -> list[Any]:
    """Return what has been assumed about sizes so far, as symbolic truths."""
    assumed = [guard.expr for guard in environment.guards]
    # Sizes were simplified by these, whether a guard says so or not.
    return assumed + [sympy.Eq(rest, 0) for rest in environment.divisible]


def size_guard(
    environment: ShapeEnv,
    names: Sequence[str],
    dependent: Mapping[str, str] | None = None,
    assumed: Set[Any] = frozenset(),
) -> Callable[[tuple[int, ...]], bool]:
    """Return a function that tells whether a program is valid for sizes.

    Args:
        environment: in which the program was traced.
        names: the symbols whose sizes the function is given, in this order.
        dependent: those among them that are no symbols of the environment, as expressions of such.
        assumed: those of the assumptions that somebody else checks if this function cannot.

    Raises CaptureError when it depends on more than these sizes.
    """
    known = set(names)
    conditions = [f"{name} == {expression}" for name, expression in (dependent or {}).items()]
    for assumption in assumptions(environment):
        expression = environment.replace(assumption)
        if expression == True:  # noqa: E712  # a symbolic truth
            continue
        unknown = {str(symbol) for symbol in expression.free_symbols} - known
        if unknown and assumption in assumed:
            continue
        if unknown:
            raise refusal(f"it depends on {', '.join(sorted(unknown))}, which is no size of a dim")
        conditions.append(_text(expression))
    for symbol, bounds in environment.var_to_range.items():
        if str(symbol) in known:
            if bounds.lower != -int_oo:
                conditions.append(f"{symbol} >= {int(bounds.lower)}")
            if bounds.upper != int_oo:
                conditions.append(f"{symbol} <= {int(bounds.upper)}")
    source = (
        f"lambda sizes: (lambda {', '.join(names)}: {' and '.join(conditions) or True})(*sizes)"
    )
    check = eval(source, dict(SYMPY_INTERP))  # of PyTorch's own expressions
    return lambda sizes: bool(check(sizes))


def _text(expression: Any) -> str:
    return f"({PythonPrinter().doprint(expression)})"
