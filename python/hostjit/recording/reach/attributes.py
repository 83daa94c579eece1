# SPDX-License-Identifier: Apache-2.0
"""Attributes of objects that each call assigns, and reads, if at all, behind that.

    self.features = self.body(x)
    return self.head(self.features)

What such an attribute was before is nothing to the call, and what it is afterwards a replay assigns
as the call does.
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hostjit.capturing.guards.watches import MISSING
from hostjit.capturing.instances import instance_dict

__all__ = ["Accesses", "Attribute", "Attributes", "as_defined"]

# What is known of more is not worth what it costs.
_MOST = 64


@dataclasses.dataclass(frozen=True)
class Attribute:
    """An attribute in the dict of an object.

    Attributes:
        owner: the object.
        name: of the attribute.
    """

    owner: weakref.ref[Any]
    name: str

    @property
    def key(self) -> tuple[int, str]:
        """What tells it from others, while the object lives."""
        return id(self.owner()), self.name


class Attributes:
    """Those of one function's calls."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], Attribute] = {}
        self._read: set[tuple[int, str]] = set()

    def add(self, found: Iterable[Attribute]) -> bool:
        """Leave attributes to the calls from now on; tells whether that is new, and may be."""
        fresh = {each.key: each for each in found}
        if not fresh or self._read & fresh.keys() or fresh.keys() <= self._known.keys():
            return False
        self._known = {key: each for key, each in self._known.items() if each.owner() is not None}
        self._known |= fresh
        return len(self._known) <= _MOST

    def remove(self, keys: Iterable[tuple[int, str]]) -> None:
        """Compare attributes from now on, which calls have read before they assigned them."""
        for key in keys:
            self._known.pop(key, None)
            self._read.add(key)

    def by_owner(self) -> dict[int, tuple[Any, frozenset[str]]]:
        """Return the objects that there are, by id, with the names of the attributes."""
        found: dict[int, tuple[Any, frozenset[str]]] = {}
        for each in self._known.values():
            owner = each.owner()
            if owner is not None:
                _, names = found.get(id(owner), (owner, frozenset[str]()))
                found[id(owner)] = owner, names | {each.name}
        return found


class _Watched:
    """In place of what a class has by a name: tells how objects are asked for it.

    Attributes:
        inherited: what the class has, or its bases.
        before: what the class itself has.
        observers: those who are told.
    """

    def __init__(self, kind: type, name: str) -> None:
        bases = (vars(base) for base in kind.__mro__)
        found = (as_defined(base[name]) for base in bases if name in base)
        self.inherited = next(found, MISSING)
        self.before = vars(kind).get(name, MISSING)
        self.observers: list[Accesses] = []
        self._name = name

    def _tell(self, owner: Any, *, assigns: bool) -> None:
        for observer in self.observers:
            observer.note(owner, self._name, assigns=assigns)

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        found: Any = MISSING
        if owner is not None:
            self._tell(owner, assigns=False)
            found = dict.get(instance_dict(owner) or {}, self._name, MISSING)
        if found is MISSING:
            found = self.inherited
        if found is MISSING:
            text = f"{type(owner).__name__!r} object has no attribute {self._name!r}"
            raise AttributeError(text, name=self._name, obj=owner)
        return found

    def __set__(self, owner: Any, value: Any) -> None:
        self._tell(owner, assigns=True)
        owner.__dict__[self._name] = value

    def __delete__(self, owner: Any) -> None:
        self._tell(owner, assigns=False)
        try:
            del owner.__dict__[self._name]
        except KeyError:
            raise AttributeError(self._name, name=self._name, obj=owner) from None


def as_defined(value: Any) -> Any:
    """Return what a class has by a name, where `Accesses` may be looking at that."""
    return value.inherited if type(value) is _Watched else value


class Accesses:
    """While entered, notes whether this thread reads attributes before it assigns them.

    Classes have descriptors by their names meanwhile, through which all threads come.
    """

    _lock = threading.Lock()
    _watched: dict[tuple[type, str], _Watched] = {}  # noqa: RUF012

    def __init__(self, owners: Mapping[int, tuple[Any, frozenset[str]]]) -> None:
        """`owners`: as `Attributes.by_owner` returns them."""
        self._owners = owners
        self._first: dict[tuple[int, str], bool] = {}
        self._thread = threading.get_ident()
        self._entered: list[tuple[type, str]] = []

    def __enter__(self) -> Accesses:
        pairs = {(type(owner), name) for owner, names in self._owners.values() for name in names}
        with Accesses._lock:
            for kind, name in pairs:
                watched = Accesses._watched.get((kind, name)) or _Watched(kind, name)
                if not watched.observers:
                    try:
                        type.__setattr__(kind, name, watched)  # metaclasses see nothing of it
                    except TypeError:  # of a class that nobody changes
                        self._first |= {(key, name): False for key in self._owners}
                        continue
                    Accesses._watched[kind, name] = watched
                watched.observers.append(self)
                self._entered.append((kind, name))
        return self

    def __exit__(self, *_: object) -> None:
        with Accesses._lock:
            for kind, name in self._entered:
                watched = Accesses._watched[kind, name]
                watched.observers.remove(self)
                if watched.observers:
                    continue
                del Accesses._watched[kind, name]
                if watched.before is MISSING:
                    type.__delattr__(kind, name)
                else:
                    type.__setattr__(kind, name, watched.before)

    def note(self, owner: Any, name: str, *, assigns: bool) -> None:
        """Note that an attribute of an object is read, or assigned."""
        if threading.get_ident() == self._thread:
            self._first.setdefault((id(owner), name), assigns)

    def read_first(self) -> set[tuple[int, str]]:
        """Return which attributes were read, or might have been, and not assigned before."""
        known = {(key, name) for key, (_, names) in self._owners.items() for name in names}
        return {key for key in known if self._first.get(key) is False}

    def assigned(self) -> Iterator[tuple[Any, str]]:
        """Yield the objects whose attributes were assigned, and the names of these."""
        for key, (owner, names) in self._owners.items():
            for name in sorted(names):
                if self._first.get((key, name)):
                    yield owner, name
