# SPDX-License-Identifier: Apache-2.0
"""Objects among the arguments of calls that programs are made for, each for one of them."""

from __future__ import annotations

import enum
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.capturing.arguments import EQUALITY_TYPES, items_of
from hostjit.capturing.instances import is_a, is_value

__all__ = ["KnownObjects", "is_made_by_callers"]

# Two that live on are two agents, or a result that is kept until the next one is there.
_MOST_OBJECTS = 2
# What is there once, and what has programs of its own for each.
_LASTING: tuple[type, ...] = (
    *(bool, int, float, complex, str, bytes, type(None), enum.Enum, type),
    *(types.FunctionType, types.BuiltinFunctionType, types.ModuleType),
    *(torch.Tensor, torch.dtype, torch.layout, torch.memory_format, *EQUALITY_TYPES),
)


def is_made_by_callers(value: Any) -> bool:
    """Tell whether an argument is compared by identity, and may be another object at each call."""
    return not is_a(value, _LASTING) and items_of(value) is None and not is_value(value)


class KnownObjects:
    """The objects that calls of one kind brought.

    It keeps none of them alive that programs do not.
    """

    def __init__(self) -> None:
        self._known: list[list[Callable[[], Any]]] = []

    def note(self, objects: Sequence[Any]) -> bool:
        """Look at the objects of a call, in order; tell whether other calls will bring others.

        So it is where those of an earlier call are gone, or where there were several, which are no
        modules: a model has many of these.
        """
        if not objects or any(_are(known, objects) for known in self._known):
            return False
        self._known.append([_reference(value) for value in objects])
        is_gone = any(reference() is None for known in self._known for reference in known)
        are_modules = all(is_a(value, torch.nn.Module) for value in objects)
        return is_gone or (len(self._known) > _MOST_OBJECTS and not are_modules)


def _are(known: Sequence[Callable[[], Any]], objects: Sequence[Any]) -> bool:
    return all(first() is now for first, now in zip(known, objects, strict=True))


def _reference(value: Any) -> Callable[[], Any]:
    return weakref.ref(value) if _C.is_held_weakly(value) else lambda: value
