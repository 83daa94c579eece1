# SPDX-License-Identifier: Apache-2.0
"""What a program for any size assumes of sizes and numbers: an expression that can be kept."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Mapping, Sequence
from typing import Any

from hostjit import _C

__all__ = ["SizeCondition"]

_FUNCTIONS = ("abs", "bool", "float", "int", "max", "min", "round")
_NODES = (
    *(ast.Expression, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Compare, ast.IfExp, ast.Call),
    *(ast.boolop, ast.unaryop, ast.operator, ast.cmpop, ast.expr_context),
    *(ast.Name, ast.Attribute, ast.Constant),
)


class SizeCondition:
    """A condition on numbers, called with a tuple of them.

    Attributes:
        names: of the numbers, in their order.
        text: the condition as a Python expression of these.
    """

    def __init__(self, names: Sequence[str], text: str, scope: Mapping[str, Any]) -> None:
        """Compile a text that hostjit made; `scope` is what it may use besides."""
        self.names = tuple(names)
        self.text = text
        self._check = eval(f"lambda {', '.join(self.names)}: {text}", dict(scope))

    def __call__(self, values: tuple[Any, ...]) -> bool:
        """Tell whether it is so of these values."""
        return bool(self._check(*values))

    @classmethod
    def parse(cls, names: Sequence[str], text: str) -> SizeCondition:
        """Compile a text that anybody made.

        Raises hostjit.Error unless it is arithmetic and comparisons of the names and of numbers,
        with functions of `math` and a few others.
        """
        _check_arithmetic(names, text)
        scope = {name: getattr(builtins, name) for name in _FUNCTIONS}
        return cls(names, text, {"__builtins__": {}, "math": math, **scope})


def _check_arithmetic(names: Sequence[str], text: str) -> None:
    def fail(what: str) -> None:
        raise _C.Error(f"a condition on sizes is no arithmetic: {what}")

    if not all(isinstance(name, str) and name.isidentifier() for name in names):
        fail("a name is none")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        fail(repr(text[:80]))
    callees = set()
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            fail(type(node).__name__)
        elif isinstance(node, ast.Call):
            if node.keywords or not isinstance(node.func, (ast.Name, ast.Attribute)):
                fail("a call")
            callees.add(id(node.func))
        elif isinstance(node, ast.Attribute):
            of_math = isinstance(node.value, ast.Name) and node.value.id == "math"
            if not of_math or node.attr.startswith("_") or not hasattr(math, node.attr):
                fail(f"'.{node.attr}'")
            callees.add(id(node.value))
        elif isinstance(node, ast.Constant) and type(node.value) not in (bool, int, float):
            fail(repr(node.value))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name):
            continue
        if id(node) in callees:
            if node.id not in (*_FUNCTIONS, "math"):
                fail(f"'{node.id}'")
        elif node.id not in names:
            fail(f"'{node.id}'")
