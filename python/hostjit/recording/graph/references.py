# SPDX-License-Identifier: Apache-2.0
"""Others in the place of objects, wherever Python code has put these."""

from __future__ import annotations

import collections
import contextlib
import gc
import types
from collections.abc import Iterable, Mapping
from typing import Any

from hostjit.capturing.instances import instance_dict, is_namedtuple_type, is_one_of

__all__ = ["replace_everywhere"]

_METHODS = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)
_UNCHANGING = (tuple, frozenset, *_METHODS)
# What cannot be changed, in such, so deep.
_DEEPEST = 8


def replace_everywhere(objects: Iterable[Any], others: Mapping[int, Any]) -> None:
    """Have whatever holds objects hold others, by the ids of these.

    Containers, cells of functions, attributes, and tuples, frozen sets and bound methods in them:
    what the collector knows of. Not variables of code that runs, nor what C code keeps to itself.
    """
    found, replaced = [*objects], dict(others)
    for _ in range(_DEEPEST):
        unchanging: list[Any] = []
        for holder in gc.get_referrers(*found) if found else ():
            if holder is found or isinstance(holder, types.FrameType):
                continue
            if is_one_of(type(holder), _UNCHANGING) or is_namedtuple_type(type(holder)):
                unchanging.append(holder)
            else:
                _replace_in(holder, replaced)
        replaced = {id(each): _with_others(each, replaced) for each in unchanging}
        found = unchanging


def _with_others(holder: Any, others: Mapping[int, Any]) -> Any:
    """What is as something that cannot be changed, but has others."""
    if is_one_of(type(holder), _METHODS):
        owner = others.get(id(holder.__self__), holder.__self__)
        if type(holder) is types.MethodType:
            return types.MethodType(holder.__func__, owner)
        return getattr(owner, holder.__name__)
    if type(holder) is frozenset:
        return frozenset(others.get(id(each), each) for each in holder)
    return tuple.__new__(type(holder), [others.get(id(each), each) for each in holder])


def _replace_in(holder: Any, others: Mapping[int, Any]) -> None:
    if isinstance(holder, dict):
        items = [*dict.items(holder)]
        if type(holder) is dict and any(id(key) in others for key, _ in items):
            holder.clear()
            holder.update((others.get(id(key), key), value) for key, value in items)
            items = [*holder.items()]
        for key, value in items:
            if id(value) in others:
                dict.__setitem__(holder, key, others[id(value)])
    elif isinstance(holder, (list, collections.deque)):
        kind: Any = list if isinstance(holder, list) else collections.deque
        for index, value in enumerate([*kind.__iter__(holder)]):
            if id(value) in others:
                kind.__setitem__(holder, index, others[id(value)])
    elif isinstance(holder, types.CellType):
        if id(holder.cell_contents) in others:
            holder.cell_contents = others[id(holder.cell_contents)]
    elif isinstance(holder, set):
        for value in [*set.__iter__(holder)]:
            if id(value) in others:
                set.remove(holder, value)
                set.add(holder, others[id(value)])
    else:
        if isinstance(holder, BaseException):
            holder.args = others.get(id(holder.args), holder.args)
        _replace_in(instance_dict(holder) or {}, others)
        _replace_in_slots(holder, others)


def _replace_in_slots(holder: Any, others: Mapping[int, Any]) -> None:
    for base in type(holder).__mro__:
        for slot in [*vars(base).values()]:
            if isinstance(slot, types.MemberDescriptorType):
                value = slot.__get__(holder, type(holder)) if _has(slot, holder) else None
                if id(value) in others:
                    with contextlib.suppress(AttributeError, TypeError):  # of C code
                        slot.__set__(holder, others[id(value)])


def _has(slot: types.MemberDescriptorType, holder: Any) -> bool:
    try:
        slot.__get__(holder, type(holder))
    except AttributeError:
        return False
    return True
