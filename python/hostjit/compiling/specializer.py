# SPDX-License-Identifier: Apache-2.0
"""What all that specialize a callable share: the checks before, what runs eagerly, messages."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch._dynamo

from hostjit import _C
from hostjit.capturing.by_fields import NONE_BY_FIELDS, ByFields
from hostjit.capturing.compile_lock import compile_lock, is_left_locked
from hostjit.capturing.errors import CaptureError, CaptureFailure, in_one_line
from hostjit.capturing.instances import name_of
from hostjit.capturing.signal_errors import raise_of_handler
from hostjit.compiling.calls import (
    arguments_fit,
    has_nested_tensor,
    holds_itself,
    in_foreign_transform,
    makes_generators,
    memory_pattern,
)
from hostjit.compiling.code_choices import CodeChoices
from hostjit.compiling.differences import Differences
from hostjit.compiling.eager_attempt import EagerAttempt
from hostjit.compiling.inspection import Inspection

__all__ = ["Specializer", "route_any_call"]

# Calls that raise are remembered; each costs the others a comparison.
_MOST_ATTEMPTS = 64
_LIBRARY_FOLDERS = tuple(
    os.path.dirname(os.path.abspath(file)) + os.sep for file in (_C.__file__, torch.__file__)
)
_COPYING = frozenset({"__copy__", "__deepcopy__", "__getstate__", "__setstate__", "__reduce_ex__"})
# What eager alone can do, and does as fast as anything: said, but not refused.
_RUNS_EAGERLY = (
    CaptureFailure.NEEDS_AUTOGRAD,
    CaptureFailure.SWITCHES_GRADIENTS,
    CaptureFailure.UNSUPPORTED_INPUT,
    CaptureFailure.LAZY_RESULT,
)


class Specializer(Inspection):
    """Specializes one callable; `_C.CompiledFunction` asks it at every miss.

    Attributes:
        num_programs: how many all of them have compiled.
        shown: attributes that the compiled function has, too; others of this are its own.
    """

    num_programs: ClassVar[int] = 0
    shown: ClassVar[frozenset[str]] = frozenset(
        {
            *("host_ir", "llvm_ir", "asm", "memory_plan", "static_reasons", "timings", "profile"),
            "__prepare_scriptable__",
        }
    )
    has_original = True

    def __init__(
        self,
        target: Callable[..., Any],
        runtime: str | None,
        fallback: bool,
        reuse_outputs: bool = False,
        choices: CodeChoices | None = None,
    ) -> None:
        super().__init__()
        self.target = target
        self.runtime = runtime
        self.fallback = fallback
        self.reuse_outputs = reuse_outputs
        self.choices = choices or CodeChoices()
        self._count = 0
        self._attempts = 0
        self._differences = Differences()
        self._said: set[str] = set()
        # Memory patterns of calls that write to memory that another input shares.
        self._overlapping: set[tuple[Any, ...]] = set()

    def other_attribute(self, name: str) -> Any:
        """Return what the compiled function has by a name: what is shown, or the target's."""
        if name in self.shown:
            return getattr(self, name)
        # How the target is copied is not how this one is: see `hostjit.pickling`.
        if name in _COPYING:
            raise AttributeError(name)
        return getattr(self.target, name)

    def __prepare_scriptable__(self) -> Any:
        """Return what `torch.jit.script` compiles in the place of this."""
        return self.target

    def arguments(self) -> tuple[Any, dict[str, Any]]:
        """Return what `hostjit.compile` was called with."""
        given = {"runtime": self.runtime, "fallback": self.fallback}
        given["reuse_outputs"] = self.reuse_outputs
        given.update(self.choices.keywords())
        return self.target, given

    # It may be called in a frame that Dynamo compiled, by which it would look at all of this.
    @torch._dynamo.disable  # type: ignore[untyped-decorator]
    def specialize(
        self, function: _C.CompiledFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        """Return a Specialization for this call, or None to run the target eagerly."""
        if is_left_locked():
            self._say_left_locked()
            return None
        if holds_itself(args, kwargs, self.opened_classes()):
            self._say("itself", "runs eagerly: an argument is in itself, or nested too deep")
            return None
        with compile_lock:
            # Another thread may have made it while this one waited.
            return function.match(*args, **kwargs) or self._specialize(args, kwargs)

    def _say_left_locked(self) -> None:
        self._say("fork", "runs eagerly: another thread compiled when this process was forked")

    def _specialize(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        if in_foreign_transform() or not arguments_fit(self.target, args, kwargs):
            return None
        if makes_generators(self.target):
            return self._leave_generators()
        if has_nested_tensor(args, kwargs):
            self._say("nested", "runs eagerly: an argument is a nested tensor, which has no sizes")
            return None
        if self._overlapping and memory_pattern(args, kwargs) in self._overlapping:
            return None
        return self._answer(args, kwargs)

    def _answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _C.Specialization | None:
        """Answer a call that may be captured."""
        if "limit" not in self._said:
            self._differences.note(args, kwargs)
        if self._is_full(args, kwargs):
            return self._answer_full()
        try:
            return self._compile(args, kwargs)
        except CaptureError as error:
            raise_of_handler(error)
            return self._fall_back(error, args, kwargs)

    def _compile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _C.Specialization | None:
        """Return what answers calls like this one; raises CaptureError where eager has to."""
        raise NotImplementedError

    def _leave_generators(self) -> _C.Specialization:
        self._say(
            "generator", "runs eagerly: it makes generators or coroutines, which compute when asked"
        )
        return route_any_call(self.target)

    def _is_full(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Tell whether there are too many programs to make one for this call."""
        limit = self._limit()
        return limit is not None and self._count >= limit

    def _limit(self) -> int | None:
        """Return how many programs there may be; None for any number."""
        return _C.recompile_limit()

    def _answer_full(self) -> _C.Specialization | None:
        """Answer a call for which there would be one program too many."""
        self._say_full("it runs those eagerly from now on")
        return None

    def _say_full(self, what: str) -> None:
        """`what` becomes of further calls."""
        limit = _C.recompile_limit()
        assert limit is not None
        self._say(
            "limit",
            f"has {self._limit()} specializations and keeps meeting new signatures: {what}. "
            f"{self._differences.advice()}, or raise the limit with "
            f"HOSTJIT_ENABLE=recompile_limit({4 * limit})" + self._why_static(),
        )

    def _fall_back(
        self, error: CaptureError, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        """Answer a call that cannot be captured; raises the error where that was asked for."""
        if error.failure is CaptureFailure.USER_EXCEPTION:
            return self._attempt_eagerly(error, args, kwargs)
        if error.failure is CaptureFailure.OVERLAPPING_INPUTS:
            self._say("overlap", f"runs eagerly: {error}")
            self._overlapping.add(memory_pattern(args, kwargs))
            return None
        if error.failure is CaptureFailure.LAZY_MODULE:
            return None  # the next call finds its parameters
        reason = f"runs eagerly: {error}"
        if error.failure in _RUNS_EAGERLY:
            return self._run_eagerly(args, kwargs, str(error.failure), reason)
        if not self._may_fall_back():
            raise error
        return self._run_eagerly(args, kwargs, error.where or str(error), reason)

    def _may_fall_back(self) -> bool:
        """Tell whether a call that cannot be captured is to run otherwise."""
        return self.fallback

    def _attempt_eagerly(
        self, error: CaptureError, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        """Let eager raise what the user should see; what it does not raise may run in parts."""
        self._attempts += 1
        if self._attempts > _MOST_ATTEMPTS:
            return None

        in_parts = self._in_parts(args, kwargs)
        where = f" at {error.where}" if error.where else ""
        # Not the error itself, whose frames have the arguments.
        key, text = (
            str(error.failure),
            (
                f"runs {'in parts' if in_parts else 'eagerly'}: something raises when it is "
                f"captured{where}, which eager does not raise or the call handles: {error.what}"
            ),
        )

        def captured_wrongly() -> Callable[..., Any]:
            self._say(key, text)
            return in_parts or self.target

        return EagerAttempt(self.target, captured_wrongly).specialization(args, kwargs)

    def _in_parts(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
        """Return what runs calls like this one in parts; None where nothing does."""
        return None

    def _run_eagerly(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        key: str,
        reason: str,
        route: Callable[..., Any] | None = None,
    ) -> _C.Specialization | None:
        """Remember that calls like this one go to the target itself, or to another function."""
        self._say(key, reason)
        self._count += 1
        try:
            return _C.Specialization(
                args=args,
                kwargs=dict(kwargs),
                program=None,
                bindings=(),
                output=("object", None),
                route=route or self.target,
                reason=reason,
                by_fields=self.classes_by_fields().described(),
            )
        except (RuntimeError, TypeError):
            return None  # arguments that no guard can describe

    def opened_classes(self) -> ByFields:
        """Return the classes of arguments whose objects are containers by now."""
        return NONE_BY_FIELDS

    def classes_by_fields(self) -> ByFields:
        """Return the classes of arguments whose fields are compared where calls run eagerly."""
        return NONE_BY_FIELDS

    def _compile_program(
        self, graph: torch.fx.Graph, name: str, donated: Sequence[int] = ()
    ) -> _C.CompiledProgram:
        """Compile a functional graph. `donated`: the inputs that calls may give up."""
        from hostjit.lowering.lower import lower

        Specializer.num_programs += 1
        with self.choices.in_effect():
            wants_inductors = self.choices.kernels == "inductor"
            compiled = self._compile_inductors(graph, name, donated) if wants_inductors else None
            if compiled is not None:
                return compiled
            program = lower(graph, name)
            program.donate_inputs(donated)
            return _C.CompiledProgram(program)

    def _compile_inductors(
        self, graph: torch.fx.Graph, name: str, donated: Sequence[int]
    ) -> _C.CompiledProgram | None:
        """Return the program with Inductor's kernels; None where there is none."""
        from hostjit import inductor

        # Whatever goes wrong, hostjit's kernels do.
        try:
            program = inductor.lower(graph, name)
            program.donate_inputs(donated)
            return _C.CompiledProgram(program)
        except Exception as error:
            reason = in_one_line(error).partition("\n")[0]
            self._say("kernels", f"has hostjit's kernels, not Inductor's: {reason}")
        return None

    def _say(self, key: str, message: str) -> None:
        if key not in self._said:
            self._said.add(key)
            text = f"hostjit: '{self._target_name()}' {message}"
            warnings.warn(text, stacklevel=_frames_to_user())

    def _note_static(self, reason: str) -> None:
        """Remember why a program serves the sizes of one call, where it was to serve any."""
        _C.dump_shapes(self._target_name(), reason)
        if reason not in self._static_reasons:
            self._static_reasons.append(reason)

    def _why_static(self) -> str:
        reasons = "; ".join(self._static_reasons)
        return f". There is no program for all sizes because {reasons}" if reasons else ""

    def _target_name(self) -> str:
        return name_of(self.target)


def route_any_call(route: Callable[..., Any]) -> _C.Specialization:
    """Have `route` answer all calls under the present global state."""
    return _C.Specialization(
        args=(),
        kwargs={},
        program=None,
        bindings=(),
        output=("object", None),
        route=route,
        any_arguments=True,
    )


def _frames_to_user() -> int:
    """Count the frames from the one that asks to the nearest that is none of a library's."""
    frame, count = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_LIBRARY_FOLDERS):
        frame, count = frame.f_back, count + 1
    return count
