# SPDX-License-Identifier: Apache-2.0
"""Which classes of objects among a callable's arguments have other instances at other calls."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from hostjit.capturing.arguments import items_of
from hostjit.capturing.by_fields import ByFields
from hostjit.capturing.instances import is_a, is_value, slot_names
from hostjit.capturing.module_fields import MODULE_FIELDS, is_plain

if TYPE_CHECKING:
    from hostjit.capturing.dynamo.field_reads import FieldReads

__all__ = ["VaryingObjects"]

_DEPTH = 8
# So many have programs of their own, which are faster: an actor and a critic, or a target network.
_OWN_PROGRAMS = 2


class VaryingObjects:
    """Remembers the objects that calls bring.

    The second record of values in the place of one makes its class one of those that are compared
    by their fields; of modules, and of objects that hold such or what grows, the third does, or the
    second where the first is gone. Slots of records, which nothing tells the changes of, do so at
    once.
    """

    def __init__(self) -> None:
        self._kinds: dict[int, type] = {}
        # Those of them of modules, and of objects that are more than records.
        self._holders: set[int] = set()
        self._first: dict[str, Any] = {}
        self._met: dict[tuple[str, type], list[Callable[[], Any]]] = {}
        self._reads: FieldReads | None = None
        self._refused_holders = self._refused = False

    @property
    def are_refused(self) -> bool:
        """Whether all are compared by identity, records too."""
        return self._refused

    @property
    def classes(self) -> ByFields:
        """Those that are compared by their fields, as far as code reads them."""
        return ByFields({kind: self._compared(kind) for kind in self._kinds.values()})

    def _compared(self, kind: type) -> frozenset[str] | None:
        names = None if self._reads is None else self._reads.names_of(kind)
        if names is not None and issubclass(kind, nn.Module):
            names |= MODULE_FIELDS
        return names

    def note_fields(self, reads: FieldReads, *, is_whole: bool) -> bool:
        """Remember which fields code reads; tell whether some of them were not compared.

        `is_whole`: there is no more code than that which the reads are of.
        """
        before = {kind: self._compared(kind) for kind in self._kinds.values()}
        if not is_whole:
            reads.note_all_of(before)
        if self._reads is None:
            self._reads = reads
        else:
            self._reads.update(reads)
        return any(
            names is not None and names != self._compared(kind) for kind, names in before.items()
        )

    def refuse(self) -> Callable[[], None]:
        """Compare fewer objects by their fields from now on; returns what undoes that.

        First modules, and objects that are more than records, then none.
        """
        before = self._refused_holders, self._refused, self._kinds

        def undo() -> None:
            self._refused_holders, self._refused, self._kinds = before

        self._refused = self._refused_holders or not self._holders & self._kinds.keys()
        self._refused_holders = True
        dropped = self._kinds.keys() if self._refused else self._holders
        self._kinds = {key: kind for key, kind in self._kinds.items() if key not in dropped}
        return undo

    def refuse_all(self) -> None:
        """Compare all objects by identity from now on."""
        self._refused_holders = self._refused = True
        self._kinds = {}

    def note(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Look at a call; returns it with the objects met first, if there are more classes now."""
        if self._refused:
            return None
        before = len(self._kinds)
        met: set[int] = set()
        for path, value in (*enumerate(args), *kwargs.items()):
            self._visit(value, str(path), _DEPTH, met)
        if len(self._kinds) == before:
            return None
        first = tuple(self._first_at(str(i), value) for i, value in enumerate(args))
        return first, {name: self._first_at(name, value) for name, value in kwargs.items()}

    def _first_at(self, path: str, value: Any) -> Any:
        met = self._met.get((path, type(value)))
        first = met[0]() if met else None
        return self._first.get(path, value) if first is None else first

    def _visit(self, value: Any, path: str, depth: int, met: set[int]) -> None:
        kind = type(value)
        if is_value(value):
            first = self._first.setdefault(path, value)
            is_other = first is not value and type(first) is kind
            if is_other or slot_names(kind):
                self._kinds[id(kind)] = kind
        elif is_a(value, nn.Module) or not _is_container(value):
            if id(value) in met or self._refused_holders or not is_plain(value, self._compared):
                return
            met.add(id(value))
            self._count(value, path)
            depth = _DEPTH
        items = items_of(value, ByFields({kind: self._compared(kind)})) or {}
        for place, item in enumerate(items.values() if depth else ()):  # keys may say anything
            self._visit(item, f"{path}.{place}", depth - 1, met)

    def _count(self, value: Any, path: str) -> None:
        """Look at a module, or an object, that has a program of its own if there are few."""
        kind = type(value)
        met = self._met.setdefault((path, kind), [])
        if len(met) <= _OWN_PROGRAMS and not any(known() is value for known in met):
            met.append(_reference(value))
        if len(met) > _OWN_PROGRAMS or any(known() is None for known in met):
            self._kinds[id(kind)] = kind
            self._holders.add(id(kind))


def _is_container(value: Any) -> bool:
    return items_of(value) is not None


def _reference(value: Any) -> Callable[[], Any]:
    """Refer to an object without keeping it alive, where its class has a place for that."""
    try:
        return weakref.ref(value)
    except TypeError:  # it has slots
        return lambda: value
