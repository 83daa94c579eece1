# SPDX-License-Identifier: Apache-2.0
"""Passes of loops, and parts around them, of frames that Dynamo leaves."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from hostjit import _C
from hostjit.bytecode.loops import PassVariables
from hostjit.compiling.options import Options
from hostjit.parts.parts import PartCompilation
from hostjit.parts.passes import compile_pass
from hostjit.parts.whole import Whole

__all__ = ["compile_part_of_frame", "compile_pass_of_frame"]


def compile_pass_of_frame(
    options: Options, function: types.FunctionType, variables: PassVariables | None
) -> Callable[..., Any]:
    """Compile what a pass of a loop does; nothing is said of that."""
    return compile_pass(function, _whole(options, function), variables)


def compile_part_of_frame(options: Options, function: types.FunctionType) -> _C.CompiledFunction:
    """Compile what is ahead of a loop, or behind it; nothing is said of that."""
    return _C.CompiledFunction(function, PartCompilation(function, _whole(options, function)))


def _whole(options: Options, function: types.FunctionType) -> Whole:
    return Whole(function.__name__, {"parts"}, options)
