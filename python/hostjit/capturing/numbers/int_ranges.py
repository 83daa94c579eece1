# SPDX-License-Identifier: Apache-2.0
"""Between what bounds ints are that loops carry, however often they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from hostjit.capturing.dynamic_dims import is_size_symbol
from hostjit.capturing.numbers.open_numbers import bound_int

__all__ = ["IntRanges", "TooLargeError"]

# No loop runs more often than this, and no size is greater.
_MOST_STEPS = 1 << 30
# What a loop carries is within these, so that a sum of two fits into 64 bits.
_CARRIED = ValueRanges(-(1 << 62), 1 << 62)
_INT64 = ValueRanges(-(1 << 63), (1 << 63) - 1)


class TooLargeError(Exception):
    """An int may need more than 64 bits, which Python's have."""


class IntRanges:
    """Knows the ranges of the symbols of carried ints, once it is told of the loop."""

    def __init__(self) -> None:
        self._ranges: dict[Any, ValueRanges[Any]] = {}

    def check(self, value: Any) -> None:
        """Raise TooLargeError where an int may not fit into 64 bits."""
        if isinstance(value, torch.SymInt) and not self._bounds(value).issubset(_INT64):
            raise TooLargeError

    def note_loop(
        self, starts: Sequence[Any], made: Sequence[Any], named: Sequence[Sequence[Any]]
    ) -> None:
        """Find the ranges of the ints that a loop carries.

        Args:
            starts: what it starts with.
            made: what the body makes of them.
            named: by which symbols the body knows them, by which the condition does, and by which
                they are results.

        Raises TooLargeError where one may grow beyond 64 bits.
        """
        if not all(name.node.expr.is_Symbol for names in named for name in names):
            raise TooLargeError  # something else is known of it
        left = list(range(len(starts)))
        while left:
            found = {n: self._carried(starts[n], made[n], named[0][n].node.expr) for n in left}
            known = {n: bounds for n, bounds in found.items() if bounds.issubset(_CARRIED)}
            if not known:
                raise TooLargeError
            for n, bounds in known.items():
                self._ranges.update((names[n].node.expr, bounds) for names in named)
            left = [n for n in left if n not in known]

    def _carried(self, start: Any, made: Any, symbol: Any) -> ValueRanges[Any]:
        """The range of one int; that of any int while it depends on others of unknown range."""
        begin = self._bounds(start)
        if not isinstance(made, torch.SymInt):
            return begin | ValueRanges(made, made)
        step = made.node.expr - symbol
        if symbol not in step.free_symbols:
            bounds = self._bounds_of(step, made.node.shape_env)
            least, most = min(bounds.lower, 0), max(bounds.upper, 0)
            steps = ValueRanges(least * _MOST_STEPS, most * _MOST_STEPS)
            return ValueRanges(begin.lower + steps.lower, begin.upper + steps.upper)
        # It stays within the largest range if a step does not leave that.
        self._ranges[symbol] = _CARRIED
        then = self._bounds(made)
        del self._ranges[symbol]
        return _CARRIED if (begin | then).issubset(_CARRIED) else ValueRanges.unknown_int()

    def _bounds(self, value: Any) -> ValueRanges[Any]:
        if not isinstance(value, torch.SymInt):
            return ValueRanges(value, value)
        return self._bounds_of(value.node.expr, value.node.shape_env)

    def _bounds_of(self, expression: Any, environment: ShapeEnv) -> ValueRanges[Any]:
        """Bounds by those of carried ints, of open ints and of sizes."""
        ranges = {}
        for symbol in expression.free_symbols:
            if symbol in self._ranges:
                ranges[symbol] = self._ranges[symbol]
                continue
            found = environment.var_to_range.get(symbol, ValueRanges.unknown_int())
            if is_size_symbol(symbol, environment):
                found = found & ValueRanges(0, _MOST_STEPS)
            elif symbol in environment.var_to_sources:
                value: Any = environment.create_symintnode(symbol, hint=None)
                bound_int(environment, symbol, value.node.hint)
                found = environment.var_to_range[symbol]
            ranges[symbol] = found
        return bound_sympy(expression, ranges)
