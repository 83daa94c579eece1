# SPDX-License-Identifier: Apache-2.0
"""Frames with breaks in loops, which Dynamo leaves to eager mode: each pass is a frame."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

from torch._dynamo import exc, guards
from torch._dynamo.types import (
    ConvertFrameReturn,
    FrameAction,
    FrameExecStrategy,
    GuardedCode,
    wrap_guarded_code,
)
from torch._dynamo.utils import orig_code_map
from torch._guards import CompileId

from hostjit import backend
from hostjit.backend import convert_as_dynamo
from hostjit.bytecode.loops import with_compiled_passes
from hostjit.capturing.dynamo.long_loops import stopping_at_long_loops
from hostjit.capturing.failures import LongLoopError, is_library_file, translate_failure
from hostjit.compiling.options import Options

__all__ = ["CALLED_AS_COMPILED", "compiling_regions", "convert_in_passes"]

CALLED_AS_COMPILED = FrameExecStrategy(FrameAction.RUN_ONLY, FrameAction.DEFAULT)
"""What is compiled of code is called still, and no more is compiled but of what it calls."""


@contextlib.contextmanager
def compiling_regions(options: Options) -> Iterator[None]:
    """Have what passes of loops do compiled in this thread, with options of `hostjit.compile`."""
    convert = functools.partial(convert_in_passes, convert_as_dynamo, lambda _: options)
    before = backend.converting.set(convert)
    try:
        yield
    finally:
        backend.converting.reset(before)


def convert_in_passes(
    convert: Callable[..., ConvertFrameReturn],
    options_of: Callable[[Any], Options | None],
    self: Any,
    frame: Any,
    *args: Any,
    **kwargs: Any,
) -> ConvertFrameReturn:
    """Compile a frame as `convert` does, and one that cannot be followed in a loop by passes.

    `options_of`: takes `self` and returns the options of what passes do. None: Dynamo looks at them
    as frames of their own, as it does at code with variables of functions around it.

    Raises:
        Exception: what `convert` raises of other frames, and of those that are to be one graph.
    """
    if self._one_graph or self._box.error_on_graph_break:
        return convert(self, frame, *args, **kwargs)
    try:
        with stopping_at_long_loops():
            return convert(self, frame, *args, **kwargs)
    except exc.Unsupported as error:
        if error.frame_exec_strategy is not None:
            # Dynamo has too many programs of this code. What it calls may have few.
            error.frame_exec_strategy = CALLED_AS_COMPILED
            raise
        by_passes = _by_passes(frame, error, options_of(self))
        if by_passes is not None:
            return by_passes
        if not isinstance(error, LongLoopError):
            raise
    return convert(self, frame, *args, **kwargs)


def _by_passes(
    frame: Any, error: exc.Unsupported, options: Options | None
) -> ConvertFrameReturn | None:
    """Return code for a frame that calls a function for each pass of a loop; None without one.

    It does what the code of the frame does, whatever its variables are: there is nothing to guard.
    """
    from hostjit.parts.loop_regions import compile_part_of_frame, compile_pass_of_frame

    code = frame.f_code
    lines = translate_failure(error).lines_in(code)
    if not lines or is_library_file(code.co_filename):
        return None

    def of_region(compile_it: Callable[..., Any]) -> Callable[..., Any]:
        def compile_code(found: types.CodeType, *variables: Any) -> Any:
            if options is None or found.co_freevars:
                return found
            return compile_it(options, types.FunctionType(found, frame.f_globals), *variables)

        return compile_code

    passes, parts = of_region(compile_pass_of_frame), of_region(compile_part_of_frame)
    made = with_compiled_passes(code, frame.f_globals, lines, passes, parts)
    if made is None:
        return None
    compile_id = getattr(error, "compile_id", None) or CompileId(frame_id=0, frame_compile_id=0)
    unguarded: Any = guards.GuardManagerWrapper()
    # Where another backend compiles the frame, Dynamo asks why this code is not for it.
    unguarded.global_scope, unguarded.closure_vars = {"G": frame.f_globals}, {}
    orig_code_map[made] = code
    return wrap_guarded_code(GuardedCode(made, unguarded, compile_id))
