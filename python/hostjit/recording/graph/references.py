# SPDX-License-Identifier: Apache-2.0
"""Others in the place of objects, wherever Python code has put these."""

from __future__ import annotations

import collections
import contextlib
import gc
import types
from collections.abc import Iterable, Mapping
from typing import Any

from hostjit.capturing.instances import instance_dict, is_namedtuple_type

__all__ = ["replace_everywhere"]

# Tuples in tuples, so deep.
_DEEPEST = 8


def replace_everywhere(objects: Iterable[Any], others: Mapping[int, Any]) -> None:
    """Have whatever holds objects hold others, by the ids of these.

    Containers, cells of functions, attributes, and tuples in them: what the collector knows of. Not
    variables of code that runs, nor what C code keeps to itself.
    """
    found, replaced = [*objects], dict(others)
    for _ in range(_DEEPEST):
        tuples: list[Any] = []
        for holder in gc.get_referrers(*found) if found else ():
            if holder is found or isinstance(holder, types.FrameType):
                continue
            if type(holder) is tuple or is_namedtuple_type(type(holder)):
                tuples.append(holder)
            else:
                _replace_in(holder, replaced)
        replaced = {
            id(each): tuple.__new__(type(each), [replaced.get(id(x), x) for x in each])
            for each in tuples
        }
        found = tuples


def _replace_in(holder: Any, others: Mapping[int, Any]) -> None:
    if isinstance(holder, dict):
        for key, value in [*dict.items(holder)]:
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
    elif isinstance(holder, BaseException):
        holder.args = tuple(others.get(id(each), each) for each in holder.args)
    else:
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
