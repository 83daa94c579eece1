# SPDX-License-Identifier: Apache-2.0
"""Passes of loops, and parts around them, of frames that Dynamo leaves."""

from __future__ import annotations

import types

from hostjit import _C
from hostjit.backend.options import Options
from hostjit.compiling.parts import PartCompilation, PassCompilation
from hostjit.compiling.whole import Whole

__all__ = ["compile_region"]


def compile_region(
    options: Options, function: types.FunctionType, is_pass: bool
) -> _C.CompiledFunction:
    """Compile what a pass of a loop does, or a part around one; nothing is said of that."""
    whole = Whole(function.__name__, {"parts"}, options)
    compilation = (PassCompilation if is_pass else PartCompilation)(function, whole)
    return _C.CompiledFunction(function, compilation, called_by_dynamo=is_pass)
