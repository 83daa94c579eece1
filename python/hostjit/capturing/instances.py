# SPDX-License-Identifier: Apache-2.0
"""Objects of users' classes that are no more than their fields: instances of dataclasses, say.

Two of them with equal fields are told apart by nothing but their identity. The fields are the items
of `__dict__`, in its order, and then the slots.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import types
import weakref
from typing import Any

import torch

__all__ = ["fields_of", "instance_dict", "is_value", "slot_names", "slots_of"]

_HEAP_TYPE = 1 << 9
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
        and all(base.__flags__ & _HEAP_TYPE for base in classes)
        and kind.__getattribute__ is object.__getattribute__
        and not hasattr(kind, "__getattr__")
    )


def instance_dict(value: object) -> dict[Any, Any] | None:
    """Return the `__dict__` of an object, or None; its `__getattr__` is not asked."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


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
        if isinstance(item, _PLAIN):
            return True
        if type(item) is dict and dict in containers:
            return all(map(is_plain, item.values()))
        if isinstance(item, containers) and not isinstance(item, dict):
            return all(map(is_plain, item))
        return _is_value(item, depth - 1)

    return all(map(is_plain, fields.values()))


_SLOTS: weakref.WeakKeyDictionary[type, tuple[types.MemberDescriptorType, ...]]
_SLOTS = weakref.WeakKeyDictionary()


def slots_of(kind: type) -> tuple[types.MemberDescriptorType, ...]:
    """Return the slots of objects of a class, those of bases first, without that of `__dict__`."""
    found = _SLOTS.get(kind)
    if found is None:
        by_name = {
            member.__name__: member
            for base in reversed(kind.__mro__)
            for member in vars(base).values()
            if isinstance(member, types.MemberDescriptorType) and member.__name__ != "__dict__"
        }
        found = _SLOTS[kind] = tuple(by_name.values())
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
