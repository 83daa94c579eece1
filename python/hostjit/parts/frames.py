# SPDX-License-Identifier: Apache-2.0
"""Python frames below a call that Dynamo cannot follow whole: each is compiled by itself.

That is what `torch.compile(..., backend="hostjit")` does, by its means: while such a call runs,
Dynamo looks at every Python frame that begins in the thread.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch._dynamo
from torch import nn
from torch._dynamo import trace_rules
from torch._dynamo.eval_frame import skip_code
from torch._dynamo.types import ConvertFrameReturn
from torch.utils import _pytree as pytree

from hostjit import _C
from hostjit.backend import compile_graph
from hostjit.backend.loop_frames import compiling_regions
from hostjit.capturing.compile_lock import compile_lock
from hostjit.capturing.dynamo.call import guard_settings
from hostjit.capturing.dynamo.corrections import corrected_alone
from hostjit.capturing.dynamo.numpy_code import stopping_at_numpy
from hostjit.capturing.dynamo.optimizer_steps import stopping_at_steps
from hostjit.capturing.dynamo.torch_function_frames import overrides_operators
from hostjit.capturing.dynamo.traced_instead import is_traced_instead
from hostjit.capturing.quiet_log import (
    without_log_of_advice,
    without_log_of_failures,
    without_warnings_of_dynamo,
)
from hostjit.capturing.signal_errors import raise_of_handler
from hostjit.capturing.thread_state import thread_state_kept
from hostjit.compiling.bytecode_call import CheckedCall
from hostjit.compiling.options import Options
from hostjit.compiling.specializer import Specializer
from hostjit.parts.frame_trial import FrameTrial, Way
from hostjit.parts.whole import Whole
from hostjit.replacements import replaced_attribute

__all__ = ["FrameHook"]

_OPTIMIZERS = os.path.dirname(os.path.abspath(torch.optim.__file__)) + os.sep
_NO_LIMIT = 1 << 30
# Modules of PyTorch's that are whole models, whose frames Dynamo leaves alone with the library's.
_CODE_OF_MODELS = frozenset(
    kind.forward.__code__
    for kind in (
        nn.Sequential,
        nn.Transformer,
        nn.TransformerEncoder,
        nn.TransformerEncoderLayer,
        nn.TransformerDecoder,
        nn.TransformerDecoderLayer,
    )
)
_log = logging.getLogger(__name__)


class FrameHook:
    """Runs a function with Dynamo compiling the frames that it can, those below included.

    Where it does, later calls of the whole are recorded: a replay has no frames. Where the frames
    take longer than eager mode does, they are left.

    Attributes:
        settled: the way that is the fastest, once that is known.
    """

    def __init__(
        self,
        run: Callable[..., Any],
        target: Callable[..., Any],
        whole: Whole,
        ways: Sequence[Way],
    ) -> None:
        """`run` does what the target does; `ways`: as of FrameTrial."""
        self._target = target
        self._record = whole.record
        self._calls = {
            Way.FRAMES: _C.FrameCall(run, target, _callback(whole.options), whole.record),
            Way.PARTS: _C.FrameCall(run, target, None, whole.record),
            Way.EAGER: self._eagerly(),
        }
        self._trial = FrameTrial(ways)
        self.settled: _C.FrameCall | None = None

    def _eagerly(self) -> _C.FrameCall:
        return _C.FrameCall(self._target, self._target, None, self._record)

    def route(self) -> _C.FrameCall:
        """Return what calls this until it is known which way is the fastest, and then that."""
        found = self._eagerly()
        found.instead = self
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        trial = self._trial
        way, compiled, begin = trial.way, _num_compiled(), time.perf_counter()
        result = self._calls[way](*args, **kwargs)
        seconds = time.perf_counter() - begin
        if torch.cuda.is_initialized():  # which may have work of the call still to do
            trial.end()
        else:
            is_new = _num_compiled() != compiled
            trial.note(seconds, way, compiled=is_new, with_gradients=_needs_gradients(result))
        if trial.is_over:
            self.settled = self._calls[trial.way]
        return result


# What they call may be the user's; all other code of this package is left alone with what it calls.
for _function in (FrameHook.__call__, CheckedCall.__call__):
    skip_code(_function.__code__)


def _num_compiled() -> int:
    """Count what was compiled so far: frames, and programs, of recordings say."""
    return _C.num_compiled_frames() + Specializer.num_programs


def _needs_gradients(result: Any) -> bool:
    leaves = pytree.tree_leaves(result) if torch.is_grad_enabled() else []
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)


class _Callback:
    """Compiles a frame as `torch.compile` does, but never raises: eager says what is wrong."""

    def __init__(self, convert: Any, options: Options) -> None:
        # By this name Dynamo finds the backend that its cached code was compiled by.
        self._torchdynamo_orig_backend = convert
        self._options = options

    def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> ConvertFrameReturn:
        if _C.frames_are_left() or frame.f_code.co_filename.startswith(_OPTIMIZERS):
            return ConvertFrameReturn()  # as it is, but not the closure that it may call
        if torch._C._functorch.peek_interpreter_stack() is not None:
            # Within a transform of `torch.func`, whose tensors have no memory.
            return ConvertFrameReturn(apply_to_code=False)
        if is_traced_instead(frame.f_code) or overrides_operators(frame.f_code):
            return ConvertFrameReturn()
        limit = _C.recompile_limit()
        settings = {
            **guard_settings,
            "record_runtime_overhead": False,
            "use_numpy_random_stream": True,
            "allow_rnn": True,
            "recompile_limit": _NO_LIMIT if limit is None else limit,
        }
        try:
            with (
                compile_lock,
                thread_state_kept(),
                torch._dynamo.config.patch(settings),
                stopping_at_steps(),
                stopping_at_numpy(),
                corrected_alone(),
                without_log_of_failures(),
                without_log_of_advice(),
                without_warnings_of_dynamo(),
                _models_followed(),
                compiling_regions(self._options),
            ):
                found: ConvertFrameReturn = self._torchdynamo_orig_backend(
                    frame, cache_entry, frame_state
                )
        except Exception as error:
            raise_of_handler(error)
            _log.info("%s runs eagerly", frame.f_code, exc_info=error)
            return ConvertFrameReturn()
        if found.guarded_code is not None:
            _C.note_compiled_frame()
        return found


@contextlib.contextmanager
def _models_followed() -> Iterator[None]:
    """Have Dynamo look at frames of these modules."""
    check = trace_rules.check

    def check_frame(value: Any, *args: Any, **options: Any) -> bool:
        is_model = isinstance(value, types.CodeType) and value in _CODE_OF_MODELS
        return not is_model and check(value, *args, **options)

    with replaced_attribute(trace_rules, "check", check_frame):
        yield


@functools.cache
def _callback(options: Options) -> _Callback | None:
    """One for all functions with these options: Dynamo keeps code for each backend."""

    def backend(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        given = {"runtime": options.runtime, "fallback": options.fallback}
        given.update(options.choices().keywords())
        return compile_graph(module, inputs, options=given)

    # Without one, Dynamo is disabled by the environment.
    convert = getattr(torch._dynamo.optimize(backend), "callback", None)
    return None if convert is None else _Callback(convert, options)
