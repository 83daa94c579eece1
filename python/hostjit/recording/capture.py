# SPDX-License-Identifier: Apache-2.0
"""`hostjit.capture`: record what a call launches, replay it from one function pointer."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any, overload

import torch

from hostjit import _C
from hostjit.compiling.code_choices import CodeChoices
from hostjit.dynamo_import import import_compiler
from hostjit.recording.options import RecordingOptions

__all__ = ["capture"]


@overload
def capture(
    target: None = None,
    *,
    prune: bool = False,
    warmup: int = 1,
    static_inputs: Sequence[str] = (),
    on_mismatch: str = "recapture",
    on_read: str = "guard",
    runtime: str | None = None,
    fallback: bool = True,
    reuse_outputs: bool = False,
    graphs: str | None = None,
    streams: int | None = None,
    kernels: str = "hostjit",
) -> Callable[[Any], _C.CompiledFunction]: ...
@overload
def capture(
    target: Any,
    *,
    prune: bool = False,
    warmup: int = 1,
    static_inputs: Sequence[str] = (),
    on_mismatch: str = "recapture",
    on_read: str = "guard",
    runtime: str | None = None,
    fallback: bool = True,
    reuse_outputs: bool = False,
    graphs: str | None = None,
    streams: int | None = None,
    kernels: str = "hostjit",
) -> _C.CompiledFunction: ...
def capture(
    target: Any = None,
    *,
    prune: bool = False,
    warmup: int = 1,
    static_inputs: Sequence[str] = (),
    on_mismatch: str = "recapture",
    on_read: str = "guard",
    runtime: str | None = None,
    fallback: bool = True,
    reuse_outputs: bool = False,
    graphs: str | None = None,
    streams: int | None = None,
    kernels: str = "hostjit",
) -> _C.CompiledFunction | Callable[[Any], _C.CompiledFunction]:
    """Record what a callable runs below Python, and replay it at later calls.

    The first call runs, the second runs and is recorded, later calls replay: one native function,
    in which no Python code of the callable runs. What was recorded is what ran: branches as they
    were taken, loops unrolled, backward passes and optimizer steps included. A replay is checked:
    arguments (names, nesting, dtypes, sizes, strides, devices, which are one tensor, Python
    values), the Python state that the code can reach, modes of PyTorch, and the values of tensors
    that the code has read. Where something differs, the call runs and is recorded, too; where it
    keeps differing, `hostjit.compile` answers all calls from then on, and a warning says so. What
    cannot be repeated (printing, the clock, state that the call changes) is not replayed: the
    callable then runs eagerly, and a warning says why, once.

    A call that binds a `hostjit.Dim` is compiled for all of its values, as `hostjit.compile` does,
    instead of being recorded.

    Args:
        target: a function, nn.Module or method. Without it, returns a decorator. A decorated method
            has recordings of its own for each instance, of which `instance.method` tells.
        prune: work that depends on no argument and on nothing that is written runs at the recording
            only, and again when what it was computed of is written or replaced.
        warmup: how many calls run before one is recorded, of each instance.
        static_inputs: names of arguments whose memory is the same at each call.
        on_mismatch: "recapture", or "raise" for a MismatchError at a call that differs from what
            was recorded.
        on_read: "guard": a value that the code reads while it is recorded (`.item()`, a branch on a
            tensor, `.tolist()`) is compared at each replay, before anything is written; calls with
            other values are recorded for themselves. "raise": reading is an error at recording.
        runtime: as of `hostjit.compile`.
        fallback: False makes it an error when a recorded call cannot be replayed; its effects have
            taken place then. Not for what `hostjit.compile` leaves to eager with a warning.
        reuse_outputs: as of `hostjit.compile`.
        graphs: as of `hostjit.compile`.
        streams: as of `hostjit.compile`.
        kernels: as of `hostjit.compile`.

    Returns:
        A callable with the signature of `target`. `reset()` forgets all recordings; `captured`
        tells of the last one, None before; `host_ir()`, `llvm_ir()`, `asm()`, `memory_plan()`,
        `timings()` and `profile(*args)` are those of `hostjit.compile`.

    Raises:
        hostjit.MismatchError: at a call, with `on_mismatch="raise"`.
        hostjit.CaptureError: at a recording, with `on_read="raise"` or `fallback=False`.
        hostjit.Error: an unknown choice.

    Example:
        @hostjit.capture
        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()
    """
    _check("on_mismatch", on_mismatch, ("recapture", "raise"))
    _check("on_read", on_read, ("guard", "raise"))
    _check("runtime", runtime, (None, "jit", "evaluator"))
    if warmup < 0:
        raise _C.Error(f"warmup is {warmup}, expected 0 or more")
    if isinstance(static_inputs, str):
        raise _C.Error(f"static_inputs is '{static_inputs}', expected a list of names")
    choices = CodeChoices(graphs, streams, kernels)
    options = RecordingOptions(prune, warmup, tuple(static_inputs), on_mismatch, on_read)

    def make(wanted: Any) -> Any:
        if isinstance(wanted, (staticmethod, classmethod)):
            return type(wanted)(make(wanted.__func__))
        if isinstance(wanted, _C.CompiledFunction):
            wanted = wanted.owner.arguments()[0]
        if not callable(wanted):
            raise TypeError(f"hostjit.capture takes a callable, got {type(wanted).__qualname__}")
        import_compiler()
        from hostjit.recording.recordings import Recordings

        _check_names(wanted, options.static_inputs)
        owner = Recordings(wanted, options, runtime, fallback, reuse_outputs, choices)
        function = _C.CompiledFunction(wanted, owner)
        owner.function = weakref.ref(function)
        return function

    return make if target is None else make(target)


def _check(name: str, value: Any, allowed: Sequence[Any]) -> None:
    if value not in allowed:
        expected = " or ".join(f"'{choice}'" for choice in allowed if choice is not None)
        raise _C.Error(f"unknown {name} '{value}', expected {expected}")


def _check_names(target: Callable[..., Any], names: Sequence[str]) -> None:
    """Raise hostjit.Error for a name that no argument can have."""
    function = target.forward if isinstance(target, torch.nn.Module) else target
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return
    has_any = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(parameter.kind in has_any for parameter in parameters.values()):
        return
    for name in names:
        if name not in parameters:
            expected = ", ".join(f"'{known}'" for known in parameters)
            raise _C.Error(f"static_inputs: there is no parameter '{name}', only {expected}")
