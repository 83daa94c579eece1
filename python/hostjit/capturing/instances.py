# SPDX-License-Identifier: Apache-2.0
"""Objects of users' classes that are no more than their fields: instances of dataclasses, say.

Two of them with equal fields are told apart by nothing but their identity. The fields are the items
of `__dict__`, in its order, and then the slots.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import inspect
import threading
import types
import weakref
from collections.abc import Iterable, Sequence, Set
from typing import Any

import torch

from hostjit import _C

__all__ = [
    "HEAP_TYPE",
    "METHODS",
    "elements_of",
    "fields_of",
    "has_member",
    "instance_dict",
    "is_a",
    "is_hashed_by_identity",
    "is_namedtuple_type",
    "is_one_of",
    "is_value",
    "name_of",
    "new_namedtuple",
    "new_object",
    "shown",
    "slot_names",
    "slots_of",
]

HEAP_TYPE = 1 << 9
"""Of `__flags__`: a class that Python code made, and may change."""
_DEPTH = 8
_PLAIN: tuple[type, ...] = (
    *(bool, int, float, complex, str, bytes, type(None), enum.Enum, type),
    *(types.FunctionType, types.BuiltinFunctionType),
    *(torch.Tensor, torch.dtype, torch.device),
)


def _has_only_fields(kind: type) -> bool:
    """Whether what instances of a class answer is decided by the class and their fields."""
    if kind is types.SimpleNamespace:
        return True
    if type(kind) not in (type, abc.ABCMeta) or issubclass(kind, torch.nn.Module):
        return False
    *classes, last = kind.__mro__
    return (
        last is object
        and kind.__module__.partition(".")[0] not in ("torch", "hostjit", "builtins")
        and all(base.__flags__ & HEAP_TYPE for base in classes)
        and kind.__getattribute__ is object.__getattribute__
        and not has_member(kind, "__getattr__")
    )


def is_a(value: object, kinds: type | tuple[type, ...]) -> bool:
    """Tell whether an object is of a class, or of one of several, by its type.

    What it says itself in `__class__` is not asked: a proxy loads what it stands for, and is not
    that in memory.
    """
    return issubclass(type(value), kinds)


def is_one_of(kind: type, kinds: Iterable[type]) -> bool:
    """Tell whether a class is one of some; what its metaclass says in `__eq__` is not asked."""
    return any(kind is known for known in kinds)


def is_hashed_by_identity(kind: type) -> bool:
    """Tell whether looking a class up in a dict asks nothing of its metaclass."""
    meta: Any = type(kind)
    return meta.__hash__ is type.__hash__ and meta.__eq__ is type.__eq__


def is_namedtuple_type(kind: type) -> bool:
    """Tell whether instances of `kind` are rebuilt by `tuple.__new__(kind, items)`."""
    return issubclass(kind, tuple) and is_a(inspect.getattr_static(kind, "_fields", None), tuple)


def has_member(kind: type, name: str) -> bool:
    """Tell whether a class or a base of it defines a name; its metaclass is not asked."""
    return any(name in vars(base) for base in kind.__mro__)


def shown(value: object) -> str:
    """Return `repr` of a plain value, or of another its class: its own `__repr__` is not asked."""
    if type(value) in (bool, int, float, complex, str, bytes, type(None)):
        return repr(value)
    return f"<{type(value).__qualname__}>"


def name_of(value: Any) -> str:
    """Return the qualified name of a function or a class, or else of the class of an object."""
    name = getattr(value, "__qualname__", "") if is_a(value, _NAMED) else None
    if name is None:
        name = (instance_dict(value) or {}).get("__qualname__")
    return name if type(name) is str and name else type(value).__qualname__


# Functions bound to objects.
METHODS: tuple[type, ...] = (types.MethodType, _C.CompiledMethod)
_NAMED = (types.FunctionType, *METHODS, types.BuiltinFunctionType, type)
_DICTS = (types.GetSetDescriptorType, types.MemberDescriptorType)


def instance_dict(value: object) -> dict[Any, Any] | None:
    """Return the dict of an object's attributes, or None; no code of its class is asked.

    That of a `threading.local` is the one that this thread has.
    """
    if is_a(value, threading.local):
        of_thread: dict[Any, Any] = threading.local.__getattribute__(value, "__dict__")  # type: ignore[arg-type]
        return of_thread
    for base in type(value).__mro__:
        found: Any = vars(base).get("__dict__")
        if is_a(found, _DICTS):
            attributes: Any = found.__get__(value)
            return attributes if is_a(attributes, dict) else None
    return None


def elements_of(items: Set[Any]) -> tuple[Any, ...]:
    """Return the elements of a set in its order; no code of its class is asked."""
    own: Any = frozenset if is_a(items, frozenset) else set
    return tuple(own.__iter__(items))


def is_value(value: Any) -> bool:
    """Whether an object is of the kind of which callers make new ones: a record of plain values.

    One that holds modules or objects of other kinds is itself what matters; so may be one with
    lists or dicts, which grow, unless its class is a dataclass.
    """
    return _is_value(value, _DEPTH)


def _is_value(value: Any, depth: int) -> bool:
    fields = fields_of(value)
    if fields is None or not depth:
        return False
    containers = (tuple, list, dict) if dataclasses.is_dataclass(value) else (tuple,)

    def is_plain(item: Any) -> bool:
        if is_a(item, _PLAIN):
            return True
        if type(item) is dict and dict in containers:
            return all(map(is_plain, item.values()))
        if is_a(item, containers) and not is_a(item, dict):
            return all(map(is_plain, item))
        return _is_value(item, depth - 1)

    return all(map(is_plain, fields.values()))


_SLOTS: weakref.WeakKeyDictionary[type, tuple[types.MemberDescriptorType, ...]]
_SLOTS = weakref.WeakKeyDictionary()


def slots_of(kind: type) -> tuple[types.MemberDescriptorType, ...]:
    """Return the slots of objects of a class, those of bases first, without that of `__dict__`."""
    is_hashed = is_hashed_by_identity(kind)
    found = _SLOTS.get(kind) if is_hashed else None
    if found is None:
        by_name = {
            member.__name__: member
            for base in reversed(kind.__mro__)
            for member in vars(base).values()
            if isinstance(member, types.MemberDescriptorType) and member.__name__ != "__dict__"
        }
        found = tuple(by_name.values())
        if is_hashed:
            _SLOTS[kind] = found
    return found


def slot_names(kind: type) -> tuple[str, ...]:
    """Return the names of the slots of a class and its bases."""
    return tuple(slot.__name__ for slot in slots_of(kind))


def fields_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of an object; None for one whose class is another, or with empty slots."""
    kind = type(value)
    if not _has_only_fields(kind):
        return None
    found = dict(instance_dict(value) or {})
    if not all(type(name) is str for name in found):
        return None
    for name in slot_names(kind):
        try:
            found[name] = object.__getattribute__(value, name)
        except AttributeError:
            return None
    return found


def new_object(kind: type, names: Sequence[str], *values: Any) -> Any:
    """Make an object with these fields, slots or attributes: no constructor runs."""
    instance: Any = object.__new__(kind)
    fields = dict(zip(names, values, strict=True))
    for member in slots_of(kind):
        member.__set__(instance, fields.pop(member.__name__))
    if fields:
        instance.__dict__.update(fields)
    return instance


def new_namedtuple(kind: type, items: tuple[Any, ...]) -> Any:
    """Make a namedtuple without its constructor, which its class may have replaced."""
    return tuple.__new__(kind, items)
