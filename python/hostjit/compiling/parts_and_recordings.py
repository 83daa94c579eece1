# SPDX-License-Identifier: Apache-2.0
"""What answers calls that cannot be captured whole: parts, and recordings of the whole."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

import torch._dynamo

from hostjit import _C
from hostjit.bytecode.choices import has_choices
from hostjit.bytecode.loops import PassVariables
from hostjit.bytecode.splits import split_ahead_of_steps
from hostjit.capturing.compile_lock import compile_lock, is_left_locked
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.failures import stops_at_gradients
from hostjit.capturing.module_fields import has_plain_call
from hostjit.compiling.around_changes import Places, names_in_path
from hostjit.compiling.code_choices import CodeChoices
from hostjit.compiling.numbers_outside import NumbersOutside
from hostjit.compiling.specializer import Specializer, route_any_call
from hostjit.compiling.split_calls import function_and_receiver

if TYPE_CHECKING:
    from hostjit.parts.parts import Parts
    from hostjit.parts.whole import Whole
    from hostjit.recording.reach.attributes import Attribute

__all__ = ["PartsAndRecordings"]

# Where so many calls have compiled parts, others will.
_MOST_COMPILING = 8


class PartsAndRecordings(Specializer):
    """A specializer that may leave calls to parts of its target, or to recordings.

    Attributes:
        numbers_outside: what recordings found; the function's parts know it from the first call on.
        replaced_attributes: those that calls replace, the same.
        pass_variables: the function does what a pass of a loop with these does.
        records_parts: what Python does behind the last backward pass is not recorded.
        records_more: recordings may differ more than those that were given up.
        opens_numbers: where it is recorded, numbers among its arguments may be any.
        records_ahead_of_steps: steps of optimizers, and what follows, are not recorded.
    """

    pass_variables: PassVariables | None = None
    records_parts = True
    records_more = False
    records_ahead_of_steps = False
    opens_numbers = False

    # What may be saved compares all arguments.
    _is_part = False
    _has_parts = True

    def __init__(
        self,
        target: Callable[..., Any],
        runtime: str | None,
        fallback: bool,
        reuse_outputs: bool = False,
        choices: CodeChoices | None = None,
    ) -> None:
        super().__init__(target, runtime, fallback, reuse_outputs, choices)
        self.numbers_outside = NumbersOutside()
        self.replaced_attributes: list[Attribute] = []
        self._parts: Parts | None = None
        self._function: weakref.ref[_C.CompiledFunction] | None = None
        self._recorded: Callable[..., Any] | None = None
        self._may_record = True
        self._records_all = False
        self._tries_passes = False
        self._passes_gave_up = self._are_too_long = False
        self._calls_differ = False
        self._reason_for_parts = ""
        self._compiling = 0
        self._before_recordings: list[_C.Specialization] = []
        self._around: Places | None = None
        self._splits_around = self._goes_inside = False
        self._pieces: list[_C.CompiledFunction] = []

    def answers_anew(self) -> _C.CompiledFunction | None:
        """Return the function of this one, which finds no program any more."""
        compiled = self._function() if self._function is not None else None
        if compiled is not None:
            compiled.forget()
        return compiled

    def _may_fall_back(self) -> bool:
        # Where `torch._dynamo.error_on_graph_break(True)` is around the call.
        raises = getattr(torch._dynamo.utils, "_get_error_on_graph_break", bool)
        return self.fallback and not raises()

    def _make_parts(self) -> Parts | None:
        """Return what runs calls that can't be captured whole, where that is wanted."""
        if not self._may_fall_back():
            return None
        if self._parts is None and self._has_parts:
            from hostjit.parts.parts import Parts

            self._parts = Parts(self.target, self._as_whole(), is_whole=not self._is_part)
            self._parts.record_loops_alone = not self._may_record
        return self._parts

    def _as_whole(self) -> Whole:
        """Return what the parts of the target know of it."""
        from hostjit.compiling.options import Options
        from hostjit.parts.whole import Whole

        options = Options(runtime=self.runtime, **self.choices.keywords())
        # Nothing holds this one but the function, so that it goes away with it.
        record = weakref.WeakMethod(self._record_all)
        return Whole(
            self._target_name(),
            self._said,
            options,
            self.numbers_outside,
            self.replaced_attributes,
            lambda **how: (found := record()) is not None and found(**how),
        )

    def _record_instead(self, error: CaptureError, *, in_loop: bool) -> _C.Specialization | None:
        """Leave all calls to recordings, where they do better than parts; None: they don't.

        That is where Dynamo could not go on behind the break, in loops above all, where the break
        is one of many: backward passes, and steps of optimizers, and where values decide, of which
        recordings follow either way. Not where each pass of a loop reads values.
        """
        if not in_loop and self._records_loops_alone():
            return None
        if not (in_loop or stops_at_gradients(error) or self._may_follow(error)):
            return None
        return self._recordings()

    def _may_follow(self, error: CaptureError) -> bool:
        """Tell whether recordings may follow what the code decides, where a capture has stopped."""
        target: Any = self.target
        function, _ = function_and_receiver(target.forward if has_plain_call(target) else target)
        if error.failure is not CaptureFailure.DATA_DEPENDENT or function is None:
            return False
        is_called = bool(error.stack) and not error.is_in(function.__code__)
        return has_choices(function) or (is_called and not self._is_part)

    def _record_all(self, *, passes_gave_up: bool = False) -> bool:
        """Leave all calls to recordings from the next one on; tell whether they will be.

        `passes_gave_up`: they are in vain for passes of its loop.
        """
        if is_left_locked():
            return False
        with compile_lock:
            self._tries_passes = False
            self._passes_gave_up = self._passes_gave_up or passes_gave_up
            self._compiling += self._calls_differ
            if self._compiling >= _MOST_COMPILING and not self.records_more:
                self._may_record = self.records_more = True
            if not self._records_all and self._recordings() is not None:
                compiled = self._function() if self._function is not None else None
                assert compiled is not None
                self._records_all = True
                self._before_recordings = [
                    x
                    for x in compiled.specializations
                    if x.describe()["route"] is not self._recorded
                ]
                compiled.forget()
            return self._records_all

    def note_calls_differ(self) -> None:
        """Note that there might be a recording for each of many calls.

        Parts are for any sizes and values. Where they are compiled again and again all the same,
        calls are recorded once more.
        """
        self._calls_differ = True

    def give_up_recordings(self, reason: str = "") -> None:
        """Answer calls as before there were recordings, of which there will be no more.

        `reason`: why, in words, if that is known.
        """
        self._reason_for_parts = reason
        if self.records_ahead_of_steps:
            self._said.discard("parts")
        self.record_no_more()
        self._goes_inside = True
        self._answer_as_before()

    def record_around(
        self, changes: Iterable[str], called: Collection[types.CodeType], reason: str
    ) -> bool:
        """Leave lines to Python that have to do with state which calls change; record the others.

        Tells whether the code can be split so, and has not been so far.

        Args:
            changes: where state is that calls change, in words.
            called: code of users that calls run.
            reason: the same, for messages.
        """
        if not self._leave_to_python(changes, called):
            return False
        self.record_no_more()
        self._reason_for_parts = reason
        self.answers_anew()
        return True

    def _leave_to_python(
        self, changes: Iterable[str], called: Collection[types.CodeType] = ()
    ) -> bool:
        """Have lines left to Python that have to do with what changes; tell whether they are.

        That is where the code can be split so, and has not been so far.
        """
        function, _ = function_and_receiver(self.target)
        if function is None or self._around or self.pass_variables is not None:
            return False
        names = [names_in_path(each, self.target) for each in changes]
        self._around = Places(function.__code__, names, called)
        self._splits_around = bool(self._around)
        if self._splits_around:
            self._latest = None  # its parts have others
        return self._splits_around

    def record_ahead_of_steps(self) -> bool:
        """Leave steps of optimizers to programs of their own, and record what is ahead of them.

        Tells whether the code can be split there, and was not before.
        """
        if self.records_ahead_of_steps or split_ahead_of_steps(self.target) is None:
            return False
        self.records_ahead_of_steps = self._records_all = True
        self._recorded = None
        self.say_nothing_of_parts()
        self.answers_anew()
        return True

    def may_try_passes(self) -> bool:
        """Tell whether passes of a loop may be compiled, where calls take too long to record."""
        if self._tries_passes or self._passes_gave_up or self.passes_were_tried:
            return False
        return self._parts is not None and self._parts.has_passes

    def try_passes(self, *, are_too_long: bool = False) -> None:
        """Answer calls as before there were recordings, until a pass of a loop says what it is.

        If one program runs passes, they do as well. `are_too_long`: so they do unless passes are in
        vain.
        """
        self._are_too_long = are_too_long
        self._tries_passes, self._records_all = True, False
        self._answer_as_before()

    def _answer_as_before(self) -> None:
        compiled = self.answers_anew()
        if compiled is not None:
            for specialization in reversed(self._before_recordings):
                compiled.add(specialization)
        self._before_recordings = []

    def _recordings(self) -> _C.Specialization | None:
        """Leave all calls to recordings; None where none are wanted."""
        function = self._function() if self._function is not None else None
        if not (self._may_record and self._may_fall_back() and self._has_parts) or function is None:
            return None
        parts = self._make_parts()
        if self._are_too_long and not self._passes_gave_up:
            return None
        if self._tries_passes or (
            parts is not None and parts.reads_in_passes(are_followed=self._passes_gave_up)
        ):
            return None
        if self._recorded is None:
            from hostjit.recording.instead_of_parts import recorded_instead_of_parts

            self._recorded = recorded_instead_of_parts(self, function)
        return route_any_call(self._recorded)

    def _records_loops_alone(self) -> bool:
        return self._parts is not None and self._parts.record_loops_alone

    def part(self, function: types.FunctionType, *, records: bool = False) -> Callable[..., Any]:
        """Return a part of the target, as a compiled function where there are such.

        `records`: it may be recorded, though the whole was in vain.
        """
        parts = self._make_parts()
        if parts is None:
            return function
        part = parts.part(function, records=records)
        self._pieces.append(part)
        return part

    def latest_program(self) -> _C.CompiledProgram | None:
        """Return the program that was compiled last; of a function that is split, of its parts."""
        programs = (piece.owner.latest_program() for piece in reversed(self._pieces))
        return self._latest or next(filter(None, programs), None)

    def _program(self) -> _C.CompiledProgram:
        return self.latest_program() or super()._program()

    def record_no_more(self) -> None:
        """Run calls that cannot be captured whole in parts; of these, record loops alone."""
        self._may_record = self._records_all = False
        self._recorded = None
        if self._parts is not None:
            self._parts.record_loops_alone = True

    @property
    def recorded_target(self) -> Callable[..., Any]:
        """What is called where a call is recorded: the target, or what does the same."""
        return self.target

    @property
    def passes_were_tried(self) -> bool:
        """Whether calls are recorded again, since passes of their loops run one by one."""
        return self._records_all

    def note_single_pass(self) -> None:
        """Note that a recording of a pass of a loop does not lead to the end of the loop."""

    def note_program(self, program: _C.CompiledProgram) -> None:
        """Remember what questions about the program are about."""
        self._latest = program

    def say(self, key: str, message: str) -> None:
        """Warn of something once."""
        self._say(key, message)

    def say_nothing_of_parts(self) -> None:
        """Run calls in parts without a word, where somebody has said so before."""
        self._said.add("parts")
