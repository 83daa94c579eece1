# SPDX-License-Identifier: Apache-2.0
"""A call that runs and is recorded, and what has to hold for it to be replayed."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import types
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from hostjit import _C
from hostjit.bytecode.chooser import chooses_by
from hostjit.bytecode.made_code import is_of_choice, origin_of
from hostjit.bytecode.uses import uses_of_attribute
from hostjit.capturing.arguments import walk_arguments
from hostjit.capturing.compile_lock import compile_lock
from hostjit.capturing.guards.structures import compares_identities
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
from hostjit.recording.code.seen_code import SeenCode, Unseen
from hostjit.recording.graph.inputs import Gradient, Kept, OpenArgument
from hostjit.recording.graph.kept_numbers import attribute_is_kept, is_kept
from hostjit.recording.graph.open_arguments import may_be_any
from hostjit.recording.graph.read_numbers import (
    ReadNumber,
    hand_over_numbers,
    plain_result,
    plain_values,
)
from hostjit.recording.graph.recorder import Recorder
from hostjit.recording.graph.references import replace_everywhere
from hostjit.recording.programs.needed_gradients import needs_gradients
from hostjit.recording.programs.results import Results
from hostjit.recording.reach.attributes import Accesses, Attribute, Owners
from hostjit.recording.reach.entries import attribute_at
from hostjit.recording.reach.state import Counter, State
from hostjit.recording.replays.replay import Replay
from hostjit.recording.running.compiled_regions import compiled_regions_run_eagerly
from hostjit.recording.running.function_watcher import FunctionWatcher, unseen_watcher
from hostjit.recording.running.generator_states import note_state
from hostjit.recording.running.gradient_hooks import adds_hook
from hostjit.recording.running.optimizer_steps import RecordedSteps
from hostjit.recording.running.profilers import active_profiler
from hostjit.recording.stand_in import StandIn
from hostjit.recording.triton.launches import RecordedLaunches

if TYPE_CHECKING:
    from hostjit.recording.recordings import Recordings

__all__ = ["Codes", "RecordedRun", "SelectedCopyError", "UntakenAttributesError"]

_NONE: frozenset[str] = frozenset()
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
        assigned, numbers = owner.attributes.by_owner(), owner.attributes.numbers_by_owner()
        kept = owner.attributes.kept_by_owner()
        self._accesses = Accesses(assigned, kept, numbers, self._number)
        for found, names in (*assigned.values(), *kept.values(), *numbers.values()):
            alone = self._state.left_alone
            alone[id(instance_dict(found))] = alone.get(id(instance_dict(found)), _NONE) | names
        self._alone = [x for x, _ in (*assigned.values(), *kept.values(), *numbers.values())]
        self._numbers: dict[tuple[int, str], tuple[int | float, torch.Tensor]] = {}
        self._state.add_arguments(args, kwargs, opened)
        self._state.add_target(owner.target)
        self.recorder = Recorder(leaves, self._state, owner.options.on_read)
        self._kept: dict[int, tuple[int, str]] = {}
        self._left = self._keep(kept) | _no_numbers(numbers)
        self._before = {key: names & {*_plain_tensors(x)} for key, (x, names) in assigned.items()}
        self._numbers_before = {
            key: frozenset(name for name in names if _is_number((instance_dict(x) or {}).get(name)))
            for key, (x, names) in assigned.items()
        }
        self.recorder.most = owner.most_operators()
        self._counters: list[Counter] = []
        self._result: Any = None
        self._plain: dict[int, Any] = {}
        self.tuned = False
        self.changes_settings = False

    def _keep(self, owners: Owners) -> set[tuple[int, str]]:
        """Give the program what attributes have; return those that are no tensors, or one tensor.

        By `Attribute.key`.
        """
        left: set[tuple[int, str]] = set()
        for owner, names in owners.values():
            attributes, tensors = instance_dict(owner) or {}, _plain_tensors(owner)
            for name in sorted(names):
                tensor = tensors.get(name)
                if tensor is None or id(tensor) in self.recorder.kept:
                    left.add((id(owner), name))
                else:
                    self.recorder.kept[id(tensor)] = Kept(tensor, attributes, name)
                    self._kept[id(tensor)] = id(owner), name
        return left

    def run(self, codes: Codes) -> None:
        """Run the target. `codes`: seen at earlier recordings."""
        state, recorder = self._state, self.recorder
        before = ThreadState.current()
        for code, variables in codes.items():
            state.add_code(code, variables)
        recorder.leaving.state = self._changed_so_far
        recorder.choosing.deciding = self._deciding
        recorder.takes_number = self._takes_number
        recorder.caller = sys._getframe()
        args = self._args
        if self._owner.open_arguments is not None:
            args = tuple(self._owner.open_arguments.opened(args, recorder))
            recorder.has_numbers = bool(recorder.opened)
        self._seen = SeenCode(
            functools.partial(_visit, state, self._accesses),
            state.is_large,
            functools.partial(_begin, state, recorder),
            functools.partial(_note_c_call, state, recorder, self._accesses),
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
                self._accesses,
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
        found["assigned", self._accesses.num_assigned()] = None
        for owner, name in self._accesses.assigned():
            found["assigned", id(owner), name] = (instance_dict(owner) or {}).get(name)
        found["thread", ThreadState.current()] = None
        return found

    def put_back(self) -> Any:
        """Return the result that eager would, and give others the tensors that it would give them.

        Nothing more can be made of the recording then.
        """
        choosing = self.recorder.choosing
        result = plain_result(self._result, {**self._plain, **choosing.originals})
        choosing.put_back()
        stand_ins = [value for _, _, value in self._accesses.stand_ins()]
        if stand_ins:
            replace_everywhere(stand_ins, {id(each): each.plain() for each in stand_ins})
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

    def assigned(self) -> list[Attribute]:
        """Return the attributes that are all the call has changed; [] where it changed more.

        And where one is a number that others see, or that a pass of a loop changes.
        """
        found = []
        for owner, name in self._state.assigned():
            if _is_number((instance_dict(owner) or {}).get(name)):
                if self._owner.pass_variables is not None or not self._keeps(name):
                    return []
            try:
                found.append(Attribute(weakref.ref(owner), name))
            except TypeError:  # its slots have no place for that
                return []
        return found

    def _keeps(self, name: str) -> bool:
        """Whether code of users seems to keep a number to itself, which an attribute is."""
        return all(
            is_library(code.co_filename) or uses_of_attribute(code, name) is not None
            for code in self._state.codes
            if name in code.co_names
        )

    def used_otherwise(self) -> set[tuple[int, str]]:
        """Return which attributes this call has used otherwise than others, or might have."""
        used = self._accesses.used_otherwise()
        kept = [x for x in self.recorder.sources if isinstance(x, Kept)]
        if kept and any(itertools.starmap(_tells_apart, self._state.codes.items())):
            used |= {self._kept[id(source.tensor)] for source in kept}
        return used

    def left(self) -> set[tuple[int, str]]:
        """Return attributes that calls replace, and that the program cannot be given.

        Now they are no tensors, or they are what is elsewhere, too: a program has one input for it.
        """
        known = (self._state.tensors, self._state.leaves, self.recorder.asked)
        found = (key for tensor, key in self._kept.items() if any(tensor in x for x in known))
        return self._left.union(found)

    def replaced(self, keys: Iterable[tuple[int, str]]) -> list[Attribute]:
        """Return those attributes, of some, that were tensors when the call began."""
        return self._among(keys, self._before)

    def changed_tensors(self) -> list[Attribute]:
        """Return the attributes that were tensors when the call began, and are others now."""
        found = self._state.tensors_of_objects()
        return [each for each, was, now in found if was is not now and _is_plain(was)]

    def tensors_met(self) -> dict[tuple[int, str], tuple[Attribute, int]]:
        """Return the attributes that are tensors, with the ids of these, by `Attribute.key`."""
        found = self._state.tensors_of_objects()
        return {each.key: (each, id(was)) for each, was, _ in found if _is_plain(was)}

    def numbers_among(self, keys: Iterable[tuple[int, str]]) -> list[Attribute]:
        """Return those attributes, of some, that were numbers when the call began."""
        return self._among(keys, self._numbers_before)

    def _among(
        self, keys: Iterable[tuple[int, str]], names: Mapping[int, frozenset[str]]
    ) -> list[Attribute]:
        owners = {id(owner): owner for owner in self._alone}
        return [
            Attribute(weakref.ref(owners[owner]), name)
            for owner, name in keys
            if name in names.get(owner, ())
        ]

    def wanted_numbers(self) -> list[Attribute]:
        """Return the attributes that are to be numbers by which the call does not choose."""
        found = []
        for owner, name in self.recorder.choosing.wanted:
            if _is_number((instance_dict(owner) or {}).get(name)):
                with contextlib.suppress(TypeError):  # its slots have no place for that
                    found.append(Attribute(weakref.ref(owner), name))
        return found

    def numbers_seen(self) -> set[tuple[int, str]]:
        """Return attributes whose numbers the call replaces, and which others see: by their keys.

        They are others at the next call.
        """
        keys = {id(tensor): key for key, (_, tensor) in self._numbers.items()}
        seen = [read.node for read in self.recorder.reads if read.expected.dtype is not torch.bool]
        found = {keys.get(id(source.tensor)) for source in self.recorder.sources_of(seen)}
        return {key for key in found if key is not None and self._accesses.has_assigned(key)}

    def _takes_number(self, owner: Any, name: str) -> bool:
        return self._accesses.takes_number(owner, name) and self._state.leaves_alone(owner)

    def _is_followed(self, name: str, frame: types.FrameType) -> bool:
        """Whether the code of a frame, which reads an attribute, keeps the number to itself."""
        with Unseen():
            if is_own(frame.f_code.co_filename):  # it reads for a statement that chooses
                return attribute_is_kept(name, frame, self.recorder)
            is_of_library = is_library(frame.f_code.co_filename)
            return not is_of_library and is_kept(frame, self.recorder, is_attribute=True)

    def attributes_of(self, numbers: Iterable[NumberOutside]) -> list[Attribute]:
        """Return where numbers are; [] if some are no plain attributes of objects."""
        found = []
        for number in numbers:
            attribute = attribute_at(number.holder, *number.place)
            if attribute is None:
                return []
            found.append(attribute)
        return found

    def _number(self, owner: Any, name: str, value: Any, frame: types.FrameType) -> Any:
        """What stands for a number among the attributes of an object in the code of a frame."""
        if self._accesses.has_assigned((id(owner), name)):
            if not isinstance(value, StandIn):
                return None
            is_followed = self._is_followed(name, frame)
            return value if is_followed else value.read()
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            if not (_is_number(value) and self._is_followed(name, frame)):
                return None
            key, kind = (id(owner), name), type(value)
            if key not in self._numbers:
                dtype = torch.int64 if kind is int else torch.float64
                tensor = torch.tensor(value, dtype=dtype, device="cpu")
                self._numbers[key] = value, tensor
                place, slot = (instance_dict(owner), name), len(self.recorder.opened)
                self.recorder.add_open(OpenArgument(tensor, slot, kind, None, None, place))
                self.recorder.has_numbers = True
            known, tensor = self._numbers[key]
            if known is not value:  # the call has changed it
                return None
            return ReadNumber(tensor, self.recorder, is_small=kind is int)

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
        if not all(map(state.leaves_alone, self._alone)):
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
        assigned = [*self._accesses.assigned()]
        results = Results(self._result, recorder, self._state, containers, assigned)
        recorder.choosing.note_results(results.nodes, results.tensors, results.staying)
        if recorder.choosing.is_refused or recorder.is_ambiguous:
            raise SelectedCopyError
        wants_gradients = needs_gradients(results, recorder, self._seen.codes)
        kept = [source for source in recorder.sources if isinstance(source, Kept)]
        if wants_gradients and kept:  # backward passes are given none that may be replaced
            raise UntakenAttributesError({self._kept[id(source.tensor)] for source in kept})
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
        unseen = {
            self._kept[id(source.tensor)]
            for source in recorder.kept.values()
            if (id(source.attributes), source.name) not in taken
        }
        if unseen := {key for key in unseen if self._accesses.has_read(key)}:
            raise UntakenAttributesError(unseen)
        return replay, specialization


def _visit(
    state: State, accesses: Accesses, code: types.CodeType, variables: dict[str, Any]
) -> None:
    """Look at what code can reach that is about to run for the first time."""
    state.add_code(origin_of(code), variables)
    _hand_over_attributes(state, accesses)


def _hand_over_attributes(state: State, accesses: Accesses) -> None:
    """Give objects numbers in place of what stands for them, where code looks at all they are.

    It need not ask for an attribute by its name.
    """
    for owner, name, value in [*accesses.stand_ins()]:
        if not state.leaves_alone(owner):
            (instance_dict(owner) or {})[name] = value.read()


def _begin(state: State, recorder: Recorder, frame: types.FrameType) -> str:
    """Look at what code is given that begins to run; return what a replay can't answer, or ""."""
    # What is still to run need not be recorded.
    recorder.problem = recorder.problem or state.hindrance
    is_first = frame.f_back is recorder.caller  # what it is given was opened for it
    if recorder.has_numbers and not (is_first or _keeps_numbers(frame.f_code)):
        hand_over_numbers(frame)
    return note_library_call(state, frame)


def _is_number(value: Any) -> bool:
    return may_be_any(value) or type(value) is float


def _no_numbers(owners: Owners) -> set[tuple[int, str]]:
    """Those attributes, by `Attribute.key`, that are no numbers now."""
    return {
        (key, name)
        for key, (owner, names) in owners.items()
        for name in names
        if not _is_number((instance_dict(owner) or {}).get(name))
    }


def _plain_tensors(owner: Any) -> dict[str, torch.Tensor]:
    """The attributes of an object that are tensors, and no more than their elements."""
    return {
        name: value
        for name, value in (instance_dict(owner) or {}).items()
        if type(value) is torch.Tensor and _is_plain(value)
    }


def _is_plain(tensor: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided or tensor.requires_grad or tensor.is_inference():
        return False
    return not (tensor.is_conj() or tensor.is_neg() or tensor.__dict__) and tensor.grad is None


def _tells_apart(code: types.CodeType, variables: dict[str, Any]) -> bool:
    """Whether code of users may ask which tensor something is."""
    file = code.co_filename
    if is_library(str(variables.get("__file__", file)) if file.startswith("<") else file):
        return False
    return compares_identities(code) or "id" in code.co_names


def _keeps_numbers(code: types.CodeType) -> bool:
    """Whether code knows what stands for numbers, or is part of code that keeps them."""
    return is_own(code.co_filename) or is_of_choice(code)


def _note_c_call(
    state: State, recorder: Recorder, accesses: Accesses, frame: types.FrameType, function: Any
) -> None:
    """Note what Python code is about to ask a function of C code, or a node of a graph."""
    note_c_call(state, frame, function)
    _hand_over_attributes(state, accesses)
    if adds_hook(function):
        recorder.note_hook(function.__name__, function.__self__)


def _placed_facts(tensor: torch.Tensor) -> Any:
    """Return what a tensor is, whose memory it has, and the attributes of its own."""
    own = instance_dict(tensor) or {}
    marks = {name: id(value) for name, value in own.items() if not name.startswith("_dynamo")}
    return TensorFacts.of(tensor), tensor.untyped_storage()._cdata, marks
