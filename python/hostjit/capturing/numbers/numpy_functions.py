# SPDX-License-Identifier: Apache-2.0
"""Functions of numbers that NumPy computes: of open ones Python asks it at each call."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["NUMPY_FUNCTIONS", "function_of_numpy", "takes_all_of"]

_NAMES = (
    *("sqrt", "cbrt", "square", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "power"),
    *("sin", "cos", "tan", "arcsin", "arccos", "arctan", "arctan2", "hypot", "sinh", "cosh"),
    *("tanh", "arcsinh", "arccosh", "arctanh", "deg2rad", "rad2deg", "radians", "degrees"),
    *("floor", "ceil", "trunc", "absolute", "negative", "positive", "sign"),
    *("reciprocal", "add", "subtract", "multiply", "true_divide", "floor_divide", "remainder"),
    *("fmod", "minimum", "maximum", "clip", "copysign", "float64", "float32", "int64"),
    *("round", "around"),
)
# Of all numbers in a list, a tuple or a size.
_OF_ALL = ("prod", "sum")
# Other names that they have, in NumPy and in Python.
_ALIASES: dict[Any, str] = {
    "abs": "absolute",
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atan2": "arctan2",
    "atanh": "arctanh",
    "divide": "true_divide",
    "mod": "remainder",
    "pow": "power",
    operator.abs: "absolute",
    operator.add: "add",
    operator.floordiv: "floor_divide",
    operator.mod: "remainder",
    operator.mul: "multiply",
    operator.neg: "negative",
    operator.pos: "positive",
    operator.pow: "power",
    operator.sub: "subtract",
    operator.truediv: "true_divide",
}


def _call(name: str, *numbers: float) -> Any:
    import numpy

    return getattr(numpy, name)(*numbers).item()


def _call_of_all(name: str, *numbers: float) -> Any:
    import numpy

    return getattr(numpy, name)(numbers).item()


def _function(name: str, call: Callable[..., Any] = _call) -> Callable[..., Any]:
    function = functools.partial(call, name)
    function.__name__ = f"numpy.{name}"  # type: ignore[attr-defined]
    return function


NUMPY_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _function(name) for name in _NAMES},
    **{name: _function(name, _call_of_all) for name in _OF_ALL},
}
"""By NumPy's names; each returns the Python number that is equal to NumPy's."""


def takes_all_of(name: str) -> bool:
    """Whether such a function takes all numbers of a sequence, as one argument."""
    return name in _OF_ALL


def function_of_numpy(node: torch.fx.Node) -> tuple[str, Callable[..., Any]] | None:
    """Return the name in NumPy of what a node of Dynamo's graph computes, and the function."""
    from torch._dynamo import utils

    target: Any = node.target
    if node.kwargs:
        return None
    if isinstance(target, utils.numpy_operator_wrapper):
        name = _ALIASES.get(target.op, "")
    elif isinstance(target, utils.numpy_to_tensor_wrapper):
        name = _ALIASES.get(target.f.__name__, target.f.__name__)
        # Of the same name is `fabs`, which makes floats of ints.
        if target.f is torch._numpy.fabs:  # type: ignore[attr-defined]
            return None
    else:
        return None
    function = NUMPY_FUNCTIONS.get(name)
    return None if function is None else (name, function)
