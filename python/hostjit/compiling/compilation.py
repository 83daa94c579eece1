# SPDX-License-Identifier: Apache-2.0
"""The Python side of a compiled function: makes specializations for calls that have none."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import weakref
from collections.abc import Callable, Iterator, Set
from typing import TYPE_CHECKING, Any

import torch._dynamo
from torch._subclasses.fake_tensor import FakeTensorMode

from hostjit import _C
from hostjit.capturing.arguments import describe_arguments, holds_array
from hostjit.capturing.by_fields import ByFields
from hostjit.capturing.dynamo.growing_lists import LOOK
from hostjit.capturing.dynamo.numpy_code import begins_with_numpy, stops_at_numpy
from hostjit.capturing.errors import (
    CaptureError,
    CaptureFailure,
    ComputedNumberError,
    in_one_line,
)
from hostjit.capturing.failures import stops_at_gradients
from hostjit.capturing.gradients.backward import SavedTensor, Tangent
from hostjit.capturing.signal_errors import raise_of_handler
from hostjit.compiling.around_changes import CallsAroundChanges
from hostjit.compiling.calls import tensors_share_memory
from hostjit.compiling.code_choices import CodeChoices
from hostjit.compiling.dynamic_shapes import DynamicShapes, Refusal
from hostjit.compiling.parts_and_recordings import PartsAndRecordings
from hostjit.compiling.revalidations import Revalidations
from hostjit.compiling.specializer import route_any_call
from hostjit.compiling.split_calls import function_and_receiver, joined, place_behind
from hostjit.compiling.wide_calls import WideAnswers
from hostjit.dims import without_dims

if TYPE_CHECKING:
    from hostjit.capturing.dynamo.call import DynamoCapture
    from hostjit.capturing.opened import Opened
    from hostjit.capturing.program import CapturedProgram
    from hostjit.parts.arrays import ArrayCalls
    from hostjit.parts.parts import Parts

__all__ = ["Compilation", "FollowListsError"]

# What Dynamo can stop at, and go on behind.
BREAKS = (CaptureFailure.GRAPH_BREAK, CaptureFailure.DATA_DEPENDENT)
# What Dynamo raises otherwise, an error of a library that the code calls say, it may not raise for
# the functions below, each for itself.
_IN_PARTS = (*BREAKS, CaptureFailure.UNTRACED)
# What Dynamo stops at in parts of the call as well.
_IN_NO_PARTS = (
    CaptureFailure.USER_EXCEPTION,
    CaptureFailure.OVERLAPPING_INPUTS,
    CaptureFailure.LAZY_MODULE,
    CaptureFailure.UNSUPPORTED_INPUT,
)


class _BeginsWithNumpyError(Exception):
    """Raised where a first part would be nothing but NumPy's."""

    def __init__(self, broke: CaptureError) -> None:
        super().__init__(broke)
        self.broke = broke


class _PlainPythonError(Exception):
    """Raised where calls are left to Python."""


class FollowListsError(Exception):
    """Raised once, where a call may have nothing to compile behind a look at a list."""


@contextlib.contextmanager
def _followed_lists(parts: Parts) -> Iterator[None]:
    parts.follows_lists = True
    try:
        yield
    finally:
        parts.follows_lists = False


def _compiled_reader(runtime: str | None, read: Callable[..., Any]) -> Callable[..., Any]:
    return _C.CompiledFunction(read, Compilation(read, runtime, fallback=True))


class _MoreFieldsError(Exception):
    """Raised where a program would read fields of arguments that calls do not compare."""


class Compilation(PartsAndRecordings):
    """Specializes Python code, in parts where it can't be captured whole.

    Attributes:
        shapes: what is left open.
    """

    # Which of the calls with many values is the first to be split: all may be like the one before.
    # 0: none is.
    _first_split = 2

    def __init__(
        self,
        target: Callable[..., Any],
        runtime: str | None,
        fallback: bool,
        reuse_outputs: bool = False,
        shapes: DynamicShapes | None = None,
        choices: CodeChoices | None = None,
    ) -> None:
        super().__init__(target, runtime, fallback, reuse_outputs, choices)
        self.shapes = shapes or DynamicShapes(None, None)
        self.shapes.reads.compiled = functools.partial(_compiled_reader, runtime)
        self._arrays: ArrayCalls | None = None
        self._as_python: Callable[..., Any] | None = None
        self._arrays_read: dict[str, int] = {}
        self._wide = WideAnswers(self._first_split)
        self._revalidations = Revalidations()

    def arguments(self) -> tuple[Any, dict[str, Any]]:
        """Return what `hostjit.compile` was called with."""
        target, given = super().arguments()
        return target, {**given, **self.shapes.keywords()}

    @torch._dynamo.disable  # type: ignore[untyped-decorator]
    def specialize(
        self, function: _C.CompiledFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return a Specialization, None to run the target eagerly, or None and a result."""
        self._function = weakref.ref(function)
        plain_args, plain_kwargs, dims = without_dims(args, kwargs)
        if not dims:
            return super().specialize(function, args, kwargs)
        known = function.match(*plain_args, **plain_kwargs)
        if known is None:
            made = super().specialize(function, args, kwargs)
            if made is None:
                return None
            function.add(made)
            known = function.match(*plain_args, **plain_kwargs)
            if known is not made or function.match(*args, **kwargs) is made:
                return made
        # It is for one value of a Dim, which it compares with ints.
        if known.describe()["route"] is self.target:
            return None, self.target(*args, **kwargs)
        return None, function(*plain_args, **plain_kwargs)

    def _specialize(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        args, kwargs, dims = without_dims(args, kwargs)
        if dims:
            self.record_no_more()  # a recording is for one value of each
        self.shapes.ask_for(args, kwargs, dims)
        return super()._specialize(args, kwargs)

    def _answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _C.Specialization | None:
        if self._splits_around:
            return self._split_around()
        if self._goes_inside:
            self._goes_inside = False
            if inside := self._inside():
                return inside
        if self._revalidations.are_too_many and (parts := self._make_parts()):
            self.answers_anew()
            return self._leave_to_frames(parts)
        if self._has_parts and not self._tries_passes:
            if split := self._wide.answer(self, args, kwargs):
                return split
        if self._records_all and (recorded := self._recordings()):
            return recorded
        if self._parts and self._parts.in_use:
            floats = self.shapes.refuses_numbers(args, kwargs)
            records = self.shapes.refuses_objects
            varies = self._parts.varies(args, kwargs, floats=floats, records=records)
            if varies:
                return self._leave_to_frames(self._parts)
            if self._is_full(args, kwargs):
                return self._leave_to_frames_below(self._parts)
        elif self._has_parts and holds_array(args, kwargs):
            return self._answer_arrays(args, kwargs)
        elif parts := self._make_parts():
            classes = self.shapes.note_objects(self.target, args, kwargs)
            if parts.meets_other_objects(args, kwargs, classes):
                return parts.by_frames()
        if self._as_python is not None and self._is_full(args, kwargs):
            return route_any_call(self._as_python)
        return super()._answer(args, kwargs)

    def opened_classes(self) -> ByFields:
        return self.shapes.classes

    def may_run_in_parts(self) -> bool:
        """Tell whether calls that can't be captured whole are to run otherwise than eagerly."""
        return self._make_parts() is not None

    def _limit(self) -> int | None:
        """Return how many programs there may be: fewer of calls with many values."""
        limit = super()._limit()
        return max(limit // 2, 1) if limit is not None and self._wide.were_asked_for else limit

    def _is_full(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        is_full = super()._is_full(args, kwargs)
        if is_full and self.shapes.reads.are_open and self._make_parts():
            # What is read decides too much. Parts are compiled for any value of it.
            self.shapes.reads.refused = True
            self._count = 0
            return False
        return is_full and not self.shapes.may_replace_program(self.target, args, kwargs)

    def _answer_full(self) -> _C.Specialization | None:
        """Have Dynamo compile what the function calls, where it may."""
        parts = self._make_parts()
        if parts is None:
            return super()._answer_full()
        self._say_full("of those it compiles the functions that they call, each for itself")
        return self._leave_to_frames_below(parts)

    def _answer_arrays(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        """Leave calls with arrays to what compiles them over tensors, NumPy's numbers to eager."""
        from hostjit.parts.arrays import ArrayCalls, holds_numbers_alone

        if not holds_numbers_alone(args, kwargs):
            self._arrays = ArrayCalls(self)
            return route_any_call(self._arrays)
        if "array" not in self._said:
            try:
                describe_arguments(args, kwargs)
            except CaptureError as error:
                self._say("array", f"runs eagerly: {error}")
        return None

    def _fall_back(
        self, error: CaptureError, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        parts = self._parts
        if parts and error.failure not in _IN_NO_PARTS:
            if parts.in_use:
                return self._leave_to_dynamo(parts, error, args, kwargs)
            if error.failure in (*BREAKS, CaptureFailure.SWITCHES_GRADIENTS):
                recorded = self._record_instead(error, in_loop=True) or self._inside()
                if recorded is not None:
                    return recorded
            if error.failure in _IN_PARTS:
                self._say_parts(error)
                return self._leave_to_dynamo(parts, error, args, kwargs)
        return super()._fall_back(error, args, kwargs)

    def _leave_to_dynamo(
        self, parts: Parts, error: CaptureError, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization:
        """Leave all further calls to Dynamo, or to eager where two inputs share memory.

        Where it is a loop of training steps that Dynamo cannot follow, each pass is compiled.
        Dynamo takes the views of later calls to lie in their base where those of the first one did.
        That matters where one is written.
        """
        by_passes = parts.by_passes(error)
        if by_passes is not None:
            return route_any_call(by_passes)
        if not tensors_share_memory(args, kwargs):
            return parts.by_frames()
        self._say(str(error.failure), f"runs eagerly: {error}")
        return route_any_call(torch._dynamo.disable(self.target))

    def _leave_to_frames(self, parts: Parts) -> _C.Specialization | None:
        """Leave all further calls to Dynamo, or return None for one that runs eagerly."""
        return parts.by_frames()

    def _leave_to_frames_below(self, parts: Parts) -> _C.Specialization | None:
        """Have Dynamo compile what further calls call, or return None for one that runs eagerly."""
        return parts.by_frames_below()

    def _compile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _C.Specialization | None:
        """Compile with as much left open as should be and can be."""
        tried: list[tuple[Refusal, str]] = []
        while True:
            opened = self.shapes.opened(self.target, args, kwargs)
            try:
                made = self._compile_open(opened, args, kwargs)
            except _MoreFieldsError:
                continue
            except Exception as error:
                raise_of_handler(error)
                # Whatever went wrong: a program for less may do, or raise what the user should see.
                refusal = self.shapes.refuse(opened, self.target, args, kwargs, error)
                if refusal is None:
                    for earlier, _ in reversed(tried):
                        earlier.undo()
                    raise
                tried.append((refusal, in_one_line(error)))
            else:
                for refusal, reason in tried:
                    self._note_refusal(refusal.part, reason, args, kwargs)
                return made

    def _note_refusal(
        self, part: Opened, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._note_static(reason)
        self._say_known(part.numbers, args, kwargs, reason)
        if part.dims and self.shapes.asked_for(self.target, args, kwargs):
            self._say(reason, f"is compiled for each combination of sizes: {reason}")

    def _compile_open(
        self, opened: Opened, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        try:
            return self._compile_once(opened, args, kwargs)
        except ComputedNumberError:
            by_python = dataclasses.replace(opened, makes_floats=True)
            return self._compile_once(by_python, args, kwargs)

    def _compile_once(
        self, opened: Opened, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        from hostjit.capturing.capture import capture
        from hostjit.compiling.specialize import make_specialization

        parts = self._make_parts()
        try:
            check = functools.partial(self._check_of, args)
            captured = capture(self.target, args, kwargs, opened, parts, check)
        except _PlainPythonError:
            return route_any_call(self._as_python_code())
        except FollowListsError:
            assert parts is not None
            with _followed_lists(parts), contextlib.suppress(CaptureError):
                try:
                    capture(self.target, args, kwargs, opened, parts, check)
                except _PlainPythonError:
                    return route_any_call(self._as_python_code())
            return self._compile_once(opened, args, kwargs)
        except _BeginsWithNumpyError as error:
            split = self._split_behind(error.broke)
            return split or self._run_as_python(error.broke, args, kwargs)
        except CaptureError as error:
            if parts is None or error.failure is not CaptureFailure.LONG_LOOP:
                raise
            return parts.by_long_passes(error) or self._compile_once(opened, args, kwargs)
        if self._reads_other_arrays(captured.guards.arrays):
            what = "an array or a number of NumPy's that it reads is another at each call"
            other = CaptureError(CaptureFailure.UNSUPPORTED_PROGRAM, what, hint="pass it")
            return self._run_as_python(other, args, kwargs)
        if captured.broke is not None and self._leaves_look(captured.broke):
            return self._split_around()
        if captured.broke is not None and not opened.varies:
            recorded = self._record_instead(captured.broke, in_loop=captured.rest_is_left)
            recorded = recorded or self._split_behind(captured.broke) or self._inside()
            if recorded is not None:
                return recorded
        guards = captured.guards
        self.shapes.note_outside(guards.numbers, guards.structure_places)
        taken = {number.position for number in captured.numbers}
        self._say_known(opened.numbers - taken, args, kwargs, "the code needs to know it")
        if captured.broke is not None:
            self._say_parts(captured.broke)
        if captured.depends_on_storage_offset:
            return self._run_eagerly(
                args, kwargs, "offset", "reads storage offsets of tensors and runs eagerly"
            )
        if _C.capture_dump_enabled():
            _C.dump_capture(captured.name, captured.graph_module.print_readable(False))
        program, backward, composed = None, None, None
        if captured.composed:
            composed = self._compose(captured, args, kwargs)
        else:
            program, backward = self._compile_captured(captured)
            self._latest = program
        if parts and captured.broke and opened.dims and not (program and program.symbols):
            return parts.by_frames()  # the first part is for sizes that it does not look at
        is_open = captured.environment is not None
        self._count += not self.shapes.replaces_program(self.target, args, kwargs, is_open=is_open)
        return make_specialization(
            captured,
            program,
            self.target,
            args,
            kwargs,
            self.runtime,
            self.reuse_outputs,
            backward,
            composed,
            hooked=parts.hooked if parts and captured.broke else None,
            leaves_unread=self._is_part or captured.broke is not None,
            revalidations=self._revalidations if parts else None,
        )

    def _split_behind(self, error: CaptureError) -> _C.Specialization | None:
        """Leave what breaks off within what it calls to Python, with all that is ahead of it.

        Where gradients are computed behind: that may be recorded, though the whole was in vain.
        """
        from hostjit.parts.arrays import as_python

        function, receiver = function_and_receiver(self.target)
        if function is None or not self.may_run_in_parts() or stops_at_gradients(error):
            return None
        may_go_on = error.is_in(function.__code__) and not stops_at_numpy(error)
        place = None if may_go_on else place_behind(function, error)
        if place is None:
            return None
        self._say_parts(error)
        first = functools.partial(as_python, self)
        rest = functools.partial(self.part, records=True)
        return route_any_call(joined(function, receiver, place, first, rest))

    def _inside(self) -> _C.Specialization | None:
        """Leave a decorator to Python; None where there is none, or nothing is known of it."""
        from hostjit.compile import compile
        from hostjit.parts.decorated import compiled_inside

        if self._is_part or not self.may_run_in_parts():
            return None
        _, given = self.arguments()
        inside = compiled_inside(self.target, lambda found: compile(found, **given))
        if inside is None:
            return None
        run, compiled = inside
        self._latest = None
        self._pieces.append(compiled)
        return route_any_call(run)

    def _leaves_look(self, error: CaptureError) -> bool:
        """Tell whether lines that look at lists which differ by call are to be Python's."""
        if self._parts is None or not error.what.startswith(LOOK):
            return False
        return self._leave_to_python(self._parts.varying)

    def _split_around(self) -> _C.Specialization:
        """Leave lines to Python that change its state, and what is between them; see above."""
        from hostjit.parts.arrays import as_python

        function, receiver = function_and_receiver(self.target)
        assert self._around and function is not None
        self._splits_around = False
        first = functools.partial(as_python, self)
        part = functools.partial(self.part, records=True)
        otherwise = self.answers_anew
        split = CallsAroundChanges(function, receiver, self._around, first, part, otherwise)
        return route_any_call(split)

    def _run_as_python(
        self, error: CaptureError, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        """Remember that calls like this one run as Python, but for the modules that they call."""
        from hostjit.parts.arrays import as_python

        if self._as_python is None:
            self._as_python = as_python(self)
        self._say("python", f"runs eagerly, but for the modules that it calls: {error}")
        return self._run_eagerly(args, kwargs, "python", str(error), self._as_python)

    def _reads_other_arrays(self, arrays: dict[str, int]) -> bool:
        """Tell whether an earlier program was made for others; watches compare which they are."""
        known = self._arrays_read
        self._arrays_read = {**known, **arrays}
        return any(known.get(path, found) != found for path, found in arrays.items())

    def _check_of(self, args: tuple[Any, ...], traced: DynamoCapture) -> None:
        self._check(traced)
        if self._is_left_to_python(args, traced):
            raise _PlainPythonError

    def _is_left_to_python(self, args: tuple[Any, ...], traced: DynamoCapture) -> bool:
        """Tell whether there is nothing to compile in calls like one, whatever they are given."""
        return False

    def _as_python_code(self) -> Callable[..., Any]:
        """Return what does the same in Python."""
        return self.target

    def _check(self, traced: DynamoCapture) -> None:
        """Refuse what Dynamo has captured; raises CaptureError."""
        if self.shapes.note_fields(traced):
            raise _MoreFieldsError
        if begins_with_numpy(traced.graph_module, traced.broke):
            assert traced.broke is not None
            raise _BeginsWithNumpyError(traced.broke)

    def _compile_captured(
        self, captured: CapturedProgram
    ) -> tuple[_C.CompiledProgram, _C.BackwardPlan | None]:
        from hostjit.compiling.specialize import describe_backward

        try:
            with captured.no_more_guards():
                program = self._compile_program(captured.graph, captured.name)
                if captured.backward is None:
                    return program, None
                graph = captured.backward.graph_module.graph
                given_up = [
                    position
                    for position, source in enumerate(captured.backward.inputs)
                    if isinstance(source, (SavedTensor, Tangent))
                ]
                backward = self._compile_program(graph, f"{captured.name}_backward", given_up)
                plan = describe_backward(captured.backward, program, backward, self.runtime)
                return program, plan
        except CaptureError:
            raise
        except Exception as error:
            # Whatever went wrong, eager is right.
            raise CaptureError(CaptureFailure.INTERNAL, f"compiling it raised {error!r}") from error

    def _compose(
        self, captured: CapturedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[..., Any]:
        """Compile a graph whose gradients need what AOTAutograd does around its graphs."""
        from hostjit.backend.training import compile_with_backward
        from hostjit.capturing.functional.fake_inputs import fake_inputs
        from hostjit.capturing.gradients.joint import tracing_context
        from hostjit.compiling.options import Options

        options = Options(runtime=self.runtime, fallback=self.fallback, **self.choices.keywords())
        inputs = captured.input_values(args, kwargs)
        mode, module = FakeTensorMode(), captured.graph_module
        examples = fake_inputs(module, mode, inputs)
        with tracing_context(mode):
            return compile_with_backward(module, examples, captured.name, options)

    def _in_parts(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
        parts = self._make_parts()
        if parts is None or tensors_share_memory(args, kwargs):
            return None
        return parts.hooked(self.target)

    def _say_parts(self, error: CaptureError) -> None:
        # That a call computes gradients is no reason where recordings do.
        reason = self._reason_for_parts if stops_at_gradients(error) else ""
        self._say("parts", f"runs in parts: {reason or error}")

    def _say_known(
        self, positions: Set[int], args: tuple[Any, ...], kwargs: dict[str, Any], reason: str
    ) -> None:
        """Say of bound Dims among these numbers that there is a program for each value."""
        for name in self.shapes.dims_known(positions, args, kwargs):
            self._say(f"Dim {name}", f"is compiled for each value of Dim '{name}': {reason}")
