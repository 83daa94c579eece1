# SPDX-License-Identifier: Apache-2.0
"""A call that runs and is recorded, and what has to hold for it to be replayed."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from hostjit import _C
from hostjit.bytecode.chooser import chooses_by
from hostjit.bytecode.made_code import is_of_choice, origin_of
from hostjit.capturing.arguments import walk_arguments
from hostjit.capturing.compile_lock import compile_lock
from hostjit.capturing.instances import instance_dict, is_a, is_one_of
from hostjit.capturing.tensors import TensorFacts
from hostjit.capturing.thread_state import ThreadState
from hostjit.collection_pause import collection_paused
from hostjit.compiling.numbers_outside import NumberOutside
from hostjit.optimizers.rules import rule_of
from hostjit.recording.calls.mismatch import Signature
from hostjit.recording.calls.opened_objects import Opened, expanded
from hostjit.recording.code.deciding import CALLS_OF_MODULES
from hostjit.recording.code.libraries import is_library, is_own
from hostjit.recording.code.library_calls import note_c_call, note_library_call
from hostjit.recording.code.names import reads_groups
from hostjit.recording.code.seen_code import SeenCode
from hostjit.recording.graph.inputs import Gradient, Kept
from hostjit.recording.graph.read_numbers import (
    hand_over_numbers,
    plain_result,
    plain_values,
)
from hostjit.recording.graph.recorder import Recorder
from hostjit.recording.programs.needed_gradients import needs_gradients
from hostjit.recording.programs.results import Results
from hostjit.recording.reach.state import Counter, State
from hostjit.recording.replays.replay import Replay
from hostjit.recording.running.compiled_regions import compiled_regions_run_eagerly
from hostjit.recording.running.function_watcher import FunctionWatcher, unseen_watcher
from hostjit.recording.running.generator_states import note_state
from hostjit.recording.running.gradient_hooks import adds_hook
from hostjit.recording.running.optimizer_steps import RecordedSteps
from hostjit.recording.running.profilers import active_profiler
from hostjit.recording.running.run_attributes import RunAttributes
from hostjit.recording.triton.launches import RecordedLaunches

if TYPE_CHECKING:
    from hostjit.recording.recordings import Recordings

__all__ = ["Codes", "RecordedRun", "SelectedCopyError", "UntakenAttributesError"]

# Code that was seen, with its globals.
Codes = dict[types.CodeType, dict[str, Any]]


class SelectedCopyError(Exception):
    """Raised where others may tell what code has chosen from a copy: calls choose anew."""


class UntakenAttributesError(Exception):
    """Raised where code has asked what tensors of attributes are, which the program is not given.

    Attributes:
        keys: of the attributes.
    """

    def __init__(self, keys: set[tuple[int, str]]) -> None:
        super().__init__(keys)
        self.keys = keys


class RecordedRun:
    """Runs one call of a target and records it.

    Attributes:
        recorder: what ran.
        attributes: what the call does with those that are its own affair.
        tuned: a kernel was measured meanwhile, which the next call need not repeat.
        changes_settings: the call has changed modes of PyTorch.
    """

    def __init__(
        self,
        owner: Recordings,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: Sequence[torch.Tensor],
        opened: Opened,
    ) -> None:
        self._owner = owner
        self._args, self._kwargs = args, kwargs
        self._leaves = leaves
        self._opened = opened
        self._facts = list(map(_placed_facts, leaves))
        self._state = State()
        self.attributes = RunAttributes(owner.attributes, self._state)
        self._state.add_arguments(args, kwargs, opened)
        self._state.add_target(owner.target)
        self.recorder = Recorder(leaves, self._state, owner.options.on_read)
        self.attributes.give_to(self.recorder)
        self.recorder.most = owner.most_operators()
        self._counters: list[Counter] = []
        self._result: Any = None
        self._plain: dict[int, Any] = {}
        self.tuned = False
        self.changes_settings = False

    def run(self, codes: Codes) -> None:
        """Run the target. `codes`: seen at earlier recordings."""
        state, recorder = self._state, self.recorder
        before = ThreadState.current()
        for code, variables in codes.items():
            state.add_code(code, variables)
        recorder.leaving.state = self._changed_so_far
        recorder.choosing.deciding = self._deciding
        recorder.caller = sys._getframe()
        args = self._args
        if self._owner.open_arguments is not None:
            args = tuple(self._owner.open_arguments.opened(args, recorder))
            recorder.has_numbers = bool(recorder.opened)
        self._seen = SeenCode(
            functools.partial(_visit, state, self.attributes),
            state.is_large,
            functools.partial(_begin, state, recorder),
            functools.partial(_note_c_call, state, recorder, self.attributes),
            functools.partial(note_state, recorder),
            lambda: recorder.is_over,
        )
        target = self._owner.target_with_choices()
        self._note_module(self._owner.target, target)
        profiler = active_profiler()
        self._launches = RecordedLaunches(recorder, state)
        try:
            with (
                collection_paused(),
                compiled_regions_run_eagerly(),
                RecordedSteps(recorder, state),
                self._launches,
                # Code of backward passes is seen in this thread only.
                torch.autograd.set_multithreading_enabled(False),
                FunctionWatcher(recorder),
                unseen_watcher(),
                self.attributes.accesses,
                chooses_by(recorder.choosing),
                recorder,
                self._seen,
            ):
                result = target(*args, **self._kwargs)
        finally:
            recorder.caller = None
            recorder.leaving.state = dict  # this one would keep itself alive
            recorder.choosing.deciding = lambda called: called
            recorder.takes_number = lambda owner, name: False
            if profiler is not None:
                profiler.enable()  # here, in a frame that it has seen begin
        recorder.leave_seeds()
        recorder.leaving.note_end()
        recorder.drop_constant_reads()
        self.tuned = self._launches.tuned
        self.changes_settings = ThreadState.current() != before
        self._result, self._plain = result, plain_values(result)

    def _deciding(self, called: Any) -> Any:
        made = self._owner.deciding(called)
        self._note_module(called, made)
        return made

    def _note_module(self, called: Any, made: Any) -> None:
        """Have a call of a module depend on what `forward` alone does not: its hooks, say."""
        if made is not called and is_a(called, torch.nn.Module):
            for code in CALLS_OF_MODULES:
                self._state.add_code(code, vars(torch.nn.modules.module))

    def _changed_so_far(self) -> dict[Any, Any]:
        """Return what is another by now than when the call began, by places."""
        found = self._state.changed()
        found |= self.attributes.changed_so_far()
        found["thread", ThreadState.current()] = None
        return found

    def put_back(self) -> Any:
        """Return the result that eager would, and give others the tensors that it would give them.

        Nothing more can be made of the recording then.
        """
        choosing = self.recorder.choosing
        result = plain_result(self._result, {**self._plain, **choosing.originals})
        choosing.put_back()
        self.attributes.put_back_numbers()
        return result

    def gave_up(self) -> bool:
        """Tell whether what the call can reach was not looked at to the end: nothing repeats it."""
        return self._seen.gave_up or self._state.gave_up

    def may_make_own_steps(self) -> bool:
        """Tell whether the call can reach an optimizer that there is no rule for."""
        optimizers = (x for x in self._state.objects.values() if is_a(x, torch.optim.Optimizer))
        return any(rule_of(type(x)) is None for x in optimizers)

    def codes(self) -> Codes:
        """Return the code that ran, for the next recording.

        What a library reads of optimizers it may not read then.
        """
        return {
            code: variables
            for code, variables in self._state.codes.items()
            if not (reads_groups(code) and is_library(code.co_filename))
        }

    def follow_counters(self) -> None:
        """Have replays move the counters that the call has moved, whatever they are then."""
        self._counters = self._state.take_counters()

    def changes(self) -> list[str]:
        """Say which Python state the call has changed."""
        return self._state.changes()

    def changes_are_followed(self) -> bool:
        """Tell whether all that has changed is what `hostjit.compile` follows."""
        return self._state.changes_are_followed()

    def numbers(self) -> list[NumberOutside]:
        """Return the numbers outside that were read."""
        return self._state.numbers()

    def problem(self) -> str:
        """Say why the call cannot be replayed; "" where nothing is known. Forgets graphs."""
        state, recorder = self._state, self.recorder
        problem = recorder.problem or self._seen.problem or recorder.hook_that_stays()
        problem = problem or state.obstacle or state.known_argument()
        if not problem and list(map(_placed_facts, self._leaves)) != self._facts:
            problem = "it changes what its arguments are, not only what is in them"
        if any(id(gradient) in state.leaves for _, gradient in state.gradients.values()):
            problem = problem or "an argument is the gradient of a tensor that it can reach"
        if not self.attributes.are_left_alone():
            problem = problem or "it may look at all attributes of an object that it changes"
        if state.take_changed_graphs():
            problem = problem or "gradients flow through its writes of tensors that others have"
        gradients = [id(s.tensor) for s in recorder.sources if isinstance(s, Gradient)]
        if any(state.is_found_elsewhere(gradient) for gradient in gradients):
            problem = problem or "it finds the gradient of a tensor in another place, too"
        return problem

    def make(self, signature: Signature) -> tuple[Replay, _C.Specialization]:
        """Compile what was recorded; raises CaptureError where that cannot be replayed."""
        recorder = self.recorder
        containers: dict[int, Any] = {}
        opened = self._opened

        def note(value: Any) -> None:
            if is_a(value, (list, dict)) or is_one_of(type(value), opened):
                containers[id(value)] = value

        expanded(self._args, self._kwargs, opened, note)
        walk_arguments(self._args, note)
        for value in self._kwargs.values():
            walk_arguments(value, note)
        assigned = [*self.attributes.accesses.assigned()]
        results = Results(self._result, recorder, self._state, containers, assigned)
        recorder.choosing.note_results(results.nodes, results.tensors, results.staying)
        if recorder.choosing.is_refused or recorder.is_ambiguous:
            raise SelectedCopyError
        wants_gradients = needs_gradients(results, recorder, self._seen.codes)
        kept = [source for source in recorder.sources if isinstance(source, Kept)]
        if wants_gradients and kept:  # backward passes are given none that may be replaced
            raise UntakenAttributesError(self.attributes.keys_of(kept))
        replay = Replay(
            self._owner,
            recorder,
            self._state,
            results,
            wants_gradients,
            self._launches.aligned,
            self._leaves,
            signature,
            self._opened,
            self._counters,
        )
        with compile_lock:
            specialization = replay.build(self._args, self._kwargs)
        taken = {(id(x[1]), x[2]) for x in replay.live_inputs() if x[0] == "attribute"}
        given = recorder.kept.values()
        not_taken = [each for each in given if (id(each.attributes), each.name) not in taken]
        keys = filter(self.attributes.accesses.has_read, self.attributes.keys_of(not_taken))
        if untaken := {*keys}:
            raise UntakenAttributesError(untaken)
        return replay, specialization


def _visit(
    state: State, attributes: RunAttributes, code: types.CodeType, variables: dict[str, Any]
) -> None:
    """Look at what code can reach that is about to run for the first time."""
    state.add_code(origin_of(code), variables)
    attributes.hand_over()


def _begin(state: State, recorder: Recorder, frame: types.FrameType) -> str:
    """Look at what code is given that begins to run; return what a replay can't answer, or ""."""
    # What is still to run need not be recorded.
    recorder.problem = recorder.problem or state.hindrance
    is_first = frame.f_back is recorder.caller  # what it is given was opened for it
    if recorder.has_numbers and not (is_first or _keeps_numbers(frame.f_code)):
        hand_over_numbers(frame)
    return note_library_call(state, frame)


def _keeps_numbers(code: types.CodeType) -> bool:
    """Whether code knows what stands for numbers, or is part of code that keeps them."""
    return is_own(code.co_filename) or is_of_choice(code)


def _note_c_call(
    state: State,
    recorder: Recorder,
    attributes: RunAttributes,
    frame: types.FrameType,
    function: Any,
) -> None:
    """Note what Python code is about to ask a function of C code, or a node of a graph."""
    note_c_call(state, frame, function)
    attributes.hand_over()
    if adds_hook(function):
        recorder.note_hook(function.__name__, function.__self__)


def _placed_facts(tensor: torch.Tensor) -> Any:
    """Return what a tensor is, whose memory it has, and the attributes of its own."""
    own = instance_dict(tensor) or {}
    marks = {name: id(value) for name, value in own.items() if not name.startswith("_dynamo")}
    return TensorFacts.of(tensor), tensor.untyped_storage()._cdata, marks
