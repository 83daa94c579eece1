# SPDX-License-Identifier: Apache-2.0
"""The frames that Dynamo compiles for this backend."""

from __future__ import annotations

import contextlib
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import exc, utils
from torch._dynamo.types import ConvertFrameReturn, FrameAction, FrameExecStrategy
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from hostjit.backend import backend_of
from hostjit.backend.loop_frames import CALLED_AS_COMPILED, convert_in_passes
from hostjit.backend.optimizer_steps import step_of
from hostjit.backend.options import READ_BY_DYNAMO, read_options
from hostjit.capturing.dynamo.corrections import corrected_for_backend
from hostjit.capturing.dynamo.optimizer_steps import stopping_at_steps
from hostjit.capturing.dynamo.torch_function_frames import overrides_operators
from hostjit.capturing.quiet_log import without_log_of_failures, without_warnings_of_dynamo
from hostjit.capturing.signal_errors import raise_of_handler
from hostjit.compiling.options import Options

__all__ = ["FRAMES_LEFT", "convert_corrected"]

# What it raises that is neither a graph break nor a misuse of `torch.compile`.
_ERRORS = (
    exc.TorchRuntimeError,
    exc.InternalTorchDynamoError,
    GuardOnDataDependentSymNode,
    AssertionError,
    IndexError,
)
# Of what Dynamo keeps for each code until it is reset.
_COUNT = "_hostjit_errors"
# Of Dynamo's counters of hostjit: frames that ran eagerly for an error.
FRAMES_LEFT = "frames left to eager mode"


def convert_corrected(
    convert: Callable[..., ConvertFrameReturn],
    self: Any,
    frame: Any,
    cache_entry: Any,
    hooks: Any,
    frame_state: dict[str, Any],
    **options: Any,
) -> ConvertFrameReturn:
    """Compile a frame as `convert` does, which is `ConvertFrameAssert.__call__` with what it takes.

    A frame that it cannot follow in a loop has frames for what each pass does.

    A frame of which Dynamo raises an error runs eagerly, which raises what the code does: Dynamo
    says TorchRuntimeError for each error that an operator raises of fake tensors.

    Raises:
        Exception: the frame is to be one graph (`fullgraph=True`), or cannot be compiled.
    """
    if overrides_operators(frame.f_code) and not self._one_graph:
        return ConvertFrameReturn()
    hooks_guarded = torch._dynamo.config.patch(skip_nnmodule_hook_guards=False)
    is_whole = self._one_graph or self._box.error_on_graph_break

    def find_step(optimizer: torch.optim.Optimizer) -> Callable[..., Any] | None:
        own = _options_of(self) or Options()
        return step_of(optimizer, runtime=own.runtime)

    steps = contextlib.nullcontext() if is_whole else stopping_at_steps(find_step)
    with corrected_for_backend(), without_warnings_of_dynamo(), hooks_guarded, steps:
        try:
            with without_log_of_failures():
                given = (frame, cache_entry, hooks, frame_state)
                return convert_in_passes(convert, _options_of, self, *given, **options)
        except _ERRORS as error:
            raise_of_handler(error)
            if is_whole:
                raise
            frame_state[_COUNT] = frame_state.get(_COUNT, 0) + 1
            utils.counters["hostjit"][FRAMES_LEFT] += 1
            return _run_eagerly(frame.f_code, error, frame_state[_COUNT])


def _options_of(converting: Any) -> Options | None:
    """What the user gave `torch.compile`; None where Dynamo alone can do what that says."""
    given = backend_of(converting._torchdynamo_orig_backend)
    if getattr(given, "dynamic", None) is not None:
        return None
    keywords = getattr(given, "kwargs", {})
    options = read_options(**keywords)
    return (
        options
        if options.fallback and not READ_BY_DYNAMO & {*keywords.get("options", ())}
        else None
    )


def _run_eagerly(code: types.CodeType, error: Exception, count: int) -> ConvertFrameReturn:
    """Have a frame run eagerly; after as many errors as there may be programs, all of its code.

    Of what operators raise eager mode tells itself; other errors may be the tracer's alone.
    """
    name = code.co_name
    said = next(iter(str(error).splitlines()), type(error).__name__)
    if count >= torch._dynamo.config.recompile_limit:
        _warn(
            code, f"new kinds of calls of '{name}' run eagerly: {count} could not be traced: {said}"
        )
        return ConvertFrameReturn(CALLED_AS_COMPILED)
    if count == 1 and not isinstance(error, (exc.TorchRuntimeError, IndexError)):
        _warn(code, f"a call of '{name}' runs eagerly: PyTorch's tracer fails: {said}")
    this_call = FrameExecStrategy(FrameAction.SKIP, FrameAction.DEFAULT)
    return ConvertFrameReturn(this_call, apply_to_code=False)


def _warn(code: types.CodeType, text: str) -> None:
    where = code.co_filename, code.co_firstlineno
    warnings.warn_explicit(f"hostjit: {text}", UserWarning, *where)
