# SPDX-License-Identifier: Apache-2.0
"""Calls that cannot be captured whole: the parts around the breaks are compiled functions."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._dynamo.eval_frame import skip_code

from hostjit import _C
from hostjit.bytecode.choices import has_choices
from hostjit.bytecode.loops import (
    Outlined,
    PassVariables,
    outline_loop,
    with_compiled_passes,
)
from hostjit.bytecode.making import function_of
from hostjit.bytecode.plain_python import is_plain_python
from hostjit.bytecode.splits import computes_gradients, split_behind_gradients
from hostjit.bytecode.uses import followed_reads
from hostjit.capturing.arguments import holds_array, walk_arguments
from hostjit.capturing.by_fields import ByFields
from hostjit.capturing.dynamo.call import DynamoCapture
from hostjit.capturing.dynamo.growing_lengths import LENGTH
from hostjit.capturing.dynamo.growing_lists import LOOK
from hostjit.capturing.errors import CaptureError, CaptureFailure, name_before_breaks
from hostjit.capturing.instances import is_value
from hostjit.capturing.module_fields import has_plain_call
from hostjit.compiling.calls import tensors_share_memory
from hostjit.compiling.compilation import Compilation, FollowListsError
from hostjit.compiling.specializer import route_any_call
from hostjit.optimizers import compilation_as_called
from hostjit.parts.frame_trial import Way
from hostjit.parts.frames import FrameHook
from hostjit.parts.function_in_place import FunctionInPlace
from hostjit.parts.known_objects import KnownObjects, is_made_by_callers
from hostjit.parts.module_call import ModuleCall
from hostjit.parts.passes import compile_pass
from hostjit.parts.whole import Whole

__all__ = ["PartCompilation", "Parts"]


class Parts:
    """What answers the calls of one function that Dynamo cannot follow whole.

    The rest of a call behind a break is a compiled function of its own, which may break in turn.
    Where there is no such function, or it would have to be compiled anew at every call, Dynamo
    looks at the frames of the call itself.

    Attributes:
        in_use: there was a call that Dynamo could not follow whole.
        unrolls_loops: loops are unrolled, however long.
        follows_lists: nothing is stopped at because a list differs by call.
        varying: Dynamo's names of containers from outside of the call that do.
        record_loops_alone: parts behind which Dynamo goes on are not recorded, for the whole was,
            in vain: each part would find that out anew, after several calls.
    """

    def __init__(self, target: Callable[..., Any], whole: Whole, *, is_whole: bool = False) -> None:
        """`is_whole`: the target is what the user has compiled, not a part of that."""
        self._is_whole = is_whole
        self.in_use = False
        self.unrolls_loops = self.follows_lists = False
        self.record_loops_alone = False
        self._target = target
        self._whole = whole
        self._functions: dict[Any, _C.CompiledFunction] = {}
        self._steps: dict[int, _C.CompiledFunction] = {}
        self._seen: dict[Any, list[Any]] = {}
        self._objects: dict[Any, KnownObjects] = {}
        self._lengths: dict[str, int] = {}
        self.varying: set[str] = set()

    def resume(self, function: types.FunctionType) -> Callable[..., Any]:
        """Return the compiled function for the rest of a call."""
        self.in_use = True
        return self.part(function)

    def part(self, function: types.FunctionType, *, records: bool = False) -> _C.CompiledFunction:
        """Return the compiled function for a part of a call.

        `records`: it may be recorded, though the whole was in vain.
        """
        cells = tuple(map(id, function.__closure__ or ()))
        key = function.__code__, id(function.__globals__), cells
        if key not in self._functions:
            self._functions[key] = _C.CompiledFunction(function, self._rest(function, records))
        return self._functions[key]

    def _rest(self, function: types.FunctionType, records: bool) -> PartCompilation:
        loops_alone = self.record_loops_alone and not records
        return PartCompilation(
            function,
            self._whole,
            records_loops_alone=loops_alone,
            records_first=records and computes_gradients(function.__code__),
        )

    def step_of(self, optimizer: torch.optim.Optimizer) -> _C.CompiledFunction | None:
        """Return the compiled step of an optimizer, None if there is none for its class."""
        if id(optimizer) not in self._steps:
            compilation = compilation_as_called(optimizer, self._whole.options.runtime)
            if compilation is None:
                return None
            step = _C.CompiledFunction(compilation.target, compilation)
            self._steps[id(optimizer)] = step
        return self._steps[id(optimizer)]

    def varies_in_length(self, translator: Any, name: str, length: int) -> bool:
        """Tell whether a container from outside of the call had another length before."""
        differs = self._lengths.setdefault(name, length) != length
        if differs:
            self.varying.add(name)
        return differs

    def hooked(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return what runs the code of a call that breaks, and compiles what it calls there."""
        if run is self._target:
            ways = [Way.FRAMES, Way.EAGER]
        else:
            ways = [*Way] if self._is_whole else [Way.FRAMES, Way.PARTS]
        return FrameHook(run, self._target, self._whole, ways).route()

    def by_frames(self) -> _C.Specialization:
        """Leave all further calls to Dynamo, which guards them frame by frame."""
        self.in_use = True
        return route_any_call(self.hooked(self._target))

    @functools.cached_property
    def _outlined(self) -> Outlined | None:
        return outline_loop(self._target)

    def reads_in_passes(self, *, are_followed: bool = False) -> bool:
        """Tell whether each pass of a loop with gradients reads values, or changes what stays.

        `are_followed`: reading a value is no matter where recordings can follow it. Nor is it in a
        loop that counts, where a pass does not decide by it, or chooses: a recording takes both
        ways.
        """
        if self._outlined is None:
            return False
        body = self._outlined.body
        followed = frozenset[int]()
        if are_followed or self._outlined.is_of_range:
            asked = are_followed or has_choices(body)
            followed = followed_reads(body.__code__, asked=asked)
        return split_behind_gradients(body, followed) is not None

    @property
    def has_passes(self) -> bool:
        """Whether there is a loop in which gradients are computed, pass by pass."""
        return self._outlined is not None

    def by_passes(self, error: CaptureError) -> Callable[..., Any] | None:
        """Return what has a compiled function do each pass of a loop; None without such a loop.

        `error`: what cannot be followed, in the loop if it is known where.
        """
        function = _function_of(self._target)
        if function is None:
            return None
        run: Any = None
        if self._outlined is not None:
            body, variables = self._outlined.body, self._outlined.variables
            run = self._outlined.around(compile_pass(body, self._whole, variables))
        else:
            passes = functools.partial(_pass_of_region, self._whole, function)
            parts = functools.partial(_of_region, self._part_recorded, function)
            lines = error.lines_in(function.__code__)
            code = with_compiled_passes(
                function.__code__, function.__globals__, lines, passes, parts
            )
            run = None if code is None else function_of(function, code)
        return None if run is None else self._hooked_in_place(function, run)

    def by_frames_below(self) -> _C.Specialization:
        """Leave further calls that no program answers to Dynamo, which compiles what they call.

        The code of the function itself runs as it is: it decides by what always differs.
        """
        function = _function_of(self._target)
        if function is None:
            return route_any_call(self.hooked(self._target))
        run = function_of(function, function.__code__.replace())
        return route_any_call(self._hooked_in_place(function, run))

    def _hooked_in_place(self, function: types.FunctionType, run: Any) -> Callable[..., Any]:
        """Return what calls `run` for the target's function, and leaves its own code alone."""
        skip_code(run.__code__)
        run = FunctionInPlace(function, run)
        if isinstance(self._target, types.MethodType):
            run = types.MethodType(run, self._target.__self__)
        elif isinstance(self._target, torch.nn.Module):
            run = ModuleCall(self._target, function, run)
        return self.hooked(run)

    def by_long_passes(self, error: CaptureError) -> _C.Specialization | None:
        """Leave all further calls to passes of a loop that is too long to be unrolled.

        None, and it will be, where its passes cannot be functions.
        """
        function = _function_of(self._target)
        is_known = function is not None and bool(error.lines_in(function.__code__))
        by_passes = self.by_passes(error) if is_known else None
        if by_passes is None:
            self.unrolls_loops = True
            return None
        self.in_use = True
        return route_any_call(by_passes)

    def _part_recorded(self, function: types.FunctionType) -> _C.CompiledFunction:
        return self.part(function, records=True)

    def meets_other_objects(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], by_fields: ByFields
    ) -> bool:
        """Tell whether a call brings an object in place of one that programs were made for.

        `by_fields`: classes whose objects are containers.
        """
        kinds, objects = [], []

        def visit(value: Any) -> None:
            if by_fields.fields_of(value) is None and is_made_by_callers(value):
                kinds.append(type(value))
                objects.append(value)

        walk_arguments(args, visit, by_fields)
        walk_arguments(dict(kwargs), visit, by_fields)
        known = self._objects.setdefault((tuple(kwargs), *kinds), KnownObjects())
        return known.note(objects)

    def varies(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, floats: bool, records: bool
    ) -> bool:
        """Tell whether a call differs from an earlier one by what differs at every call.

        Code is compiled for the functions and the objects among its arguments. What a break leaves
        behind may be another at every call: a function or an object made on the way, or the value
        of a tensor.

        Args:
            args: the positional arguments of the call.
            kwargs: its keyword arguments.
            floats: code is compiled for the floats among them, too.
            records: and for objects that are no more than what is in them.
        """
        structure: list[Any] = [floats, records]
        values: list[Any] = []
        objects: list[Any] = []

        def visit(value: Any) -> None:
            structure.append(type(value))
            if isinstance(value, torch.Tensor):
                structure.append((value.dtype, value.dim()))
            elif is_made_by_callers(value) or (records and is_value(value)):
                objects.append(value)
            elif isinstance(value, (tuple, list)):
                structure.append(len(value))
            elif isinstance(value, dict):
                structure.append(tuple(map(id, value)))
            elif isinstance(value, complex) or (floats and isinstance(value, float)):
                values.append(repr(value))
            elif isinstance(value, types.FunctionType):
                structure.append(value.__code__)
                values.append(id(value))

        walk_arguments(args, visit)
        walk_arguments(dict(kwargs), visit)
        key = tuple(structure)
        differs = self._seen.setdefault(key, values) != values
        return self._objects.setdefault(key, KnownObjects()).note(objects) or differs


class PartCompilation(Compilation):
    """Specializes a function that goes on behind a break; what it says, it says for the whole."""

    _is_part = True
    _first_split = 1

    def __init__(
        self,
        function: types.FunctionType,
        whole: Whole,
        *,
        records_loops_alone: bool = False,
        records_first: bool = False,
    ) -> None:
        """`records_first`: it is recorded wherever Dynamo stops, not at gradients alone."""
        options = whole.options
        super().__init__(function, options.runtime, fallback=True, choices=options.choices())
        self._said = whole.said
        self._whole = whole
        self.numbers_outside = whole.numbers_outside
        self.replaced_attributes = whole.replaced
        self._parts = Parts(function, whole)
        self._parts.in_use = True
        self._parts.record_loops_alone = records_loops_alone
        self._records_first = self.opens_numbers = records_first
        self._asks_behind_lists = True

    def _answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _C.Specialization | None:
        """Leave NumPy's values to Python."""
        if not holds_array(args, kwargs):
            return super()._answer(args, kwargs)
        if split := self._wide.answer(self, args, kwargs):
            return split
        from hostjit.parts.arrays import as_python

        return route_any_call(as_python(self))

    def _record_instead(self, error: CaptureError, *, in_loop: bool) -> _C.Specialization | None:
        return super()._record_instead(error, in_loop=in_loop or self._records_first)

    def _is_left_to_python(self, args: tuple[Any, ...], traced: DynamoCapture) -> bool:
        """Leave what only keeps books to Python, which does not compare what it reads."""
        function: Any = self.target
        if traced.computes():
            return False
        broke, asks = traced.broke, self._asks_behind_lists
        if broke is None or is_plain_python(function, args, operators=False):
            return is_plain_python(function, args, operators=True)
        # It has stopped for what it would compare of a list: nothing of what is left to Python.
        if asks and broke.what.startswith((LENGTH, LOOK)):
            self._asks_behind_lists = False
            if is_plain_python(function, args, operators=True):
                raise FollowListsError
        return False

    def _as_python_code(self) -> Callable[..., Any]:
        """Return what does the same in Python, by the name that the code has for the user."""
        function: Any = self.target
        code = function.__code__.replace(
            co_name=name_before_breaks(function.__code__.co_name),
            co_qualname=name_before_breaks(function.__code__.co_qualname),
        )
        skip_code(code)
        return function_of(function, code)

    def _leave_to_frames(self, parts: Parts) -> _C.Specialization | None:
        return None if self._is_left_to_recordings() else super()._leave_to_frames(parts)

    def _leave_to_frames_below(self, parts: Parts) -> _C.Specialization | None:
        return None if self._is_left_to_recordings() else super()._leave_to_frames_below(parts)

    def _is_left_to_recordings(self) -> bool:
        """Have the whole be recorded, rather, which is given what the code does not make."""
        if not self._whole.record():
            return False
        _C.leave_frames()
        return True

    def _fall_back(
        self, error: CaptureError, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        """Keep Dynamo away from memory that two inputs share, as it looks at what runs eagerly."""
        another = (CaptureFailure.USER_EXCEPTION, CaptureFailure.LAZY_MODULE)
        if error.failure in another or not tensors_share_memory(args, kwargs):
            return super()._fall_back(error, args, kwargs)
        assert self._parts is not None
        return self._leave_to_dynamo(self._parts, error, args, kwargs)

    def _target_name(self) -> str:
        return self._whole.name


def _function_of(target: Callable[..., Any]) -> types.FunctionType | None:
    """The function that a call of a target runs."""
    function: Any = target.forward if has_plain_call(target) else target
    function = getattr(function, "__func__", function)
    return function if isinstance(function, types.FunctionType) else None


def _of_region(
    compile_it: Callable[[types.FunctionType], _C.CompiledFunction],
    function: types.FunctionType,
    code: types.CodeType,
) -> _C.CompiledFunction:
    """Compile what a region of a function does."""
    return compile_it(_function_of_region(function, code))


def _pass_of_region(
    whole: Whole,
    function: types.FunctionType,
    code: types.CodeType,
    variables: PassVariables | None,
) -> Callable[..., Any]:
    """Compile what a pass of a loop of a function does."""
    return compile_pass(_function_of_region(function, code), whole, variables)


def _function_of_region(function: types.FunctionType, code: types.CodeType) -> types.FunctionType:
    found = function_of(function, code)
    found.__defaults__ = found.__kwdefaults__ = None
    return found
