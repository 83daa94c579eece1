# SPDX-License-Identifier: Apache-2.0
"""What tells whether Python objects of a recorded call are at one time as they were at another."""

from __future__ import annotations

import enum
import functools
import sys
import types
from typing import TYPE_CHECKING, Any

import torch

from hostjit.bytecode.halves import Unset
from hostjit.capturing.instances import HEAP_TYPE, instance_dict, is_a, is_one_of
from hostjit.recording.code.libraries import is_library
from hostjit.recording.graph.read_numbers import TENSORS, ReadNumber
from hostjit.recording.graph.selecting import CannotSelectError

if TYPE_CHECKING:
    from hostjit.recording.graph.recorder import Recorder

__all__ = ["Contents", "is_same"]

# What is looked at of containers that the call has made: so many items, and so deep.
_MOST_ITEMS, _DEEPEST = 256, 4
_CONSTANTS = (
    *(bool, int, float, complex, str, bytes, type(None), type(...), ReadNumber),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, slice, range),
)


class Contents:
    """Looks at objects.

    Attributes:
        tensors: those that were met.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.tensors: list[torch.Tensor] = []

    def of(self, value: Any, depth: int = 0) -> Any:
        """Return what is another where an object is not as it was, for `is_same`.

        Of objects that were there before the call, which are compared, the objects alone. Raises
        CannotSelectError where nothing tells that.
        """
        if is_one_of(type(value), TENSORS):
            return self._of_tensor(value)
        if is_one_of(type(value), _CONSTANTS) or is_a(value, (enum.Enum, types.ModuleType)):
            return (value,)
        if value is Unset or self._recorder.is_object_outside(value):
            return (value,)
        look = functools.partial(self.of, depth=depth + 1)
        if depth < _DEEPEST:
            if is_one_of(type(value), (tuple, list)) and len(value) <= _MOST_ITEMS:
                return (value, *map(look, value))
            if type(value) is dict and len(value) <= _MOST_ITEMS:
                return (value, *map(look, value), *map(look, value.values()))
            if is_a(value, types.MethodType):
                return (None, look(value.__func__), look(value.__self__))
            if is_a(value, types.BuiltinFunctionType):
                owner = value.__self__
                is_function = owner is None or is_a(owner, types.ModuleType)
                return (value,) if is_function else (None, look(owner))
            if is_a(value, types.FunctionType):
                return self._of_function(value, look)
            if is_a(value, type) and _is_known(value):
                return (value,)
        raise CannotSelectError

    def _of_tensor(self, tensor: torch.Tensor) -> Any:
        own = instance_dict(tensor) or {}
        if any(not name.startswith("_dynamo") for name in own):
            raise CannotSelectError
        self.tensors.append(tensor)
        retains = tensor.requires_grad and tensor.retains_grad
        return tensor, tensor.requires_grad, tensor.grad_fn, tensor.is_leaf, retains

    def _of_function(self, function: types.FunctionType, look: Any) -> Any:
        if is_library(function.__code__.co_filename) and not function.__closure__:
            return (function,)
        cells = [each.cell_contents for each in function.__closure__ or ()]
        keywords = (function.__kwdefaults__ or {}).values()
        own = function.__dict__.values()
        return (
            function,
            *map(look, (*cells, *(function.__defaults__ or ()), *keywords, *own)),
        )


def _is_known(kind: type) -> bool:
    """Whether a class is one of Python's, or of a library."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return not kind.__flags__ & HEAP_TYPE or (file is not None and is_library(file))


def is_same(was: Any, now: Any) -> bool:
    """Tell whether what was found of objects is the same."""
    if type(was) is dict and type(now) is dict:
        return was.keys() == now.keys() and all(is_same(was[key], now[key]) for key in was)
    if type(was) is not tuple or type(now) is not tuple:
        return was is now
    return len(was) == len(now) and all(map(is_same, was, now))
