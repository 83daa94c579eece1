# SPDX-License-Identifier: Apache-2.0
"""What has no version that the call path could watch: a condition compares it at each call."""

from __future__ import annotations

import collections
import contextvars
from collections.abc import Iterable
from typing import Any

from hostjit.capturing.guards.watches import MISSING
from hostjit.capturing.instances import is_a
from hostjit.recording import numpy_types
from hostjit.recording.reach.entries import Entry, all_same, stored_in

__all__ = ["Contents", "Variable"]


class Contents(Entry):
    """The elements of an array, of bytes that may change or of a deque, which have no version."""

    asked = True

    def __init__(self, value: Any, path: str) -> None:
        super().__init__(path)
        self._value = value
        self._expected = self._find()

    def _find(self) -> tuple[Any, ...]:
        if is_a(self._value, collections.deque):
            return stored_in(self._value)
        if is_a(self._value, bytearray):
            return (bytes(memoryview(self._value)),)
        is_array = is_a(self._value, numpy_types.ARRAYS)
        kind = self._value.dtype if is_array else self._value.format
        return self._value.shape, str(kind), self._value.tobytes()

    def values(self) -> Iterable[Any]:
        """The elements that may have state of their own."""
        if is_a(self._value, collections.deque):
            return self._expected
        has_objects = is_a(self._value, numpy_types.ARRAYS) and self._value.dtype.hasobject
        return self._value.ravel().tolist() if has_objects else ()

    def differs(self) -> bool:
        found = self._find()
        if is_a(self._value, collections.deque):
            return not all_same(found, self._expected)
        return bool(found != self._expected)

    def has_grown(self) -> bool:
        if not is_a(self._value, collections.deque):
            return False
        found, before = self._find(), self._expected
        return _continues(found, before) or _continues(found[::-1], before[::-1])


def _continues(found: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    """Whether some elements begin with what is left of others, behind those that had to go."""
    gone = (count for count in range(len(before)) if count == 0 or len(found) == len(before))
    return any(all_same(found[: len(before) - count], before[count:]) for count in gone)


class Variable(Entry):
    """A context variable, whose value differs from thread to thread."""

    asked = True

    def __init__(self, variable: contextvars.ContextVar[Any], path: str) -> None:
        super().__init__(path)
        self._variable = variable
        self._expected = variable.get(MISSING)

    def values(self) -> Iterable[Any]:
        """What it held."""
        return () if self._expected is MISSING else (self._expected,)

    def differs(self) -> bool:
        return not all_same((self._variable.get(MISSING),), (self._expected,))
