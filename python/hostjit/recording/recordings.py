# SPDX-License-Identifier: Apache-2.0
"""The Python side of a captured function: runs and records calls, and makes specializations."""

from __future__ import annotations

import dataclasses
import functools
import sys
import threading
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch._dynamo

from hostjit import _C
from hostjit.calls import arguments_fit, in_foreign_transform, makes_generators, memory_pattern
from hostjit.capturing.arguments import (
    describe_arguments,
    object_leaves,
    walk_arguments,
)
from hostjit.capturing.compile_lock import compile_lock, is_left_locked
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.instances import is_a, is_one_of
from hostjit.capturing.thread_state import ThreadState
from hostjit.code_choices import CodeChoices
from hostjit.collection_pause import collection_paused
from hostjit.dims import with_names, without_dims
from hostjit.numbers_outside import NumbersOutside
from hostjit.recording.captured_method import CapturedMethod, answers
from hostjit.recording.compilation_for_dims import CompilationForDims
from hostjit.recording.compiled_regions import compiled_regions_run_eagerly
from hostjit.recording.errors import MismatchError
from hostjit.recording.function_watcher import FunctionWatcher, unseen_watcher
from hostjit.recording.generator_states import note_state, sets_states
from hostjit.recording.gradient_hooks import adds_hook, backward_is_plain
from hostjit.recording.inputs import Gradient
from hostjit.recording.library_calls import note_c_call, note_library_call
from hostjit.recording.mismatch import Signature, named_arguments
from hostjit.recording.opened_objects import OpenedClasses, expanded
from hostjit.recording.optimizer_steps import RecordedSteps
from hostjit.recording.options import RecordingOptions
from hostjit.recording.profilers import active_profiler, is_resumable
from hostjit.recording.recorded_call import (
    is_released,
    memory_is_shared,
    placed_facts,
    refusal_of,
)
from hostjit.recording.recorder import Recorder
from hostjit.recording.replay import Recording, Replay
from hostjit.recording.results import Results
from hostjit.recording.seen_code import SeenCode, is_library, reads_groups, runs_custom_function
from hostjit.recording.state import State
from hostjit.recording.triton_launches import RecordedLaunches
from hostjit.recording.varying import Varying
from hostjit.specializer import Specializer, route_any_call

__all__ = ["Recordings"]

# A call that changes Python state may do so only the first times, to set something up.
_MOST_CHANGES = 2
# With so many objects among the arguments and no recording, there may never be one.
_MOST_OBJECTS = 64
# Nor is a float that calls are given, once it had two values.
_MOST_VALUES = 2


class Recordings(Specializer):
    """Records calls of one callable; `_C.CompiledFunction` asks it at every miss."""

    records = True

    # Of the numbers outside of the arguments, floats alone are taken to go on to differ.
    _floats_only = True
    # Recordings that read a float of a tensor: it is seldom the same again.
    _most_floats = 3
    # Recordings that read what the call draws, which each of them draws again to compare it.
    _most_draws = 3
    # Recordings one after the other whose values, those that the code reads, no later call had.
    _most_in_vain: int | None = None

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
        self._calls: dict[Any, int] = {}
        self._tries: dict[Any, int] = {}
        self._changes: dict[Any, int] = {}
        self._with_dims: list[Signature] = []
        self._recorded: dict[Any, list[Replay]] = {}
        self._in_order: list[Replay] = []
        self._codes: dict[types.CodeType, dict[str, Any]] = {}
        self._opened = OpenedClasses()
        self._varying = self._new_varying()
        self._outside = self._new_outside()
        self._ran_backward = False
        # The target, or what is compiled of it: what answers all calls, once recording is given up.
        self._answers_instead: Callable[..., Any] | None = None
        self._latest = None

    def _new_varying(self) -> Varying:
        return Varying(_MOST_VALUES, floats_only=True)

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
        return self._in_order[-1].recording if self._in_order else None

    def of(self, instance: Any) -> CapturedMethod:
        """Return the captured method of one object, which tells of its recordings alone.

        Args:
            instance: what calls have as their first argument.

        Example:
            Model.step.of(model).reset()
        """
        function = self.function() if self.function is not None else None
        if function is None or not hasattr(self.target, "__get__"):
            raise _C.Error(f"'{self._target_name()}' is no method")
        return CapturedMethod(self, function, instance)

    def last_among(self, specializations: Sequence[_C.Specialization]) -> Recording | None:
        """Return what was recorded last, of some calls; None before."""
        replays = set(map(Replay.behind, specializations))
        found = [replay.recording for replay in self._in_order if replay in replays]
        return found[-1] if found else None

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
        replays = set(map(Replay.behind, kept))
        self._in_order = [replay for replay in self._in_order if replay in replays]
        keys = {key for key in self._calls if not key or key[0] == id(instance)}
        keys |= {key for key, known in self._recorded.items() if not replays.issuperset(known)}
        for known in (self._calls, self._tries, self._changes, self._recorded):
            for key in keys:
                known.pop(key, None)
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
        key = object_leaves(*plain)
        self._calls[key] = self._calls.get(key, 0) + 1
        if self._calls[key] <= self.options.warmup:
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
        varies = self._varying.note(*plain)
        key = object_leaves(*plain)
        if is_opened:  # calls with other objects were calls like this one
            self._calls[key] = min(sum(self._calls.values()), self.options.warmup)
        if key not in self._calls and len(self._calls) >= _MOST_OBJECTS and not self._recorded:
            self._calls.clear()
            self._say(
                "objects",
                f"was called with {_MOST_OBJECTS} different objects, and has recordings for each "
                "object, after a call with it: give it what differs in tuples, lists or dicts",
            )
        self._calls[key] = self._calls.get(key, 0) + 1
        if self._calls[key] <= self.options.warmup:
            return None, self.target(*args, **kwargs)
        if self._overlapping and memory_pattern(*plain) in self._overlapping:
            return None
        known = self._recorded.setdefault(key, [])
        if known and self.options.on_mismatch == "raise":
            self._raise_mismatch(known, args, kwargs)
        limit = _C.recompile_limit()
        self._tries[key] = self._tries.get(key, 0) + 1
        if limit is not None:
            is_full = len(known) >= limit or self._tries[key] > 2 * limit or self._in_vain(known)
            is_full = is_full or sum(x.reads_floats for x in known) >= self._most_floats
            if is_full:
                return self._compile_from_now_on(
                    f"has {len(known)} recordings and keeps meeting new calls"
                )
            draws = sum(replay.reads_draws for replay in known)
            if not self._ran_backward and draws >= self._most_draws:
                return self._compile_from_now_on("reads numbers that it draws")
            if varies:
                return self._compile_from_now_on(f"keeps meeting new values of {varies}")
        return self._record(key, args, kwargs)

    def _in_vain(self, known: Sequence[Replay]) -> bool:
        """Whether the code reads values that differ from call to call, such as sizes that it finds.

        `known`: the recordings so far.
        """
        most = self._most_in_vain
        if most is None or len(known) < most:
            return False
        last = known[-most:]
        if any(replay.checks.reads is None or replay.checks.met_again for replay in last):
            return False
        function = self.function() if self.function is not None else None
        met_again = [x for x in function.specializations if x.met_reads_again] if function else []
        return set(last).isdisjoint(map(Replay.behind, met_again))

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

    def _record(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call and record it; return what answers such calls later, and the result."""
        profiler = active_profiler()
        if profiler is not None and not is_resumable(profiler):
            return None
        try:
            plain = expanded(args, kwargs, self._opened.classes)
            _, leaves = describe_arguments(*plain)
            signature = Signature(named_arguments(self.target, *plain))
        except CaptureError as error:
            return self._refuse(error, args, kwargs), self.target(*args, **kwargs)
        before = ThreadState.current()
        facts = list(map(placed_facts, leaves))
        state = State()
        state.add_arguments(args, kwargs, self._opened.classes)
        state.add_target(self.target)
        for code, variables in self._codes.items():
            state.add_code(code, variables)
        recorder = Recorder(leaves, state, self.options.on_read)
        recorder.caller = sys._getframe()
        seen = SeenCode(
            state.add_code,
            functools.partial(note_library_call, state),
            functools.partial(_note_c_call, state, recorder),
            functools.partial(note_state, recorder),
        )
        launches = RecordedLaunches(recorder, state)
        try:
            with (
                collection_paused(),
                compiled_regions_run_eagerly(),
                RecordedSteps(recorder, state),
                launches,
                # Code of backward passes is seen in this thread only.
                torch.autograd.set_multithreading_enabled(False),
                FunctionWatcher(recorder),
                unseen_watcher(),
                recorder,
                seen,
            ):
                result = self.target(*args, **kwargs)
        finally:
            if profiler is not None:
                profiler.enable()  # here, in a frame that it has seen begin
        recorder.caller = None
        # What a library reads of optimizers it may not read at the next recording.
        self._codes = {
            code: variables
            for code, variables in state.codes.items()
            if not (reads_groups(code) and is_library(code.co_filename))
        }
        if launches.tuned:
            return None, result  # the next call finds what was chosen
        self._ran_backward = self._ran_backward or recorder.ran_backward
        if recorder.ran_backward and not backward_is_plain():
            return None, result
        varies = self._outside.note(state.numbers(), floats_only=self._floats_only)
        if varies and _C.recompile_limit() is not None:
            return self._compile_from_now_on(f"keeps meeting new values of {varies}"), result
        changed = state.change()
        if changed:
            numbers_alone = state.changes_numbers_alone()
            return self._changed_state(key, changed, numbers_alone, args, kwargs), result
        if ThreadState.current() != before:
            refusal = refusal_of("it changes settings of PyTorch, which a replay does not repeat")
            return self._refuse(refusal, args, kwargs), result
        if recorder.control:
            return self._compile_from_now_on(recorder.problem), result
        problem = recorder.problem or seen.problem or recorder.hook_that_stays()
        problem = problem or state.obstacle or state.known_argument()
        if not problem and list(map(placed_facts, leaves)) != facts:
            problem = "it changes what its arguments are, not only what is in them"
        if any(id(gradient) in state.leaves for _, gradient in state.gradients.values()):
            problem = problem or "an argument is the gradient of a tensor that it can reach"
        if state.take_changed_graphs():
            problem = problem or "gradients flow through its writes of tensors that others have"
        gradients = [id(s.tensor) for s in recorder.sources if isinstance(s, Gradient)]
        if any(state.is_found_elsewhere(gradient) for gradient in gradients):
            problem = problem or "it finds the gradient of a tensor in another place, too"
        if problem:
            refusal = CaptureError(recorder.failure, problem)
            return self._refuse(refusal, args, kwargs), result
        try:
            replay, specialization = self._make(
                seen, state, recorder, launches.aligned, leaves, result, signature, args, kwargs
            )
        except CaptureError as error:
            return self._refuse(error, args, kwargs), result
        except Exception as error:
            failure = CaptureError(CaptureFailure.INTERNAL, f"recording it raised {error!r}")
            failure.__cause__ = error
            return self._refuse(failure, args, kwargs), result
        known = self._recorded.get(key)
        if known is None:
            return None, result  # the recordings were reset meanwhile
        known.append(replay)
        self._in_order.append(replay)
        return specialization, result

    def _make(
        self,
        seen: SeenCode,
        state: State,
        recorder: Recorder,
        aligned: Sequence[int | torch.Tensor],
        leaves: Sequence[torch.Tensor],
        result: Any,
        signature: Signature,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[Replay, _C.Specialization]:
        containers: dict[int, Any] = {}

        def note(value: Any) -> None:
            if is_a(value, (list, dict)) or is_one_of(type(value), self._opened.classes):
                containers[id(value)] = value

        expanded(args, kwargs, self._opened.classes, note)
        walk_arguments(args, note)
        for value in kwargs.values():
            walk_arguments(value, note)
        results = Results(result, recorder, state, containers)
        wanted = [x for x in results.tensors[: results.user_count] if x.requires_grad]
        wanted = [x for x in wanted if not is_released(x)]
        if wanted and recorder.ran_backward:
            raise CaptureError(
                CaptureFailure.NEEDS_AUTOGRAD,
                "it runs a backward pass and returns results that need gradients",
                hint="return them detached",
            )
        if wanted and recorder.has_hooks:
            raise CaptureError(
                CaptureFailure.NEEDS_AUTOGRAD,
                "a result needs gradients, and hooks were added to its graph",
            )
        if wanted and sets_states(recorder.graph):
            raise CaptureError(
                CaptureFailure.NEEDS_AUTOGRAD,
                "a result needs gradients, and the state of the default generator is set",
            )
        if wanted and runs_custom_function(seen.codes):
            raise CaptureError(
                CaptureFailure.NEEDS_AUTOGRAD,
                "a result needs gradients, and a torch.autograd.Function has a backward of its own",
            )
        opened = self._opened.classes
        replay = Replay(
            self, recorder, state, results, bool(wanted), aligned, leaves, signature, opened
        )
        with compile_lock:
            return replay, replay.build(args, kwargs)

    def compile_graph(self, graph: torch.fx.Graph, name: str) -> _C.CompiledProgram:
        """Compile a functional graph."""
        return self._compile_program(graph, name)

    def note_program(self, program: _C.CompiledProgram) -> None:
        """Remember what questions about the program are about."""
        self._latest = program

    def classes_by_fields(self) -> dict[type, tuple[str, ...]]:
        """Return the classes of arguments whose fields are compared, with their slots."""
        return dict(self._opened.classes)

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

    def _changed_state(
        self,
        key: Any,
        changed: str,
        numbers_alone: bool,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> _C.Specialization | None:
        if not self._changes_again(key):
            return None
        what = f"it changes {changed}, which a replay would not"
        if not self.fallback:
            raise CaptureError(CaptureFailure.UNSUPPORTED_PROGRAM, what)
        if numbers_alone:
            return self._compile_from_now_on(what.removeprefix("it "))
        self._answers_instead = self.target
        self._say("changes", f"runs eagerly: {what}")
        return route_any_call(self.target)

    def _changes_again(self, key: Any) -> bool:
        """Note that a call has changed state; tell whether that was no setting up."""
        self._changes[key] = self._changes.get(key, 0) + 1
        return self._changes[key] >= _MOST_CHANGES


def _note_c_call(state: State, recorder: Recorder, frame: types.FrameType, function: Any) -> None:
    """Note what Python code is about to ask a function of C code, or a node of a graph."""
    note_c_call(state, frame, function)
    if adds_hook(function):
        recorder.note_hook(function.__name__, function.__self__)
