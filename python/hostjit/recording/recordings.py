# SPDX-License-Identifier: Apache-2.0
"""The Python side of a captured function: runs and records calls, and makes specializations."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch._dynamo

from hostjit import _C
from hostjit.bytecode.loops import PassVariables
from hostjit.capturing.arguments import (
    describe_arguments,
    object_leaves,
)
from hostjit.capturing.by_fields import ByFields
from hostjit.capturing.compile_lock import is_left_locked
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.module_fields import has_plain_call
from hostjit.capturing.numbers.open_numbers import MOST_NUMBERS
from hostjit.capturing.signal_errors import raise_of_handler
from hostjit.compiling.calls import (
    arguments_fit,
    holds_itself,
    in_foreign_transform,
    makes_generators,
    memory_is_shared,
    memory_pattern,
)
from hostjit.compiling.code_choices import CodeChoices
from hostjit.compiling.numbers_outside import NumbersOutside
from hostjit.compiling.specializer import Specializer, route_any_call
from hostjit.dims import with_names, without_dims
from hostjit.recording.calls.by_object import CallsByObject, CallsOfObjects
from hostjit.recording.calls.captured_method import CapturedMethod, answers
from hostjit.recording.calls.compilation_for_dims import CompilationForDims
from hostjit.recording.calls.mismatch import Signature, named_arguments
from hostjit.recording.calls.opened_objects import OpenedClasses, expanded
from hostjit.recording.calls.varying import Varying
from hostjit.recording.code.deciding import DecidingFunctions
from hostjit.recording.code.reachable import may_tell_tensors_apart
from hostjit.recording.errors import MismatchError, refusal_of
from hostjit.recording.graph.open_arguments import OpenArguments
from hostjit.recording.graph.recorder import Read, Recorder
from hostjit.recording.limits import Limits
from hostjit.recording.options import RecordingOptions
from hostjit.recording.reach.attributes import Attribute, Attributes
from hostjit.recording.replays.replay import Recording, Replay
from hostjit.recording.running.gradient_hooks import backward_is_plain
from hostjit.recording.running.profilers import active_profiler, is_resumable
from hostjit.recording.running.run import (
    Codes,
    RecordedRun,
    SelectedCopyError,
    UntakenAttributesError,
)
from hostjit.recording.running.run_attributes import attributes_of

__all__ = ["Recordings"]

# A call that changes Python state may do so only the first times, to set something up.
_MOST_CHANGES = 2
# With so many objects among the arguments and no recording, there may never be one.
_MOST_OBJECTS = 64


class Recordings(Specializer):
    """Records calls of one callable; `_C.CompiledFunction` asks it at every miss.

    Attributes:
        pass_variables: the callable does what a pass of a loop with these does.
        open_arguments: those of its arguments that may be any numbers; None if all are compared.
        attributes: those of objects that calls assign, or that are another number at each call.
    """

    records = True
    pass_variables: PassVariables | None = None
    open_arguments: OpenArguments | None = None

    _limits = Limits()
    shown = Specializer.shown | {"reset", "captured", "of"}

    def __init__(
        self,
        target: Callable[..., Any],
        options: RecordingOptions,
        runtime: str | None = None,
        fallback: bool = True,
        reuse_outputs: bool = False,
        choices: CodeChoices | None = None,
    ) -> None:
        super().__init__(target, runtime, fallback, reuse_outputs, choices)
        self.options = options
        self.function: weakref.ref[_C.CompiledFunction] | None = None
        self._for_dims = CompilationForDims(self)
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._calls = CallsByObject(self._forget_recorded)
        self._with_dims: list[Signature] = []
        self._codes: Codes = {}
        self._opened = OpenedClasses()
        self._varying = self._new_varying()
        self._outside = self._new_outside()
        self._ran_backward = False
        self._chooses = self._leaves = self.options.on_read == "guard"
        self._tensors_met: dict[tuple[int, str], tuple[Attribute, int]] = {}
        # The code of the target, and what that is with its choices.
        self._deciding = DecidingFunctions()
        self.attributes = self._new_attributes()
        # The target, or what is compiled of it: what answers all calls, once recording is given up.
        self._answers_instead: Callable[..., Any] | None = None
        self._latest = None

    def _new_varying(self) -> Varying:
        limits = self._limits
        return Varying(limits.values, limits.sizes, floats_only=limits.floats_only)

    def _new_outside(self) -> NumbersOutside:
        return NumbersOutside()

    def reset(self) -> None:
        """Forget all recordings: the next call is the first."""
        function = self.function() if self.function is not None else None
        if function is not None:
            function.forget()
        self._said.clear()
        self._forget()

    @property
    def captured(self) -> Recording | None:
        """What was recorded last; None before."""
        return self._calls.last()

    def of(self, instance: Any) -> Any:
        """Return what answers questions that the method of an object is asked."""
        function = self.function() if self.function is not None else None
        return self if function is None else CapturedMethod(self, function, instance)

    def _forget_recorded(self, gone: weakref.ref[Any], replays: set[Replay]) -> None:
        """Drop the recordings for an object that is gone. It may have been any call that ran."""
        self._opened.forget(gone)
        function = self.function() if self.function is not None else None
        if function is not None:
            function.forget_gone()

    def last_among(self, specializations: Sequence[_C.Specialization]) -> Recording | None:
        """Return what was recorded last, of some calls; None before."""
        return self._calls.last(set(map(Replay.behind, specializations)))

    def _program(self) -> _C.CompiledProgram:
        instead = self._answers_instead
        if isinstance(instead, _C.CompiledFunction):  # hostjit.compile has taken over
            program: _C.CompiledProgram = instead.owner._program()
            return program
        return super()._program()

    def reset_calls_of(self, instance: Any) -> None:
        """Forget the recordings that may answer calls of a method of an object."""
        function = self.function() if self.function is not None else None
        if function is None:
            return
        kept = [x for x in function.specializations if not answers(x, instance)]
        function.forget()
        for specialization in reversed(kept):
            function.add(specialization)
        self._calls.forget_all_but(set(map(Replay.behind, kept)), instance)
        self._answers_instead = None
        self._varying = self._new_varying()
        self._said.clear()

    def arguments(self) -> tuple[Any, dict[str, Any]]:
        """Return what `hostjit.capture` was called with."""
        given: dict[str, Any] = dataclasses.asdict(self.options)
        given.update(runtime=self.runtime, fallback=self.fallback)
        given.update(reuse_outputs=self.reuse_outputs)
        return self.target, {**given, **self.choices.keywords()}

    @torch._dynamo.disable  # type: ignore[untyped-decorator]
    def specialize(
        self, function: _C.CompiledFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return a Specialization, None to run eagerly, or one for later calls and a result."""
        if is_left_locked():
            self._say_left_locked()
            return None
        if in_foreign_transform() or not arguments_fit(self.target, args, kwargs):
            return None
        if holds_itself(args, kwargs):
            self._say("itself", "runs eagerly: an argument is in itself, or nested too deep")
            return None
        if makes_generators(self.target):
            return self._leave_generators()
        if self._answers_instead is not None:
            return route_any_call(self._answers_instead)
        if self._ran_backward and not backward_is_plain():
            return None
        lock = self._lock  # `reset` makes another, also in the middle of a call
        if not lock.acquire(blocking=False):
            return None  # another thread is recording
        try:
            found = function.match(*args, **kwargs)
            if found is not None:
                return found
            plain_args, plain_kwargs, dims = without_dims(args, kwargs)
            if dims:
                return self._answer_for_dims(function, args, kwargs, (plain_args, plain_kwargs))
            return self._answer(args, kwargs)
        finally:
            lock.release()

    def _answer_for_dims(
        self,
        function: _C.CompiledFunction,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        plain: tuple[tuple[Any, ...], dict[str, Any]],
    ) -> Any:
        """Compile for any value of the Dims that a call binds: a recording knows one of each."""
        if self.options.static_inputs:
            raise _C.Error("calls that bind a Dim can't have static inputs")
        calls = self._calls.of(object_leaves(*plain))
        calls.count += 1
        if calls.count <= self.options.warmup:
            return None, self.target(*args, **kwargs)
        arguments = named_arguments(self.target, *with_names(args, kwargs))
        if self._with_dims and self.options.on_mismatch == "raise":
            reasons = [known.difference(arguments) for known in reversed(self._with_dims)]
            if all(reasons):
                raise MismatchError(
                    f"'{self._target_name()}' was compiled for other calls: {reasons[0]}"
                )
        made = self._for_dims.specialize(function, args, kwargs)
        self._latest = self._for_dims.latest or self._latest
        if made is not None and all(known.difference(arguments) for known in self._with_dims):
            self._with_dims.append(Signature(arguments))
        return made

    def _answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        is_opened = self._opened.meet(args, kwargs)
        try:
            plain = expanded(args, kwargs, self._opened.classes)
        except CaptureError as error:
            if not self.fallback:
                raise
            self._say("opened", f"runs eagerly: {error.what}")
            return None
        opened = self.open_arguments.names(args) if self.open_arguments else frozenset[str]()
        varies = self._varying.note(*plain, opened)
        objects = object_leaves(*plain)
        count = self._calls.count()
        calls = self._calls.of(objects)
        if is_opened:  # calls with other objects were calls like this one
            calls.count = min(count, self.options.warmup)
        if self._calls.num_unrecorded() > _MOST_OBJECTS:
            self._calls = CallsByObject(self._forget_recorded)
            calls = self._calls.of(objects)
            self._say(
                "objects",
                f"was called with {_MOST_OBJECTS} different objects, and has recordings for each "
                "object, after a call with it: give it what differs in tuples, lists or dicts",
            )
        calls.count += 1
        if calls.count <= self.options.warmup:
            self._note_others()
            return None, self.target(*args, **kwargs)
        if self._overlapping and memory_pattern(*plain) in self._overlapping:
            return None
        known = calls.replays
        if known and self.options.on_mismatch == "raise":
            self._raise_mismatch(known, args, kwargs)
        is_limited = _C.recompile_limit() is not None
        if self._varying.has_new_sizes and is_limited and not varies:
            return None, self.target(*args, **kwargs)
        calls.tries += 1
        reason = self._limits.reason(known, calls.tries, self._ran_backward, self._met_again)
        if reason:
            return self._leave_other_ways(reason)
        if varies and is_limited:
            if self._open_arguments(args):
                return None  # the next call is recorded for any of them
            return self._compile_from_now_on(f"keeps meeting new values of {varies}")
        return self._record(calls, args, kwargs)

    def _open_arguments(self, args: tuple[Any, ...]) -> bool:
        """Have recordings take numbers that vary; tells whether that may be, and was not so."""
        return False

    def _note_others(self) -> None:
        """Note that a call brings objects that none, or too few, have brought before."""

    def _met_again(self) -> set[Replay | None]:
        """Return what is replayed whose values, those that the code reads, a later call had."""
        function = self.function() if self.function is not None else None
        if function is None:
            return set()
        return {Replay.behind(x) for x in function.specializations if x.met_reads_again}

    def _compile_from_now_on(self, reason: str) -> _C.Specialization:
        """Leave all calls to `hostjit.compile`: what has differed so far will go on to differ."""
        from hostjit.compile import compile

        self._say("limit", f"{reason}: hostjit.compile answers all calls from now on")
        function = self.function() if self.function is not None else None
        if function is not None:
            function.forget()  # each call would look at all of them first
        given: dict[str, Any] = {"runtime": self.runtime, "reuse_outputs": self.reuse_outputs}
        given.update(self.choices.keywords())
        compiled: _C.CompiledFunction = compile(self.target, **given)
        compiled.owner.say_nothing_of_parts()
        compiled.owner.record_no_more()
        compiled.owner.numbers_outside = self._outside
        self._answers_instead = compiled
        return route_any_call(compiled)

    def _leave_other_ways(self, reason: str) -> _C.Specialization | None:
        """Record no more ways through the code, of which there are too many."""
        return self._compile_from_now_on(reason)

    def _raise_mismatch(
        self, known: Sequence[Replay], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        plain = expanded(args, kwargs, self._opened.classes)
        arguments = named_arguments(self.target, *plain)
        reasons = [replay.difference(arguments, args, kwargs) for replay in reversed(known)]
        if all(reasons):
            raise MismatchError(
                f"'{self._target_name()}' was recorded for other calls: {reasons[0]}"
            )

    def _record(self, calls: CallsOfObjects, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call and record it; return what answers such calls later, and the result."""
        profiler, begin = active_profiler(), time.perf_counter()
        if profiler is not None and not is_resumable(profiler):
            return None
        try:
            plain = expanded(args, kwargs, self._opened.classes)
            _, leaves = describe_arguments(*plain)
            signature = Signature(named_arguments(self.target, *plain))
        except CaptureError as error:
            return self._refuse(error, args, kwargs), self.target(*args, **kwargs)
        run = RecordedRun(self, args, kwargs, leaves, self._opened.classes)
        try:
            run.run(self._codes)
            answer = self._recorded(run, signature, calls, (args, kwargs), begin)
        finally:
            result = run.put_back()
        return answer, result

    def _recorded(
        self,
        run: RecordedRun,
        signature: Signature,
        calls: CallsOfObjects,
        arguments: tuple[tuple[Any, ...], dict[str, Any]],
        begin: float,
    ) -> Any:
        """Return what answers calls like one that was recorded; None where nothing does."""
        args, kwargs = arguments
        recorder = run.recorder
        self._codes = run.codes()
        self._note_run(run)
        if run.tuned:
            return None  # the next call finds what was chosen
        is_refused = recorder.choosing.is_refused or recorder.leaving.is_refused
        if is_refused or recorder.is_ambiguous:
            return self._follow_less(recorder)
        self._ran_backward = self._ran_backward or recorder.ran_backward
        if recorder.ran_backward and not backward_is_plain():
            return None
        if run.gave_up() and not recorder.control:
            refusal = CaptureError(recorder.failure, run.problem())
            return self._refuse(refusal, args, kwargs)
        if self.pass_variables is None:
            if self.attributes.open(run.attributes.wanted_numbers()):
                return None  # the next call chooses what they become
            run.follow_counters()  # of passes there may be any number in a call
        varies = self._outside.note(run.numbers(), floats_only=self._limits.floats_only)
        if varies and self._opens(run):
            return None  # the next call is recorded for any of them
        changes = run.changes()
        if varies and not changes and _C.recompile_limit() is not None:
            return self._compile_from_now_on(f"keeps meeting new values of {varies}")
        if run.attributes.show_in(self.attributes):
            return None
        in_pass = self.pass_variables is not None
        if changes and self.attributes.add(run.attributes.assigned(in_pass=in_pass)):
            return None  # the next call is recorded without them
        if changes and self.attributes.keep(changed := run.attributes.changed_tensors()):
            self._note_replaced(changed)
            self._start_over()
            return None
        if changes:
            calls.changes += 1
            if calls.changes < _MOST_CHANGES:
                return None  # it may have set something up
            return self._refuse_changes(changes, run.changes_are_followed(), varies)
        if self.pass_variables is None and self.attributes.keep(self._others_than_before(run)):
            self._start_over()  # those so far are for tensors that are gone
            return None  # the next call is recorded for any of them
        if run.changes_settings:
            refusal = refusal_of("it changes settings of PyTorch, which a replay does not repeat")
            return self._refuse(refusal, args, kwargs)
        if recorder.control:
            return self._compile_from_now_on(recorder.problem)
        if recorder.reads_tensors():
            self._note_reads(recorder.reads)
            # Of statements that choose, both ways are known but for those that lead elsewhere.
            is_known = all(read.is_of_choice for read in recorder.reads)
            reason = self._limits.reason_against(
                len(recorder.graph.nodes) // (1 + is_known),
                calls.replays,
                self._met_again,
                reads_floats=recorder.reads_floats_of_arguments(),
            )
            if reason:
                return self._leave_other_ways(reason)
        problem = run.problem()
        if problem:
            refusal = CaptureError(recorder.failure, problem)
            return self._refuse(refusal, args, kwargs)
        try:
            replay, specialization = run.make(signature)
        except SelectedCopyError:
            return self._follow_less(recorder)
        except UntakenAttributesError as error:
            self.attributes.refuse(error.keys)
            return None
        except CaptureError as error:
            return self._refuse(error, args, kwargs)
        except Exception as error:
            raise_of_handler(error)
            failure = CaptureError(CaptureFailure.INTERNAL, f"recording it raised {error!r}")
            failure.__cause__ = error
            return self._refuse(failure, args, kwargs)
        if not self._calls.has(calls):
            return None  # the recordings were reset meanwhile
        replay.note_cost(begin)
        self._calls.add(replay, calls)
        return specialization

    def _follow_less(self, recorder: Recorder) -> None:
        """Have the next call recorded for what it decides: others are not as this call was."""
        if recorder.leaving.is_met:
            self._leaves = False
        else:
            self._chooses = False

    def _start_over(self) -> None:
        """Forget what was recorded: the next recordings are for more calls."""
        function = self.function() if self.function is not None else None
        if function is not None:
            function.forget()
        for calls in self._calls:
            calls.replays.clear()

    def most_operators(self) -> float:
        """Return how many operators are recorded of a call."""
        return math.inf

    def _others_than_before(self, run: RecordedRun) -> list[Attribute]:
        """Return the attributes that were other tensors at the last call that was recorded."""
        before, self._tensors_met = self._tensors_met, run.attributes.tensors_met()
        return [
            attribute
            for key, (attribute, tensor) in self._tensors_met.items()
            if key in before and before[key][1] != tensor
        ]

    def target_with_choices(self) -> Callable[..., Any]:
        """Return what does the same as the target, and lets a recording follow what it chooses."""
        if not self._chooses or self.pass_variables is not None:
            return self.target
        target: Any = self.target
        method: Any = target.forward if has_plain_call(target) else target
        is_method = isinstance(method, types.MethodType)
        function = method.__func__ if is_method else method
        receiver = method.__self__ if is_method else None
        if not isinstance(function, types.FunctionType):
            return self.target
        if may_tell_tensors_apart(function, receiver):
            return self.target
        found: Callable[..., Any] = self.deciding(target)
        return found

    def deciding(self, called: Any) -> Any:
        """Return what does the same as something that is called, and lets a recording follow it."""
        return self._deciding.of(called, leaves=self._leaves)

    def _opens(self, run: RecordedRun) -> bool:
        """Have programs take numbers that vary; tells whether that may be, and was not so before.

        Programs of several passes do not.
        """
        if self.pass_variables is not None:
            return False
        return self.attributes.open(attributes_of(self._outside.varying(run.numbers())))

    def _new_attributes(self) -> Attributes:
        """Return what is known of attributes that calls assign."""
        return Attributes(MOST_NUMBERS)

    def _note_replaced(self, found: Sequence[Attribute]) -> None:
        """Note that calls replace attributes."""

    def _note_run(self, run: RecordedRun) -> None:
        """Look at a call that was recorded."""

    def _note_reads(self, reads: Sequence[Read]) -> None:
        """Look at what a call has read."""

    def note_single_pass(self) -> None:
        """Note that a recording of a pass that another follows runs that pass alone."""

    def ways(self) -> list[Replay]:
        """Return the recordings that repeat ways through a pass, from the latest on."""
        return self._calls.ways()

    def compile_graph(self, graph: torch.fx.Graph, name: str) -> _C.CompiledProgram:
        """Compile a functional graph."""
        return self._compile_program(graph, name)

    def note_program(self, program: _C.CompiledProgram) -> None:
        """Remember what questions about the program are about."""
        self._latest = program

    def classes_by_fields(self) -> ByFields:
        return ByFields.of(*self._opened.classes)

    @property
    def name(self) -> str:
        """The name of what is recorded, for dumps."""
        return self._target_name().replace("<locals>.", "")

    def _refuse(
        self, error: CaptureError, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> _C.Specialization | None:
        """Run calls like this one eagerly from now on, and say so once."""
        if not self.fallback and error.failure is not CaptureFailure.NEEDS_AUTOGRAD:
            raise error
        if error.failure is CaptureFailure.OVERLAPPING_INPUTS:
            plain = expanded(args, kwargs, self._opened.classes)
            if memory_is_shared(*plain):
                self._say("overlap", f"runs eagerly: {error.what}")
                self._overlapping.add(memory_pattern(*plain))
                return None
        what = error.what if error.where is None else f"{error.what} ({error.where})"
        return self._run_eagerly(args, kwargs, what, f"runs eagerly: {what}")

    def _refuse_changes(
        self, changes: Sequence[str], are_followed: bool, varies: str
    ) -> _C.Specialization | None:
        """Record no calls from now on, which change Python state each time.

        `varies`: a number that is another each time, in words; "" if none is.
        """
        if varies and _C.recompile_limit() is not None:
            return self._compile_from_now_on(f"keeps meeting new values of {varies}")
        what = f"it changes {changes[0]}, which a replay would not"
        if not self.fallback:
            raise CaptureError(CaptureFailure.UNSUPPORTED_PROGRAM, what)
        if are_followed:
            return self._compile_from_now_on(what.removeprefix("it "))
        self._answers_instead = self.target
        self._say("changes", f"runs eagerly: {what}")
        return route_any_call(self.target)
