# SPDX-License-Identifier: Apache-2.0
"""What guards know of the objects that they are about, and which of these may be other ones."""

from __future__ import annotations

import collections
import types
import weakref
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch

from hostjit.capturing.dynamo.kept_results import is_installed_class
from hostjit.capturing.guards import kinds
from hostjit.capturing.instances import HEAP_TYPE, is_namedtuple_type

__all__ = ["KnownObjects"]

_CONSTANTS = (int, float, complex, str, bytes, tuple)
_READ_FROM = (torch.Tensor, tuple)
# What else is watched of them is not in their dicts.
_WITH_STATE = (torch.nn.Module, type, types.ModuleType, weakref.ref)


class KnownObjects:
    """The objects of one look at the guards, which it does not keep alive but for those outside.

    Attributes:
        inputs: ids of the tensors that are inputs of the program.
        tensors: those outside of the arguments, by Dynamo's names.
        met: containers and objects outside of the arguments, by Dynamo's names.
        kinds: by id, of the guards on an object.
        read_from: ids of tensors of which more was read, and of tuples of which items were.
        compared: ids of what `is` compared.
        with_numbers: ids of tuples that have open numbers.
        compares_constants: whether numbers, text or tuples are among it, which may be other ones
            of the same value where another object stands in for what holds them.
    """

    def __init__(self) -> None:
        self.inputs: set[int] = set()
        self.tensors: dict[str, torch.Tensor] = {}
        self.met: dict[str, Any] = {}
        self.kinds: dict[int, set[str]] = {}
        self.read_from: set[int] = set()
        self.compared: set[int] = set()
        self.with_numbers: set[int] = set()
        self.compares_constants = False
        self._tuples: dict[str, list[int]] = {}  # that the path to a tensor goes through

    def note_kind(self, value: object, kind: str) -> None:
        """Note that there is a guard of a kind on an object."""
        self.kinds.setdefault(id(value), set()).add(kind)

    def note_compared(self, values: Sequence[object]) -> None:
        """Note that `is` compared objects."""
        self.compared.update(map(id, values))
        if any(type(value) in _CONSTANTS for value in values):
            self.compares_constants = True

    def note_path(self, path: str, value: object, bases: Sequence[object]) -> None:
        """Note what a path to an object goes through."""
        self.read_from.update(id(base) for base in bases if isinstance(base, _READ_FROM))
        if isinstance(value, torch.Tensor):
            self._tuples[path] = [id(base) for base in bases if isinstance(base, tuple)]

    def replaceable(self, grown: Collection[str]) -> list[Any]:
        """Return the objects in whose place a call may find others.

        They are tensors of which nothing is known but what the facts of an input say, and
        containers and objects of which nothing is known but what is in them, or how much.

        Args:
            grown: Dynamo's names of those that the call adds to without a look.
        """
        if self.compares_constants:
            return []
        return [*self._replaceable_tensors(), *self._replaceable_objects(grown)]

    def is_unread(self, value: Any) -> bool:
        """Tell whether it is a tuple of which nothing is known but the length."""
        return isinstance(value, tuple) and id(value) not in self.read_from

    def _replaceable_tensors(self) -> Iterator[torch.Tensor]:
        for path, tensor in self.tensors.items():
            found = self._kinds_of(tensor)
            is_plain = found <= kinds.OF_REPLACEABLE_TENSORS and all(
                self.kinds.get(base, set()) <= kinds.OF_REPLACEABLE_TUPLES
                for base in self._tuples.get(path, ())
            )
            is_compared = "TENSOR_MATCH" in found or id(tensor) in self.inputs
            if is_plain and is_compared and id(tensor) not in self.read_from:
                yield tensor

    def _replaceable_objects(self, grown: Collection[str]) -> Iterator[Any]:
        paths = collections.Counter(map(id, self.met.values()))
        for path, value in self.met.items():
            is_one = paths[id(value)] == 1 and id(value) not in self.compared
            if is_one and self._is_replaceable(value, grows=path in grown):
                yield value

    def _is_replaceable(self, value: Any, *, grows: bool) -> bool:
        kind, found = type(value), self._kinds_of(value)
        if grows:
            return found <= kinds.OF_GROWING_LISTS
        if kind is dict:
            return bool(found) and found <= kinds.OF_REPLACEABLE_DICTS
        is_sized = "SEQUENCE_LENGTH" in found and found <= kinds.OF_REPLACEABLE_TUPLES
        if kind in (list, collections.deque) or is_namedtuple_type(kind):
            return is_sized
        if kind is tuple:
            return is_sized and (self.is_unread(value) or id(value) in self.with_numbers)
        return bool(found) and found <= kinds.OF_REPLACEABLE_OBJECTS and _is_record(value)

    def _kinds_of(self, value: object) -> set[str]:
        return self.kinds.get(id(value), set())


def _is_record(value: Any) -> bool:
    """Tell whether an object is a namespace, or of a class of the user's that is no module.

    Objects of installed packages, such as kernels, may mean more than their guards compare.
    """
    kind: Any = type(value)
    is_plain = bool(kind.__flags__ & HEAP_TYPE) and kind.__new__ is object.__new__
    is_users = is_plain and not isinstance(value, _WITH_STATE) and not is_installed_class(kind)
    return is_users or kind is types.SimpleNamespace
