# SPDX-License-Identifier: Apache-2.0
"""Attributes of objects that each call assigns, and reads, if at all, behind that.

    self.features = self.body(x)
    return self.head(self.features)

What such an attribute was before is nothing to the call, and what it is afterwards a replay assigns
as the call does. Attributes that calls replace, of what they were: a program takes the tensor that
one has when a call begins.

    self.plan = self.plan - self.rate * gradient

And attributes that are another number at each call, a weight of a loss say, which code only
computes with: a program takes them as numbers.
"""

from __future__ import annotations

import collections
import dataclasses
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hostjit.capturing.guards.watches import MISSING
from hostjit.capturing.instances import instance_dict
from hostjit.recording.stand_in import StandIn

__all__ = ["Accesses", "Attribute", "Attributes", "Owners", "as_defined"]

# What is known of more is not worth what it costs.
_MOST = 64
# So many calls that are recorded may find another kind of thing in an attribute that others
# replace: None, where a new episode begins.
_MOST_LEFT = 32
Owners = Mapping[int, tuple[Any, frozenset[str]]]
"""Objects by id, with names of attributes."""
# What stands for a number in the code of a frame, if something may.
_StandIn = Callable[[Any, str, Any, types.FrameType], Any]


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

    def __init__(self, most_numbers: int) -> None:
        """Know none yet. `most_numbers`: for how many a program has place."""
        self._most_numbers = most_numbers
        self._known: dict[tuple[int, str], Attribute] = {}
        self._numbers: dict[tuple[int, str], Attribute] = {}
        self._kept: dict[tuple[int, str], Attribute] = {}
        self._refused: set[tuple[int, str]] = set()
        self._left = collections.Counter[tuple[int, str]]()

    def add(self, found: Iterable[Attribute]) -> bool:
        """Leave attributes to the calls from now on; tells whether that is new, and may be."""
        fresh = {each.key: each for each in found}
        if not fresh or self._refused & fresh.keys() or fresh.keys() <= self._known.keys():
            return False
        self._known = _alive(self._known) | fresh
        return len(self._known) <= _MOST

    def open(self, found: Iterable[Attribute]) -> bool:
        """Have programs take numbers from now on; tells whether that is new, and may be."""
        fresh = {each.key: each for each in found}
        if not fresh or (self._refused | self._numbers.keys()) & fresh.keys():
            return False
        opened = _alive(self._numbers) | fresh
        if len(opened) > self._most_numbers:
            return False
        for key in fresh:
            self._known.pop(key, None)
        self._numbers = opened
        return True

    def keep(self, found: Iterable[Attribute]) -> bool:
        """Have programs take tensors from now on, which calls replace; tells whether that is new.

        And whether it may be.
        """
        fresh = {each.key: each for each in found if self._left[each.key] < _MOST_LEFT}
        if fresh.keys() <= self._kept.keys():
            return False
        for key in fresh:
            self._known.pop(key, None)
        self._kept = _alive(self._kept) | fresh
        return len(self._kept) <= _MOST

    def leave(self, keys: Iterable[tuple[int, str]]) -> None:
        """Note that a call has found no tensor, or number, where others have one.

        Or a tensor that it finds twice.

        Where that goes on, attributes are compared.
        """
        for key in keys:
            self._left[key] += 1
            if self._left[key] >= _MOST_LEFT:
                for known in (self._kept, self._numbers):
                    known.pop(key, None)
                self._refused.add(key)

    def refuse(self, keys: Iterable[tuple[int, str]]) -> None:
        """Compare attributes from now on, of which calls have made other use."""
        for key in keys:
            for known in (self._known, self._kept, self._numbers):
                known.pop(key, None)
            self._refused.add(key)

    def by_owner(self) -> Owners:
        """Return the objects whose attributes calls assign."""
        return _by_owner(self._known)

    def kept_by_owner(self) -> Owners:
        """Return the objects whose attributes are tensors that calls replace."""
        return _by_owner(self._kept)

    def numbers_by_owner(self) -> Owners:
        """Return the objects whose attributes are such numbers."""
        return _by_owner(self._numbers)


def _alive(known: dict[tuple[int, str], Attribute]) -> dict[tuple[int, str], Attribute]:
    return {key: each for key, each in known.items() if each.owner() is not None}


def _by_owner(known: Mapping[tuple[int, str], Attribute]) -> Owners:
    found: dict[int, tuple[Any, frozenset[str]]] = {}
    for each in known.values():
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
            for observer in self.observers:
                found = observer.number(owner, self._name, found, sys._getframe(1))
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

    def __init__(self, owners: Owners, kept: Owners, numbers: Owners, stand_in: _StandIn) -> None:
        """Enter nothing yet.

        Args:
            owners: objects, and which of their attributes are assigned.
            kept: the same of those that are assigned of what they were.
            numbers: the same of those that are numbers which are read.
            stand_in: given an object, a name, the number and a frame that reads it, returns what
                stands for it there; None where others may see it. And of what the call has
                assigned what the frame is given, or None for that itself.
        """
        self._owners, self._kept, self._numbers = owners, kept, numbers
        self._stand_in: _StandIn | None = stand_in
        self._first: dict[tuple[int, str], bool] = {}
        self._others: set[tuple[int, str]] = set()
        self._assigned: set[tuple[int, str]] = set()
        self._num_assigned = 0
        self._read: set[tuple[int, str]] = set()
        self._thread = threading.get_ident()
        self._entered: list[tuple[type, str]] = []

    def __enter__(self) -> Accesses:
        known = (*self._owners.values(), *self._kept.values(), *self._numbers.values())
        pairs = {(type(owner), name) for owner, names in known for name in names}
        with Accesses._lock:
            for kind, name in pairs:
                watched = Accesses._watched.get((kind, name)) or _Watched(kind, name)
                if not watched.observers:
                    try:
                        type.__setattr__(kind, name, watched)  # metaclasses see nothing of it
                    except TypeError:  # of a class that nobody changes
                        keys = {(key, name) for key in (*self._owners, *self._numbers)}
                        self._first |= dict.fromkeys(keys, False)
                        others = (*self._numbers, *self._kept)
                        self._others |= {(key, name) for key in others}
                        continue
                    Accesses._watched[kind, name] = watched
                watched.observers.append(self)
                self._entered.append((kind, name))
        return self

    def __exit__(self, *_: object) -> None:
        self._stand_in = None  # which holds this
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
        if threading.get_ident() != self._thread:
            return
        self._num_assigned += assigns
        self._first.setdefault((id(owner), name), assigns)
        (self._assigned if assigns else self._read).add((id(owner), name))

    def number(self, owner: Any, name: str, value: Any, frame: types.FrameType) -> Any:
        """Return what the code of a frame is given, that reads an attribute of an object."""
        key = id(owner), name
        if threading.get_ident() != self._thread or self._stand_in is None:
            return value.plain() if isinstance(value, StandIn) else value
        is_changed = key in self._assigned
        if not (is_changed or self._is_number(owner, name)) or key in self._others:
            return value
        found = self._stand_in(owner, name, value, frame)
        if found is None and not is_changed:
            self._others.add(key)
        return value if found is None else found

    def takes_number(self, owner: Any, name: str) -> bool:
        """Tell whether what stands for a number may be put into an attribute of an object.

        Who reads it in this thread is given what `stand_in` returns of that.
        """
        found = (each.get(id(owner)) for each in (self._owners, self._numbers))
        is_known = any(each is not None and name in each[1] for each in found)
        is_used = (id(owner), name) in self._others
        return is_known and not is_used and (type(owner), name) in self._entered

    def _is_number(self, owner: Any, name: str) -> bool:
        _, names = self._numbers.get(id(owner), (None, frozenset[str]()))
        return name in names

    def used_otherwise(self) -> set[tuple[int, str]]:
        """Return which attributes were used in other ways, or might have been.

        Those that were read before they were assigned, and numbers that others have seen.
        """
        known = {(key, name) for key, (_, names) in self._owners.items() for name in names}
        return {key for key in known if self._first.get(key) is False} | self._others

    def has_read(self, key: tuple[int, str]) -> bool:
        """Tell whether an attribute, by `Attribute.key`, was read."""
        return key in self._read

    def stand_ins(self) -> Iterator[tuple[Any, str, StandIn]]:
        """Yield the objects and names of attributes that were assigned, and what stands there."""
        for owner, names in (*self._owners.values(), *self._numbers.values()):
            for name in names:
                value = (instance_dict(owner) or {}).get(name)
                if (id(owner), name) in self._assigned and isinstance(value, StandIn):
                    yield owner, name, value

    def has_assigned(self, key: tuple[int, str]) -> bool:
        """Tell whether an attribute, by `Attribute.key`, was assigned."""
        return key in self._assigned

    def num_assigned(self) -> int:
        """Return how often some of the attributes were assigned."""
        return self._num_assigned

    def assigned(self) -> Iterator[tuple[Any, str]]:
        """Yield the objects whose attributes were assigned, and the names of these."""
        for key, (owner, names) in self._owners.items():
            for name in sorted(names):
                if self._first.get((key, name)):
                    yield owner, name
        for key, (owner, names) in (*self._kept.items(), *self._numbers.items()):
            for name in sorted(names):
                if (key, name) in self._assigned:
                    yield owner, name
