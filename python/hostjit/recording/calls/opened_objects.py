# SPDX-License-Identifier: Apache-2.0
"""Objects among the arguments of which each call brings another: their fields are compared instead.

A recording that is for one object would answer one call. So where objects of a class keep coming,
what is in their slots and attributes is looked at, as what is in containers is.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.instances import (
    HEAP_TYPE,
    METHODS,
    instance_dict,
    is_a,
    is_hashed_by_identity,
    is_namedtuple_type,
    is_one_of,
    slot_names,
    slots_of,
)
from hostjit.recording.reach.objects import hidden_base

__all__ = ["Opened", "OpenedClasses", "can_open", "expanded", "fields_of"]

# Classes, and the names of the slots of their objects.
Opened = Mapping[type, tuple[str, ...]]
# Objects of these are more than what is in them.
_WHOLE = (
    *(torch.Tensor, torch.nn.Module, torch.optim.Optimizer, type, BaseException, enum.Enum),
    *(tuple, list, dict, set, frozenset, str, bytes, int, float, complex),
    *(types.FunctionType, *METHODS, types.ModuleType, types.CodeType),
)
_ACTIVE = frozenset({"__next__", "__getattribute__"})
_NAMESPACE = types.SimpleNamespace


def fields_of(value: Any) -> dict[str, Any]:
    """Return what an object has in attributes and slots, in this order; raises AttributeError."""
    kind = type(value)
    slots = {member.__name__: member.__get__(value, kind) for member in slots_of(kind)}
    return {**(instance_dict(value) or {}), **slots}


def expanded(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    opened: Opened,
    note: Callable[[Any], object] = lambda _: None,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments with a dict of its class and fields in the place of each opened object.

    `note` is called with each object and each list or dict, if a class is opened. Raises
    CaptureError for an object that contains itself, or one with an empty slot.
    """
    open_now: set[int] = set()

    def expand(value: Any) -> Any:
        kind = type(value)
        if kind is tuple:
            return tuple(map(expand, value))
        if is_namedtuple_type(kind):
            return tuple.__new__(kind, map(expand, value))
        if kind is list:
            note(value)
            return list(map(expand, value))
        if kind is dict or kind is collections.OrderedDict:
            note(value)
            if list(dict.__iter__(value)) != list(value):
                return value  # items were moved, which is refused
            return kind((key, expand(item)) for key, item in value.items())
        if not is_one_of(kind, opened):
            return value
        note(value)
        if id(value) in open_now:
            raise _cannot_open(kind, "which contains itself")
        open_now.add(id(value))
        try:
            fields = fields_of(value)
            return {"class": kind, **{name: expand(item) for name, item in fields.items()}}
        except AttributeError:
            raise _cannot_open(kind, "which has an empty slot") from None
        finally:
            open_now.discard(id(value))

    if not opened:
        return tuple(args), dict(kwargs)
    return tuple(map(expand, args)), {name: expand(value) for name, value in kwargs.items()}


def _cannot_open(kind: type, why: str) -> CaptureError:
    return CaptureError(
        CaptureFailure.UNSUPPORTED_INPUT, f"an argument is a new {kind.__qualname__}, {why}"
    )


class OpenedClasses:
    """Learns which classes of arguments bring another object at each call.

    Attributes:
        classes: these classes, with their slots.
    """

    def __init__(self) -> None:
        self.classes: dict[type, tuple[str, ...]] = {}
        self._met: dict[type, list[Callable[[], Any]]] = {}

    def meet(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Look at the objects of a call; tell whether a class is opened now."""
        before = len(self.classes)
        pending: list[Any] = [*args, *kwargs.values()]
        seen: set[int] = set()
        while pending:
            value = pending.pop()
            kind = type(value)
            if id(value) in seen:
                continue
            seen.add(id(value))
            if kind is tuple or kind is list or is_namedtuple_type(kind):
                pending.extend(value)
            elif kind is dict or kind is collections.OrderedDict:
                pending.extend(value.values())
            elif is_one_of(kind, self.classes) or self._is_another(value, kind):
                self.classes.setdefault(kind, slot_names(kind))
                with contextlib.suppress(AttributeError):  # a slot is empty, which is refused later
                    pending.extend(fields_of(value).values())
        return len(self.classes) > before

    def forget(self, gone: weakref.ref[Any]) -> None:
        """Forget an object that is gone: it was not one that a call alone brings."""
        for kind in list(self._met):
            met = self._met[kind]
            met[:] = [reference for reference in met if reference is not gone]

    def _is_another(self, value: Any, kind: type) -> bool:
        """Tell whether a call brings an object in the place of one that an earlier one brought.

        Objects of other classes than dataclasses may be few, which live on: one of them has died.
        """
        if not can_open(value):
            return False
        met = self._met.setdefault(kind, [])
        known = [reference() for reference in met]
        if any(found is value for found in known):
            return False
        has_lost_one = any(found is None for found in known)
        is_another = bool(met) and (_is_record(kind) or has_lost_one)
        try:
            met.append(weakref.ref(value))
        except TypeError:  # its slots have no place for that
            met.append(lambda: None)
        return is_another


def _is_record(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or not kind.__dictoffset__ or kind is _NAMESPACE


def can_open(value: Any) -> bool:
    """Tell whether an object, of a class that Python code made, is what is in its fields."""
    kind = type(value)
    if is_a(value, _WHOLE) or hidden_base(kind) is not None:
        return False
    if not kind.__flags__ & HEAP_TYPE and kind is not _NAMESPACE:
        return False
    if not is_hashed_by_identity(kind):
        return False
    has_fields = bool(kind.__dictoffset__ or slots_of(kind))
    special = {name for base in kind.__mro__[:-1] for name in vars(base)}
    return has_fields and (kind is _NAMESPACE or special.isdisjoint(_ACTIVE))
