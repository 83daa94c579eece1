# SPDX-License-Identifier: Apache-2.0
"""The functions that Python calls to compute a number: what a saved file may name."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from hostjit.capturing.numbers.numpy_functions import NUMPY_FUNCTIONS

__all__ = [
    "FUNCTIONS",
    "FUNCTION_OF",
    "PYTHON_FUNCTIONS",
    "bit_length",
    "slice_length",
    "slice_start",
]


def bit_length(number: int) -> int:
    """Return how many bits an int has."""
    return number.bit_length()


def slice_start(start: int, stop: int, size: int) -> int:
    """Return where a slice of a dim begins."""
    return slice(start, stop).indices(size)[0]


def slice_length(start: int, stop: int, size: int) -> int:
    """Return how many elements a slice of a dim has."""
    return len(range(*slice(start, stop).indices(size)))


PYTHON_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    bit_length,
    slice_start,
    slice_length,
    *(
        getattr(math, name)
        for name in (
            *("exp", "exp2", "expm1", "log", "log10", "log1p", "pow", "atan2", "hypot", "copysign"),
            *("fabs", "fmod", "degrees", "radians", "asinh", "acosh", "atanh", "erf", "erfc"),
            *("gamma", "lgamma", "cbrt", "gcd", "lcm", "isqrt", "comb", "perm", "factorial"),
        )
        if hasattr(math, name)
    ),
)
"""Those that symbols do not have. Python computes their results, which the program is given."""

FUNCTION_OF: dict[Any, Callable[..., Any]] = {
    **{
        function: function
        for function in (
            *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv),
            *(operator.mod, operator.pow, operator.neg, operator.pos, operator.abs),
            *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
            *(operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift),
            *(operator.not_, operator.invert),
            *(math.floor, math.ceil, math.trunc, round, abs, pow),
        )
    },
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
    operator.ifloordiv: operator.floordiv,
    operator.imod: operator.mod,
    operator.ipow: operator.pow,
    torch.sym_max: max,
    torch.sym_min: min,
    torch.sym_float: float,
    torch.sym_int: int,
    "__round__": round,
    torch.sym_not: operator.not_,
    **{
        getattr(torch, f"_sym_{name}"): getattr(math, name)
        for name in (
            *("sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
            "log2",
        )
    },
    **{function: function for function in (*PYTHON_FUNCTIONS, *NUMPY_FUNCTIONS.values())},
}
"""What Python calls, by what stands for it in graphs."""

FUNCTIONS = (*dict.fromkeys(FUNCTION_OF.values()), torch.Tensor.item)
"""What steps may call. Their names differ, but for `operator.pow` and `pow`, which are the same."""
