# SPDX-License-Identifier: Apache-2.0
"""Recordings of a compiled function whose calls cannot be captured whole."""

from __future__ import annotations

import collections
import dataclasses
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from hostjit import _C
from hostjit.bytecode.loops import lines_of_loops
from hostjit.bytecode.splits import Split, split_ahead_of_steps, split_behind_gradients
from hostjit.capturing.arguments import object_leaves, tensor_leaves
from hostjit.capturing.errors import CaptureError
from hostjit.compiling.numbers_outside import NumbersOutside
from hostjit.compiling.specializer import route_any_call
from hostjit.parts.known_objects import is_made_by_callers
from hostjit.recording.calls.mismatch import named_arguments
from hostjit.recording.calls.opened_objects import expanded
from hostjit.recording.code.libraries import is_library
from hostjit.recording.graph.open_arguments import OpenArguments
from hostjit.recording.graph.recorder import Read
from hostjit.recording.limits import Limits, num_met
from hostjit.recording.options import RecordingOptions
from hostjit.recording.reach.attributes import Attribute, Attributes
from hostjit.recording.recordings import Recordings
from hostjit.recording.replays.replay import Replay
from hostjit.recording.running.run import RecordedRun

if TYPE_CHECKING:
    from hostjit.compiling.parts_and_recordings import PartsAndRecordings

__all__ = ["RecordingsInsteadOfParts", "recorded_instead_of_parts"]

# With so many recordings for objects that were soon gone, functions of the same code, or objects of
# one type that nothing but recordings keeps, each call may bring others.
_MOST_GONE = 4
# After so many calls with new objects, none of which was to be recorded, all may bring others.
_MOST_OTHERS = 64
# Then, calls of the form that are not known are not recorded any more.
_MOST_REFUSALS = 4
# Calls in a row that no recording is for, of the few that the call path still asks about.
_MOST_UNLIKE = 2


def recorded_instead_of_parts(
    compilation: PartsAndRecordings, function: _C.CompiledFunction
) -> Callable[..., Any]:
    """Return what records the calls of a compiled function, and replays them.

    What a training step does in Python at its end, to read its loss say, runs as it is.

    Args:
        compilation: of the function; `give_up_recordings` is called where they don't do.
        function: answers all calls from then on.
    """
    split = _split(compilation)
    first = None if split is None else split.first
    owner = RecordingsInsteadOfParts(compilation, weakref.ref(function), first)
    recorded = _C.CompiledFunction(owner.target, owner)
    owner.function = weakref.ref(recorded)
    if split is None:
        return recorded
    return split.joined(recorded, split.rest if split.is_short else compilation.part(split.rest))


def _split(compilation: PartsAndRecordings) -> Split | None:
    """Return the function in what is recorded and the rest; None for all of it."""
    if compilation.records_ahead_of_steps:
        return split_ahead_of_steps(compilation.target)
    return split_behind_gradients(compilation.target) if compilation.records_parts else None


def _places_in_loops(target: Callable[..., Any]) -> frozenset[str]:
    """The lines of loops whose passes can be compiled, "file:line" each."""
    code = getattr(target, "__code__", None)
    if code is None:
        return frozenset()
    return frozenset(f"{code.co_filename}:{line}" for line in lines_of_loops(code))


class RecordingsInsteadOfParts(Recordings):
    """Records calls that would run in parts; where that isn't right for one, it is for none.

    Nothing is said of that: calls in parts are as eager's, and the function says that they are.
    """

    # Calls in parts have programs for any numbers and sizes, and do not depend on what is read.
    _limits_of_calls = Limits(
        floats_only=False, floats=1, in_vain=3, operators=8000, operators_with_floats=200
    )
    _limits = _limits_of_calls
    # Where values decide on loops, before it is known whether one program runs their passes.
    _limits_of_loops = dataclasses.replace(_limits, operators=500)
    # Of passes, of which parts with programs for any sizes are many times as slow.
    _limits_of_passes = dataclasses.replace(_limits, sizes=8, ways=4)
    _num_gone = 0
    _num_others = 0
    _met_own_steps = False
    _is_settled = _is_too_long = False
    _num_unlike = 0

    def __init__(
        self,
        compilation: PartsAndRecordings,
        compiled: Callable[[], _C.CompiledFunction | None],
        first: Callable[..., Any] | None,
    ) -> None:
        """Make none yet. `first`: the part of the function that is recorded; None for all of it."""
        self._compilation = compilation
        if compilation.pass_variables is not None:
            self._limits = self._limits_of_passes
        elif _places_in_loops(compilation.target):
            self._limits = self._limits_of_loops
        if compilation.records_more:
            most = self._limits.operators
            self._limits = dataclasses.replace(self._limits, sizes=8, operators_with_floats=most)
        self._is_part = first is not None
        super().__init__(
            first or compilation.recorded_target,
            RecordingOptions(),
            compilation.runtime,
            True,
            compilation.reuse_outputs,
            compilation.choices,
        )
        self._compiled = compiled
        self._refusals: collections.Counter[tuple[Any, ...]] = collections.Counter()
        self._functions: dict[types.CodeType, weakref.WeakSet[types.FunctionType]] = {}
        self._kept: dict[type, list[Any]] = {}
        if first is None and compilation.pass_variables is not None:
            self.pass_variables = found = compilation.pass_variables
            body: Any = compilation.recorded_target
            self.open_arguments = OpenArguments(body, found.taken, counts=found.counts)
        elif compilation.opens_numbers:
            self.open_arguments = _open_arguments_of(self.target)

    def _new_outside(self) -> NumbersOutside:
        return self._compilation.numbers_outside  # what is a counter to the whole is to its parts

    def _new_attributes(self) -> Attributes:
        found = super()._new_attributes()
        found.keep(self._compilation.replaced_attributes)
        return found

    def _note_replaced(self, found: Sequence[Attribute]) -> None:
        self._compilation.replaced_attributes += found  # parts replace, or are given, others

    def note_program(self, program: _C.CompiledProgram) -> None:
        """Remember what questions about the program are about."""
        super().note_program(program)
        self._compilation.note_program(program)

    def _forget_recorded(self, gone: weakref.ref[Any], replays: set[Replay]) -> None:
        self._num_gone += any(replay.was_in_vain() for replay in replays)
        super()._forget_recorded(gone, replays)

    def _answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._brings_others(args, kwargs) and _C.recompile_limit() is not None:
            return self._compile_from_now_on("is given other objects, and never the same again")
        if self._limits is self._limits_of_loops and self._compilation.passes_were_tried:
            self._limits = type(self)._limits
        if self._is_settled:
            self._num_unlike = self._num_unlike + 1 if self._are_others(args, kwargs) else 0
            if self._num_unlike < _MOST_UNLIKE:
                return None
            return self._compile_from_now_on("is called otherwise than it was recorded")
        if self._refusals and self._refusals[_form(args)] >= _MOST_REFUSALS:
            return None
        return super()._answer(args, kwargs)

    def _open_arguments(self, args: tuple[Any, ...]) -> bool:
        """Have recordings take numbers that vary; tells whether that may be, and was not so."""
        found = _open_arguments_of(self.target)
        names = frozenset[str]() if found is None else found.names(args)
        if self.open_arguments is not None or self._varying.last not in names:
            return False
        self.open_arguments = found
        self._varying = self._new_varying()
        self._start_over()
        return True

    def _are_others(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Tell whether no recording is for calls like this one, whatever values they read."""
        plain = expanded(args, kwargs, self._opened.classes)
        arguments = named_arguments(self.target, *plain)
        replays = (replay for calls in self._calls for replay in calls.replays)
        return not any(replay.differs_by_values(arguments, args, kwargs) for replay in replays)

    def most_operators(self) -> float:
        """Return how many operators are recorded of a call, where its passes may be instead."""
        may_be_passes = self._compilation.may_try_passes() and not self._is_part
        return self._limits_of_calls.operators if may_be_passes else super().most_operators()

    def _note_run(self, run: RecordedRun) -> None:
        self._is_too_long = run.recorder.is_over
        self._met_own_steps = self._met_own_steps or run.may_make_own_steps()

    def _note_reads(self, reads: Sequence[Read]) -> None:
        left = (read for read in reads if not read.is_of_choice)
        decisions = {read.where for read in left if read.expected.dtype is torch.bool}
        if self._limits is self._limits_of_loops:
            if decisions.isdisjoint(_places_in_loops(self._compilation.target)):
                self._limits = type(self)._limits

    def _brings_others(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Tell whether calls bring other objects, or functions, which they make, each time."""
        for found in object_leaves(args, kwargs):
            if isinstance(found, types.FunctionType):
                known = self._functions.setdefault(found.__code__, weakref.WeakSet())
                known.add(found)
                if len(known) > _MOST_GONE:
                    return True
            elif is_made_by_callers(found) and not _C.is_held_weakly(found):
                # A set, say, which recordings would keep.
                kept = self._kept.setdefault(type(found), [])
                if all(other is not found for other in kept):
                    kept.append(found)
                if len(kept) > _MOST_GONE:
                    return True
        return self._num_gone >= _MOST_GONE or self._num_others >= _MOST_OTHERS

    def _note_others(self) -> None:
        self._num_others += 1

    def _record(self, *call: Any) -> Any:
        self._num_others = 0
        return super()._record(*call)

    def note_single_pass(self) -> None:
        self._compilation.note_single_pass()

    def _give_up(self, reason: str = "") -> None:
        self._record_no_more()
        if not (self._met_own_steps and self._compilation.record_ahead_of_steps()):
            self._compilation.give_up_recordings(reason)

    def _record_no_more(self) -> None:
        function = self._compiled()
        self._answers_instead = self.target if self._is_part or function is None else function
        self._kept.clear()

    def _leave_other_ways(self, reason: str) -> _C.Specialization | None:
        if self._limits is self._limits_of_loops:
            self._compilation.try_passes()
            return None  # calls may be recorded again
        replays = [replay for calls in self._calls for replay in calls.replays]
        met = num_met(replays, self._met_again())
        if replays and (2 * met >= len(replays) or (met and all(x.chooses for x in replays))):
            self._is_settled = True  # calls go on to take the ways that are known
            return None
        return super()._leave_other_ways(reason)

    def _compile_from_now_on(self, reason: str) -> _C.Specialization:
        self._compilation.note_calls_differ()
        self._give_up(f"it {reason}")
        assert self._answers_instead is not None
        return route_any_call(self._answers_instead)

    def _refuse(
        self, error: CaptureError, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> _C.Specialization | None:
        if self._is_too_long:
            self._compilation.try_passes(are_too_long=True)
        elif not self._leaves_some(args):
            self._give_up(error.what)
        return None

    def _leaves_some(self, args: tuple[Any, ...]) -> bool:
        """Whether passes that do what no replay repeats, a print say, are left to Python.

        Others like them are repeated.
        """
        self._refusals[_form(args)] += 1
        return any(replay.is_repeated for calls in self._calls for replay in calls.replays)

    def _refuse_changes(
        self, changes: Sequence[str], are_followed: bool, varies: str
    ) -> _C.Specialization | None:
        reason = f"it changes {changes[0]}, which a replay would not"
        called = [code for code in self._codes if not is_library(code.co_filename)]
        if self._compilation.record_around(changes, called, reason):
            self._record_no_more()
        elif varies:
            return super()._refuse_changes(changes, are_followed, varies)
        else:
            self._give_up(reason)
        return None

    def _say(self, key: str, message: str) -> None:
        if key == "kernels":
            self._compilation.say(key, message)
        else:  # why calls run eagerly, or are recorded too often
            self._give_up()


def _open_arguments_of(target: Any) -> OpenArguments | None:
    """Which arguments of a function or a method may be any numbers; None for other callables."""
    function, receiver = target, None
    if isinstance(target, types.MethodType):
        function, receiver = target.__func__, target.__self__
    if not isinstance(function, types.FunctionType):
        return None
    code, skipped = function.__code__, int(function is not target)
    taken = code.co_varnames[skipped : code.co_argcount]
    return OpenArguments(function, taken, counts=False, receiver=receiver)


def _form(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """What calls have in common that may be answered by the same recordings."""
    return (*map(type, args), *((leaf.dtype, leaf.shape) for leaf in tensor_leaves(args, {})))
