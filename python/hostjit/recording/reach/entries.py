# SPDX-License-Identifier: Apache-2.0
"""What one container held when it was met: compared later, and watched by the call path."""

from __future__ import annotations

import collections
import enum
import itertools
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.capturing.constants import IMMUTABLE_TYPES, same_constant
from hostjit.capturing.dynamo.installed_names import INSTALLED
from hostjit.capturing.guards.watches import MISSING
from hostjit.capturing.instances import HEAP_TYPE, instance_dict, is_a, is_one_of, shown
from hostjit.compiling.numbers_outside import NumberOutside
from hostjit.recording.reach.attributes import Attribute

__all__ = [
    "Entry",
    "Items",
    "ListEntry",
    "SetEntry",
    "Slots",
    "all_same",
    "same",
    "stored_in",
]

# Of these, equal values are the same; those of their subclasses may have code and attributes.
_COMPARED = tuple(kind for kind in IMMUTABLE_TYPES if kind not in (enum.Enum, type))
_NUMBERS = (int, float)
# Packages whose objects have slots that nobody sets once they are made.
_OF_FIXED_SLOTS = ("torch", "hostjit", "builtins", "types", "typing")


def same(a: Any, b: Any) -> bool:
    """Tell whether a value is another: the very object, or an equal immutable value."""
    if a is b:
        return True
    return is_one_of(type(a), _COMPARED) and same_constant(a, b)


def all_same(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Tell whether values are those expected: the very objects, or equal immutable values."""
    return len(found) == len(expected) and all(map(same, found, expected))


def stored_in(container: Any) -> tuple[Any, ...]:
    """Return the items of a container, pairs of a dict, as its built-in base class stores them.

    No code of a subclass runs, which may load what it says that it has.
    """
    for kind, read in _STORED:
        if is_a(container, kind):
            return tuple(read(container))
    raise TypeError(f"{type(container).__qualname__} is no container")


_STORED: tuple[tuple[type, Callable[[Any], Iterable[Any]]], ...] = (
    (collections.OrderedDict, collections.OrderedDict.items),
    (dict, dict.items),
    *((kind, kind.__iter__) for kind in (list, tuple, set, frozenset, collections.deque)),
)


def referred_to(value: Any) -> Callable[[], Any]:
    """Return what gives an object, which is not kept alive if it can live without; None then."""
    return _weakly(value) or (lambda: value)


def _weakly(value: Any) -> weakref.ref[Any] | None:
    return weakref.ref(value) if _C.is_held_weakly(value) else None


class Entry:
    """One container.

    Attributes:
        path: where it was found, for messages.
        watched: it is state; otherwise an argument, which is only compared within the call.
        asked: a condition of the recording compares it at each call: the call path cannot watch it.
        of_user: only users' code knows what it is called by.
        of_library: it belongs to a library: only what users name in it is looked at.
        is_whole: all of its attributes are compared, and which there are.
        holder: what it goes with, where that can be held weakly.
    """

    asked = False
    holder: weakref.ref[Any] | None = None
    is_whole = False
    of_library = False
    of_user = False

    def __init__(self, path: str, watched: bool = True) -> None:
        self.path = path
        self.watched = watched

    def differs(self) -> bool:
        """Tell whether it is not as it was found."""
        raise NotImplementedError

    def where(self) -> str:
        """Say what differs first."""
        return self.path

    def changes(self) -> Iterator[str]:
        """Say what differs, one by one."""
        if self.differs():
            yield self.where()

    def changed(self) -> dict[Any, Any]:
        """Return what differs, by places: what is there now, or an object of its own."""
        return {None: object()} if self.differs() else {}

    def watches(self) -> list[tuple[Any, ...]]:
        """Return what the call path compares: what is there now, once `differs` says no."""
        return []

    def numbers(self) -> Iterator[NumberOutside]:
        """Yield the ints and floats that it held."""
        for key, name, was, _ in self._values():
            if is_one_of(type(was), _NUMBERS):
                yield NumberOutside((self._identity(), key), self.holder, name, was)

    def tensor_attributes(self) -> Iterator[tuple[Attribute, torch.Tensor, Any]]:
        """Yield the attributes that were tensors of no other class, what they were and are."""
        for key, _, was, now in self._values():
            if type(was) is torch.Tensor:
                found = attribute_at(self.holder, self._identity(), key)
                if found is not None:
                    yield found, was, now

    def differs_in_numbers_alone(self) -> bool:
        """Tell whether all that differs are numbers, in the places of numbers."""
        return self._has_same_places() and all(
            same(was, now) or (is_one_of(type(was), _NUMBERS) and is_one_of(type(now), _NUMBERS))
            for _, _, was, now in self._values()
        )

    def has_grown(self) -> bool:
        """Tell whether all that differs is that something was added, as to a list."""
        return False

    def _values(self) -> Iterable[tuple[Any, str, Any, Any]]:
        """What it held, one by one: which it is, a name for it, what it was and what it is now."""
        return ()

    def _has_same_places(self) -> bool:
        """Tell whether nothing else of it can differ than `_values`."""
        return False

    def _identity(self) -> int:
        raise NotImplementedError


class Items(Entry):
    """A dict: all of it, or some keys. `owner`: the object whose `__dict__` it is."""

    def __init__(
        self,
        mapping: dict[Any, Any],
        owner: Any,
        path: str,
        *,
        by_name: bool,
        by_attribute: bool = False,
        watched: bool = True,
    ) -> None:
        super().__init__(path, watched)
        self.by_attribute = by_attribute
        self._mapping = mapping
        self._owner = referred_to(owner)
        self.holder = _weakly(owner)
        self._owner_type = type(owner)
        self._by_name = by_name
        self._expected: dict[Any, Any] = {}
        self._pairs: tuple[Any, ...] = () if by_name else stored_in(mapping)
        self.asked = is_a(owner, threading.local)  # which has another dict in each thread
        self._keys: list[Any] | None = None

    def keys(self) -> list[Any]:
        """The keys that there are, without what Dynamo puts among the globals of modules."""
        keys = [key for key, _ in stored_in(self._mapping)]
        if self._owner_type is not type(None):
            return keys
        return [key for key in keys if type(key) is not str or not key.startswith(INSTALLED)]

    def constants(self) -> set[Any]:
        """The keys of numbers, texts and None that others may assign."""
        kinds = (bool, int, float, str, type(None))
        items = dict.items(self._mapping)
        return {key for key, value in items if type(value) in kinds and key[:2] != "__"}

    def add_keys(self) -> bool:
        """Remember which keys there are, of an object's attributes; False of other dicts."""
        if self._owner_type is type(None):
            return False
        self.add_all_keys()
        return True

    def add_all_keys(self) -> None:
        """Remember which keys there are: code may ask for any."""
        if self._keys is None:
            self._keys = self.keys()

    def add(self, key: Any) -> bool:
        """Remember what is at a key from now on; False if it was known."""
        if not self._by_name or key in self._expected:
            return False
        self._expected[key] = dict.get(self._mapping, key, MISSING)
        return True

    def values(self, key: Any) -> Iterable[Any]:
        """What was at a key: one value or none."""
        value = self._expected[key]
        return () if value is MISSING else (value,)

    @property
    def mapping(self) -> int:
        """The id of the dict."""
        return id(self._mapping)

    @property
    def compares_all(self) -> bool:
        """Whether code may look at all that is in it."""
        return not self._by_name or self._keys is not None

    @property
    def is_of_module(self) -> bool:
        """Whether it is a dict of globals."""
        return self._owner_type is type(None)

    def counted(self) -> Iterator[tuple[str, int]]:
        """Yield the names of ints that are others now, and by how much.

        None where code may look at all items, or where assigning one may be more than to store it.
        """
        owner = self._owner()
        if self._keys is not None or not self._by_name or self.of_library:
            return
        if owner is not None and not _stores_attributes(type(owner)):
            return
        for key, was in self._expected.items():
            now = dict.get(self._mapping, key)
            if type(was) is int and type(now) is int and was != now and type(key) is str:
                if owner is None or not hasattr(type(owner), key):
                    yield key, now - was

    def assigned(self) -> Iterator[tuple[Any, str]] | None:
        """Yield the object and the names of its attributes that are others now, or new.

        None where something else differs, code may look at all attributes, or assigning one may be
        more than to store it.
        """
        owner = self._owner()
        if owner is None or not self._is_of_same_owner() or self._keys is not None:
            return None
        if not self._by_name or not _stores_attributes(type(owner)):
            return None
        names = [key for key, was in self._expected.items() if not same(self._now(key), was)]
        if any(type(x) is not str or self._now(x) is MISSING for x in names):
            return None
        found = (getattr(type(owner), name, None) for name in names)
        if any(hasattr(type(x), way) for x in found for way in ("__get__", "__set__")):
            return None
        return ((owner, name) for name in names)

    def _now(self, key: Any) -> Any:
        return dict.get(self._mapping, key, MISSING)

    def leave(self, key: str) -> dict[Any, Any]:
        """Compare what is at a key no more; returns the dict."""
        del self._expected[key]
        return self._mapping

    def differs(self) -> bool:
        if not self._is_of_same_owner():
            return True
        if not self._by_name:
            found = stored_in(self._mapping)
            return len(found) != len(self._pairs) or not all(map(all_same, found, self._pairs))
        if self._keys is not None and not all_same(self._keys, self.keys()):
            return True
        return not all(
            same(dict.get(self._mapping, key, MISSING), value)
            for key, value in self._expected.items()
        )

    def _is_of_same_owner(self) -> bool:
        owner = self._owner()
        if type(owner) is not self._owner_type:
            return False
        return owner is None or instance_dict(owner) is self._mapping

    def _values(self) -> Iterator[tuple[Any, str, Any, Any]]:
        held = self._expected.items() if self._by_name else self._pairs
        for key, was in held:
            if type(key) is str:  # of others the code may be the user's
                yield key, f"{self.path}.{key}", was, dict.get(self._mapping, key, MISSING)

    def _has_same_places(self) -> bool:
        if not self._is_of_same_owner():
            return False
        if self._by_name:
            return self._keys is None or all_same(self._keys, self.keys())
        keys = [key for key, _ in self._pairs]
        return all(type(key) is str for key in keys) and all_same(keys, self.keys())

    def _identity(self) -> int:
        return self.mapping

    def changes(self) -> Iterator[str]:
        if not (self._by_name and self.differs()):
            yield from super().changes()
            return
        keys = [key for key, was in self._expected.items() if not same(self._now(key), was)]
        yield from (f"{self.path}.{key}" for key in keys)
        if not keys:
            yield self.path

    def changed(self) -> dict[Any, Any]:
        if not (self._by_name and self.differs()) or not self._has_same_places():
            return super().changed()
        return {
            key: self._now(key)
            for key, was in self._expected.items()
            if not same(self._now(key), was)
        }

    def where(self) -> str:
        if self._by_name:
            return next(self.changes(), self.path)
        nothing = (MISSING, MISSING)
        for now, was in itertools.zip_longest(
            stored_in(self._mapping), self._pairs, fillvalue=nothing
        ):
            if not all_same(now, was):
                key = was[0] if now is nothing else now[0]
                is_item = self._owner_type is type(None)
                return f"{self.path}[{shown(key)}]" if is_item else f"{self.path}.{key}"
        return self.path

    def watches(self) -> list[tuple[Any, ...]]:
        owner = self._owner()
        watches = _type_watches(owner)
        if self.asked:
            return watches
        if not self._by_name:
            return [*watches, ("dict", self._mapping, owner)]
        if self._keys is not None:
            return [*watches, ("dict", self._mapping, owner)]
        names = tuple(self._expected)
        values = tuple(dict.get(self._mapping, name, MISSING) for name in names)
        return [*watches, ("dict_items", self._mapping, owner, names, values, MISSING)]


def attribute_at(holder: weakref.ref[Any] | None, identity: int, name: Any) -> Attribute | None:
    """Return the plain attribute of an object that is in a dict; None where it is something else.

    `identity`: of the dict.
    """
    owner = None if holder is None else holder()
    if owner is None or id(instance_dict(owner)) != identity or type(name) is not str:
        return None
    if holder is None or not _stores_attributes(type(owner)):
        return None
    inherited = getattr(type(owner), name, None)
    if any(hasattr(type(inherited), way) for way in ("__get__", "__set__")):
        return None
    return Attribute(holder, name)


def _stores_attributes(kind: Any) -> bool:
    """Tell whether attributes of objects of a class are read and assigned as Python does it.

    So they are where a module has a number.
    """
    assigns = kind.__setattr__
    is_plain = assigns is object.__setattr__ or assigns is torch.nn.Module.__setattr__
    return is_plain and kind.__getattribute__ is object.__getattribute__


def _type_watches(owner: Any) -> list[tuple[Any, ...]]:
    """Return what tells the call path that nobody assigned the class of an object."""
    is_changeable = owner is not None and type(owner).__flags__ & HEAP_TYPE
    return [("object_type", owner, type(owner))] if is_changeable else []


class ListEntry(Entry):
    """A list and its items."""

    def __init__(self, items: list[Any], path: str, watched: bool = True) -> None:
        super().__init__(path, watched)
        self._list = items
        self._expected = stored_in(items)

    def differs(self) -> bool:
        return not all_same(stored_in(self._list), self._expected)

    def has_grown(self) -> bool:
        found = stored_in(self._list)
        return all_same(found[: len(self._expected)], self._expected)

    def watches(self) -> list[tuple[Any, ...]]:
        return [("list", self._list, stored_in(self._list))]


class SetEntry(Entry):
    """A set and its items, in the order in which code meets them."""

    def __init__(self, items: set[Any] | frozenset[Any], path: str) -> None:
        super().__init__(path)
        self._set = items
        self._expected = stored_in(items)

    def differs(self) -> bool:
        return not all_same(stored_in(self._set), self._expected)

    def watches(self) -> list[tuple[Any, ...]]:
        return [("set", self._set, stored_in(self._set))]


class Slots(Entry):
    """The slots of an object."""

    def __init__(self, value: Any, path: str, watched: bool = True) -> None:
        super().__init__(path, watched)
        self._object = referred_to(value)
        self.holder = _weakly(value)
        kind = type(value)
        self._members = []
        is_fixed = is_a(value, types.GenericAlias)  # `collections.abc.Callable[..., int]`
        if not is_fixed and kind.__module__.partition(".")[0] not in _OF_FIXED_SLOTS:
            self._members = [
                member
                for base in kind.__mro__
                for member in vars(base).values()
                if isinstance(member, types.MemberDescriptorType)
            ]
        self._expected = self._find()

    def __bool__(self) -> bool:
        return bool(self._members)

    def _find(self) -> tuple[Any, ...]:
        value = self._object()

        def read(member: Any) -> Any:
            try:
                return member.__get__(value, type(value))
            except AttributeError:
                return MISSING

        return tuple(map(read, self._members))

    def values(self) -> Iterable[Any]:
        """What they held."""
        return (value for value in self._expected if value is not MISSING)

    def _values(self) -> Iterator[tuple[Any, str, Any, Any]]:
        for member, was, now in zip(self._members, self._expected, self._find(), strict=True):
            yield member.__name__, f"{self.path}.{member.__name__}", was, now

    def _has_same_places(self) -> bool:
        return True

    def _identity(self) -> int:
        return id(self._object())

    def differs(self) -> bool:
        is_gone = self._object() is None
        return is_gone or not all_same(self._find(), self._expected)

    def watches(self) -> list[tuple[Any, ...]]:
        return [("slots", self._object(), tuple(self._members))]
