# SPDX-License-Identifier: Apache-2.0
"""Which fields of users' objects the code that Dynamo follows reads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

from hostjit.capturing.dynamo.attribute_reads import Read, replaced_reads

__all__ = ["FieldReads", "noting_field_reads"]

_ALL = "__dict__"


class FieldReads:
    """The names of fields that were read, by the class of the object."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[type, set[str]]] = {}

    def note(self, kind: type, name: str) -> None:
        """Note a read of one field, or of `__dict__`."""
        self._names.setdefault(id(kind), (kind, set()))[1].add(name)

    def note_all_of(self, kinds: Iterable[type]) -> None:
        """Note that fields may be read of which nobody told."""
        for kind in (*kinds, *(kind for kind, _ in self._names.values())):
            self.note(kind, _ALL)

    def update(self, others: FieldReads) -> None:
        """Note other reads besides."""
        for kind, names in others._names.values():
            self._names.setdefault(id(kind), (kind, set()))[1].update(names)

    def names_of(self, kind: type) -> frozenset[str] | None:
        """Return what was read of a class; None for all, or where nothing is known of it."""
        _, names = self._names.get(id(kind), (kind, {_ALL}))
        return None if _ALL in names else frozenset(names)


@contextlib.contextmanager
def noting_field_reads() -> Iterator[FieldReads]:
    """Note them in this thread, whoever's objects they are."""
    found = FieldReads()
    owner = threading.get_ident()

    def noting(read: Read) -> Read:
        def read_and_note(variable: Any, tx: Any, name: str) -> Any:
            if threading.get_ident() == owner:
                found.note(type(variable.value), name)
            return read(variable, tx, name)

        return read_and_note

    with replaced_reads(UserDefinedObjectVariable, noting):
        yield found
