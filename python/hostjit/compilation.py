# SPDX-License-Identifier: Apache-2.0
"""The Python side of a compiled function: makes specializations, and decides what runs eagerly."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
import torch._dynamo
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from hostjit import _C
from hostjit.capturing.dynamic_dims import DynamicDims
from hostjit.capturing.errors import (
    CaptureError,
    CaptureFailure,
    ComputedNumberError,
    in_one_line,
)
from hostjit.code_choices import CodeChoices
from hostjit.dims import without_dims
from hostjit.dynamic_shapes import DynamicShapes
from hostjit.eager_attempt import EagerAttempt
from hostjit.inspection import Inspection

if TYPE_CHECKING:
    from hostjit.capturing.open_numbers import NumberPlace
    from hostjit.capturing.program import CapturedProgram
    from hostjit.parts import Parts

__all__ = ["Compilation", "route_any_call"]

_capture_lock = threading.RLock()
# Calls that raise are remembered; each costs the others a comparison.
_MOST_ATTEMPTS = 64
_LIBRARY_FOLDERS = tuple(
    os.path.dirname(os.path.abspath(file)) + os.sep for file in (__file__, torch.__file__)
)
_COPYING = frozenset({"__copy__", "__deepcopy__", "__getstate__", "__setstate__", "__reduce_ex__"})
# What Dynamo can stop at, and go on behind.
_BREAKS = (CaptureFailure.GRAPH_BREAK, CaptureFailure.DATA_DEPENDENT)
# What eager alone can do, and does as fast as anything: said, but not refused.
_RUNS_EAGERLY = (
    CaptureFailure.NEEDS_AUTOGRAD,
    CaptureFailure.UNSUPPORTED_INPUT,
    CaptureFailure.LAZY_RESULT,
)


class Compilation(Inspection):
    """Specializes one callable; `_C.CompiledFunction` asks it at every miss."""

    has_original = True
    # The target is Python code, in which a capture can stop and go on.
    _has_parts = True

    def __init__(
        self,
        target: Callable[..., Any],
        runtime: str | None,
        fallback: bool,
        reuse_outputs: bool = False,
        shapes: DynamicShapes | None = None,
        choices: CodeChoices | None = None,
    ) -> None:
        super().__init__()
        self.target = target
        self.runtime = runtime
        self.fallback = fallback
        self.reuse_outputs = reuse_outputs
        self.choices = choices or CodeChoices()
        self.shapes = shapes or DynamicShapes(None, None)
        self._parts: Parts | None = None
        self._count = 0
        self._attempts = 0
        self._said: set[str] = set()
        # Memory patterns of calls that write to memory that another input shares.
        self._overlapping: set[tuple[Any, ...]] = set()

    def __getattr__(self, name: str) -> Any:
        # How the target is copied is not how this one is: see `compiled_objects`.
        if name in _COPYING or name == "target":
            raise AttributeError(name)
        return getattr(self.target, name)

    def arguments(self) -> tuple[Any, dict[str, Any]]:
        """Return what `hostjit.compile` was called with."""
        given = {"runtime": self.runtime, "fallback": self.fallback}
        given["reuse_outputs"] = self.reuse_outputs
        given.update(self.choices.keywords())
        return self.target, {**given, **self.shapes.keywords()}

    # It may be called in a frame that Dynamo compiled, by which it would look at all of this.
    @torch._dynamo.disable  # type: ignore[untyped-decorator]
    def specialize(
        self, function: _C.CompiledFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        """Return a Specialization for this call, or None to run the target eagerly."""
        with _capture_lock:
            # Another thread may have made it while this one waited.
            return function.match(*args, **kwargs) or self._specialize_for_dims(args, kwargs)

    def _specialize_for_dims(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        args, kwargs, dims = without_dims(args, kwargs)
        self.shapes.ask_for(args, kwargs, dims)
        return self._specialize(args, kwargs)

    def _specialize(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        if in_foreign_transform() or not arguments_fit(self.target, args, kwargs):
            return None
        if makes_generators(self.target):
            self._say(
                "generator",
                "runs eagerly: it makes generators or coroutines, which compute when asked",
            )
            return route_any_call(self.target)
        if has_nested_tensor(args, kwargs):
            self._say("nested", "runs eagerly: an argument is a nested tensor, which has no sizes")
            return None
        if self._overlapping and memory_pattern(args, kwargs) in self._overlapping:
            return None
        limit = _C.recompile_limit()
        is_full = limit is not None and self._count >= limit
        if self._parts and self._parts.in_use:
            floats = self.shapes.refuses_numbers(args, kwargs)
            if is_full or self._parts.varies(args, kwargs, floats=floats):
                return self._parts.by_frames()
        if "limit" not in self._said:
            self.shapes.note(args, kwargs)
        if limit is not None and is_full:
            self._say(
                "limit",
                f"has {limit} specializations and keeps meeting new signatures: it runs those "
                f"eagerly from now on. {self.shapes.advice()}, or raise the limit with "
                f"HOSTJIT_ENABLE=recompile_limit({4 * limit})" + self._why_static(),
            )
            return None
        try:
            return self._compile(args, kwargs)
        except CaptureError as error:
            return self._fall_back(error, args, kwargs)

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
        parts = self._parts
        if parts and parts.in_use and error.failure is not CaptureFailure.UNSUPPORTED_INPUT:
            return parts.by_frames()
        if error.failure in _RUNS_EAGERLY:
            reason = f"runs eagerly: {error}"
            return self._run_eagerly(args, kwargs, str(error.failure), reason)
        if not self.fallback:
            raise error
        if parts and error.failure in _BREAKS:
            self._say_parts(error)
            return parts.by_frames()
        key = error.where or str(error)
        return self._run_eagerly(args, kwargs, key, f"runs eagerly: {error}")

    def _compile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _C.Specialization | None:
        """Compile for the sizes of a call, or for any where dims ask for it and can have it.

        The same for the numbers of a call.
        """
        if not self.shapes.objects(args, kwargs):
            return self._compile_open(args, kwargs)
        try:
            return self._compile_open(args, kwargs)
        except Exception as error:
            self._note_static(in_one_line(error))
            return self._compile_again(args, kwargs, self.shapes.refuse_objects())

    def _compile_again(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], undo: Callable[[], None]
    ) -> _C.Specialization | None:
        """Compile with less left open than before, and `undo` that where the call fails anyway."""
        try:
            return self._compile_open(args, kwargs)
        except Exception:
            undo()
            raise

    def _compile_open(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        dims = self.shapes.dims(self.target, args, kwargs)
        numbers = self.shapes.numbers(args, kwargs)
        outside = self.shapes.outside_numbers()
        # Whatever goes wrong: those of the call may do, or raise what the user should see.
        if outside:
            try:
                return self._compile_for(args, kwargs, dims, numbers, outside)
            except Exception as error:
                self._note_static(in_one_line(error))
                undo = self.shapes.refuse_outside_numbers(outside)
            return self._compile_again(args, kwargs, undo)
        if not numbers:
            return self._compile_known_numbers(args, kwargs, dims)
        try:
            return self._compile_for(args, kwargs, dims, numbers)
        except Exception as error:
            reason = in_one_line(error)
        specialization = self._compile_known_numbers(args, kwargs, dims)
        self.shapes.refuse_numbers(args, kwargs)
        self._note_static(reason)
        self._say_known(numbers, args, kwargs, reason)
        return specialization

    def _compile_known_numbers(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], dims: DynamicDims
    ) -> _C.Specialization | None:
        if not dims:
            return self._compile_for(args, kwargs, {})
        # Whatever goes wrong: the sizes of the call may do, or raise what the user should see.
        try:
            return self._compile_for(args, kwargs, dims)
        except Exception as error:
            reason = in_one_line(error)
        specialization = self._compile_for(args, kwargs, {})
        self.shapes.refuse(args, kwargs)
        self._note_static(reason)
        if self.shapes.asked_for(self.target, args, kwargs):
            self._say(reason, f"is compiled for each combination of sizes: {reason}")
        return specialization

    def _compile_for(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        dims: DynamicDims,
        numbers: Set[int] = frozenset(),
        outside: Mapping[str, NumberPlace] = MappingProxyType({}),
    ) -> _C.Specialization | None:
        try:
            return self._compile_once(args, kwargs, dims, numbers, outside, makes_floats=False)
        except ComputedNumberError:
            return self._compile_once(args, kwargs, dims, numbers, outside, makes_floats=True)

    def _compile_once(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        dims: DynamicDims,
        numbers: Set[int],
        outside: Mapping[str, NumberPlace],
        makes_floats: bool,
    ) -> _C.Specialization | None:
        from hostjit.capturing import capture
        from hostjit.specialize import describe_backward, make_specialization

        parts = self._make_parts()
        objects = self.shapes.objects(args, kwargs)
        captured = capture(
            self.target, args, kwargs, dims, parts, numbers, outside, objects, makes_floats
        )
        guards = captured.guards
        self.shapes.note_outside(guards.numbers, guards.structure_places)
        open_positions = {number.position for number in captured.numbers}
        self._say_known(numbers - open_positions, args, kwargs, "the code needs to know it")
        if captured.broke is not None:
            self._say_parts(captured.broke)
        if captured.depends_on_storage_offset:
            return self._run_eagerly(
                args, kwargs, "offset", "reads storage offsets of tensors and runs eagerly"
            )
        if _C.capture_dump_enabled():
            _C.dump_capture(captured.name, captured.graph_module.print_readable(False))
        hooked = parts.hooked if parts and captured.broke else None
        if captured.composed:
            self._count += 1
            composed = self._compose(captured, args, kwargs)
            return make_specialization(
                captured,
                None,
                self.target,
                args,
                kwargs,
                self.runtime,
                composed=composed,
                hooked=hooked,
            )
        plan = None
        try:
            with captured.no_more_guards():
                program = self._compile_program(captured.graph, captured.name)
                if captured.backward is not None:
                    graph = captured.backward.graph_module.graph
                    backward = self._compile_program(graph, f"{captured.name}_backward")
                    plan = describe_backward(captured.backward, program, backward, self.runtime)
        except CaptureError:
            raise
        except Exception as error:
            # Whatever went wrong, eager is right.
            raise CaptureError(CaptureFailure.INTERNAL, f"compiling it raised {error!r}") from error
        self._count += 1
        self._latest = program
        return make_specialization(
            captured,
            program,
            self.target,
            args,
            kwargs,
            self.runtime,
            self.reuse_outputs,
            plan,
            hooked=hooked,
        )

    def _say_known(
        self, positions: Set[int], args: tuple[Any, ...], kwargs: dict[str, Any], reason: str
    ) -> None:
        """Say of bound Dims among these numbers that there is a program for each value."""
        for name in self.shapes.dims_known(positions, args, kwargs):
            self._say(f"Dim {name}", f"is compiled for each value of Dim '{name}': {reason}")

    def _compile_program(self, graph: torch.fx.Graph, name: str) -> _C.CompiledProgram:
        from hostjit.lowering.lower import lower

        with self.choices.in_effect():
            wants_inductors = self.choices.kernels == "inductor"
            program = self._compile_inductors(graph, name) if wants_inductors else None
            return program or _C.CompiledProgram(lower(graph, name))

    def _compile_inductors(self, graph: torch.fx.Graph, name: str) -> _C.CompiledProgram | None:
        """Return the program with Inductor's kernels; None where there is none."""
        from hostjit import inductor

        # Whatever goes wrong, hostjit's kernels do.
        try:
            return _C.CompiledProgram(inductor.lower(graph, name))
        except Exception as error:
            reason = in_one_line(error).partition("\n")[0]
            self._say("kernels", f"has hostjit's kernels, not Inductor's: {reason}")
        return None

    def _attempt_eagerly(
        self, error: CaptureError, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        """Let eager raise what the user should see."""
        self._attempts += 1
        if self._attempts > _MOST_ATTEMPTS:
            return None

        def say() -> None:
            where = f" at {error.where}" if error.where else ""
            text = (
                f"runs eagerly: something raises when it is captured{where}, which eager does not "
                f"raise or the call handles: {error.what}"
            )
            self._say(str(error.failure), text)

        return EagerAttempt(self.target, say).specialization(args, kwargs)

    def _make_parts(self) -> Parts | None:
        """Return what runs calls that can't be captured whole, where that is wanted."""
        if self._parts is None and self._has_parts and self.fallback:
            from hostjit.parts import Parts

            self._parts = Parts(
                self.target, self.runtime, self._said, self._target_name(), self.choices
            )
        return self._parts

    def say_nothing_of_parts(self) -> None:
        """Run calls in parts without a word, where somebody has said so before."""
        self._said.add("parts")

    def _say_parts(self, error: CaptureError) -> None:
        self._say("parts", f"runs in parts: {error}")

    def _compose(
        self, captured: CapturedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[..., Any]:
        """Compile a graph whose gradients need what AOTAutograd does around its graphs."""
        from hostjit.backend.options import Options
        from hostjit.backend.training import compile_with_backward
        from hostjit.capturing.fake_inputs import fake_inputs
        from hostjit.capturing.joint import tracing_context

        options = Options(runtime=self.runtime, fallback=self.fallback, **self.choices.keywords())
        inputs = captured.input_values(args, kwargs)
        mode, module = FakeTensorMode(), captured.graph_module
        examples = fake_inputs(module, mode, inputs)
        with tracing_context(mode):
            return compile_with_backward(module, examples, captured.name, options)

    def _run_eagerly(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], key: str, reason: str
    ) -> _C.Specialization | None:
        """Remember that calls like this one go to the target itself."""
        self._say(key, reason)
        self._count += 1
        try:
            return _C.Specialization(
                args=args,
                kwargs=dict(kwargs),
                program=None,
                bindings=(),
                output=("object", None),
                route=self.target,
                reason=reason,
                by_fields=self.classes_by_fields(),
            )
        except (RuntimeError, TypeError):
            return None  # arguments that no guard can describe

    def classes_by_fields(self) -> dict[type, tuple[str, ...]]:
        """Return the classes of arguments whose fields are compared, with their slots."""
        return {}

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
        return str(getattr(self.target, "__qualname__", type(self.target).__qualname__))


def arguments_fit(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """False when the call itself is wrong: eager then raises the TypeError."""
    function = target.forward if isinstance(target, torch.nn.Module) else target
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:  # builtins without a signature
        return True
    return True


def makes_generators(target: Any) -> bool:
    function = target.forward if isinstance(target, torch.nn.Module) else target
    if not inspect.isroutine(function) and not isinstance(function, functools.partial):
        function = type(function).__call__
    kinds = (
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
        inspect.iscoroutinefunction,
    )
    return any(is_kind(function) for is_kind in kinds)


def has_nested_tensor(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether a call is given one that is not of PyTorch's own subclass."""
    from hostjit.capturing.arguments import tensor_leaves

    leaves = tensor_leaves(args, kwargs)
    return any(leaf.is_nested and leaf.layout is torch.strided for leaf in leaves)


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


def memory_pattern(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Which tensors of a call share elements, and what they look like."""
    from hostjit.capturing.arguments import tensor_leaves
    from hostjit.capturing.overlap import may_overlap

    def first_shared(index: int) -> int:
        return next(
            i for i in range(index + 1) if may_overlap(leaves[i], leaves[index]) or i == index
        )

    leaves = tensor_leaves(args, kwargs)
    return tuple(
        (leaf.dtype, tuple(leaf.shape), leaf.stride(), first_shared(index))
        for index, leaf in enumerate(leaves)
    )


def in_foreign_transform() -> bool:
    """True while someone else interprets the call.

    That is Dynamo, a tracer, functorch, forward-mode differentiation or a dispatch mode.
    """
    return (
        torch.compiler.is_compiling()
        or forward_ad._current_level >= 0
        or torch.jit.is_tracing()
        or torch._C._functorch.maybe_current_level() is not None
        or torch._C._len_torch_dispatch_stack() > 0
    )


def _frames_to_user() -> int:
    """Count the frames from the one that asks to the nearest that is none of a library's."""
    frame, count = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_LIBRARY_FOLDERS):
        frame, count = frame.f_back, count + 1
    return count
