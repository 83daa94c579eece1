# SPDX-License-Identifier: Apache-2.0
"""Calls of compiled functions that are given arrays of NumPy.

They are compiled over tensors in the same memory. In the code, Dynamo sees arrays; what it would
compute of them by PyTorch's own NumPy is left to eager, for that may give other types and values.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy
import torch

from hostjit import _C
from hostjit.capturing.arguments import holds_array, walk_arguments
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.compiling.compilation import BREAKS, Compilation
from hostjit.compiling.dynamic_shapes import DynamicShapes
from hostjit.parts.array_arguments import GivenArrays, MadeArrays, Place
from hostjit.parts.called_modules import WithCompiledModules

if TYPE_CHECKING:
    from hostjit.capturing.dynamo.call import DynamoCapture

__all__ = [
    "ArrayCalls",
    "ArrayCompilation",
    "as_python",
    "check_arrays",
    "holds_numbers_alone",
    "makes_arrays",
]

# What Dynamo's bytecode calls for an array that it does not return as a tensor.
_MAKES_ARRAYS = "to_numpy_helper"


def holds_numbers_alone(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tell whether all values of NumPy among these arguments are numbers."""
    found: list[bool] = []

    def visit(value: Any) -> None:
        if type(value).__module__ == "numpy":
            found.append(isinstance(value, numpy.generic))

    walk_arguments(args, visit)
    walk_arguments(kwargs, visit)
    return all(found)


def as_python(owner: Compilation, part: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return what runs the function of a compilation as Python, with compiled modules.

    Or a part of the function.
    """
    target, given = owner.arguments()
    if not owner.fallback:
        return part or owner.target  # it is an error where such a module can't be compiled

    def compile_call(call: Any) -> Any:
        from hostjit.compile import compile

        more = {**given, "reuse_outputs": False, "dynamic_shapes": None}
        return compile(call, **more)

    return WithCompiledModules(part or target, compile_call)


class _LeftToEager(BaseException):
    """Raised where a call is not answered by a program."""


_MOST_TIMES_LEFT = 8
_BUT_MODULES = ", but for the modules that it calls"


class ArrayCalls:
    """Answers calls of one function that are given arrays."""

    def __init__(self, owner: Compilation) -> None:
        self._owner = owner
        self._target = owner.target
        self._whole: _C.CompiledFunction | None = _compiled(_ArrayCompilation(owner))
        self._parts: _C.CompiledFunction | None = None
        self._plain: _C.CompiledFunction | None = None
        self._as_python = as_python(owner)
        self._times_left = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run a call: as Python, where there is no way to compile it whole or in parts."""
        if self._whole is None and self._parts is None and _has_array(args, kwargs):
            return self._as_python(*args, **kwargs)
        arrays = GivenArrays()
        places: list[Place] = []
        given, named = list(args), kwargs
        try:
            for index, value in enumerate(args):
                given[index], inside = arrays.open(value)
                if inside:
                    places.append((index, inside))
            for name, value in kwargs.items():
                opened, inside = arrays.open(value)
                if inside:
                    named = {**named, name: opened}
                    places.append((name, inside))
        except (TypeError, ValueError) as error:  # values that no tensor can be over
            self._say(error)
            return self._as_python(*args, **kwargs)
        if not places:
            return self._without_arrays()(*args, **kwargs)
        # What raises a CaptureError does so before anything has run.
        if self._whole is not None:
            try:
                result, kinds = self._whole(tuple(places), *given, **named)
            except CaptureError as error:
                self._whole = None
                self._go_on(error, in_containers=any(inside is not True for _, inside in places))
            except _LeftToEager:
                self._times_left += 1
                if self._times_left == _MOST_TIMES_LEFT:
                    self._whole = None
                return self._as_python(*args, **kwargs)
            else:
                if kinds is True:
                    return result.numpy()
                return _with_arrays(result, kinds, args, kwargs)
        if self._parts is not None and all(inside is True for _, inside in places):
            try:
                return self._parts(tuple(places), *given, **named)
            except CaptureError as error:
                self._parts = None
                self._say(error)
        return self._as_python(*args, **kwargs)

    def _go_on(self, error: CaptureError, *, in_containers: bool) -> None:
        """Run calls in parts from now on, if that can be."""
        if self._owner.fallback and error.failure in BREAKS and not in_containers:
            from hostjit.parts.array_parts import ArrayPartsCompilation

            self._parts = _compiled(ArrayPartsCompilation(self._owner))
        else:
            self._say(error)

    def _say(self, error: Exception) -> None:
        but = _BUT_MODULES if self._owner.fallback else ""
        self._owner.say("array", f"runs eagerly with NumPy's arrays{but}: {error}")

    def _without_arrays(self) -> _C.CompiledFunction:
        if self._plain is None:
            from hostjit.compile import compile

            target, given = self._owner.arguments()
            self._plain = compile(target, **given)
        return self._plain


def _has_array(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    is_array = any(type(value) is numpy.ndarray for value in args)
    return is_array or holds_array(args, kwargs)


def _compiled(compilation: Compilation) -> _C.CompiledFunction:
    return _C.CompiledFunction(compilation.target, compilation)


class ArrayCompilation(Compilation):
    """Compiles a function whose arrays are tensors; what it says, it says for that."""

    _first_split = 0  # Python would be given tensors for arrays

    def __init__(self, owner: Compilation, target: Callable[..., Any], *, fallback: bool) -> None:
        dynamic = owner.shapes.keywords()["dynamic"]
        super().__init__(
            target,
            owner.runtime,
            fallback,
            owner.reuse_outputs,
            DynamicShapes(dynamic, None),
            owner.choices,
        )
        self._owner = owner

    def _target_name(self) -> str:
        return self._owner._target_name()

    def _check(self, traced: DynamoCapture) -> None:
        super()._check(traced)
        check_arrays(traced)

    def _compile_open(self, *args: Any) -> _C.Specialization | None:
        with warnings.catch_warnings():
            # What is an array in the code, and no tensor.
            warnings.filterwarnings("ignore", "To copy construct from a tensor")
            return super()._compile_open(*args)


class _ArrayCompilation(ArrayCompilation):
    """Compiles a function that returns tensors for arrays, too, and which of them are those."""

    def __init__(self, owner: Compilation) -> None:
        super().__init__(owner, _over_tensors(owner.target), fallback=False)


def check_arrays(traced: DynamoCapture) -> None:
    """Refuse arrays that objects keep. Raises CaptureError."""
    if traced.changes.described and makes_arrays(traced):
        # It would be another object than the argument, or the result, that is stored.
        raise CaptureError(
            CaptureFailure.UNSUPPORTED_PROGRAM,
            "an array is kept by an object that outlives the call",
            hint="keep a tensor",
        )


def makes_arrays(traced: DynamoCapture) -> bool:
    """Tell whether Dynamo's bytecode makes arrays of tensors."""
    return _MAKES_ARRAYS in traced.bytecode.co_names


def _over_tensors(target: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes tensors in the places of arrays, and returns such.

    It is given these places first. Besides the result it returns what is an array in that: True, or
    the place of the argument that it is.
    """

    def call(places: tuple[Place, ...], /, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        if not torch.compiler.is_compiling():
            raise _LeftToEager  # whose containers are the caller's
        made = MadeArrays(places)
        result = target(*made.arguments(args), **made.named(kwargs))
        made.check_unchanged()
        return _without_arrays(result, made)

    return call


def _without_arrays(result: Any, made: MadeArrays) -> tuple[Any, Any]:
    """Return a result with tensors for its arrays, and what are arrays in it."""
    if isinstance(result, numpy.ndarray):
        for _, array, path in made.arrays:
            if result is array:
                return None, path
        return torch.from_numpy(result), True
    made.check_not_given(result)
    if type(result) is tuple:
        pairs = [_without_arrays(item, made) for item in result]
        return tuple([pair[0] for pair in pairs]), tuple([pair[1] for pair in pairs])
    return result, False


def _with_arrays(result: Any, kinds: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a result with its arrays."""
    if kinds is False:
        return result
    if kinds is True:
        return result.numpy()
    if isinstance(kinds, tuple):
        pairs = zip(result, kinds, strict=True)
        return tuple([_with_arrays(item, kind, args, kwargs) for item, kind in pairs])
    first, *rest = kinds
    found: Any = kwargs[first] if isinstance(first, str) else args[first]
    for key in rest:
        found = found[key]
    return found
