# SPDX-License-Identifier: Apache-2.0
"""Passes of loops, and parts around them, of frames that Dynamo leaves."""

from __future__ import annotations

import types

from hostjit import _C
from hostjit.backend.options import Options
from hostjit.compiling.parts import PartCompilation, PassCompilation

__all__ = ["compile_region"]


def compile_region(
    options: Options, function: types.FunctionType, is_pass: bool
) -> _C.CompiledFunction:
    """Compile what a pass of a loop does, or a part around one; nothing is said of that."""
    said = {"parts"}
    kind = PassCompilation if is_pass else PartCompilation
    compilation = kind(function, options, said, function.__name__)
    return _C.CompiledFunction(function, compilation, called_by_dynamo=is_pass)
