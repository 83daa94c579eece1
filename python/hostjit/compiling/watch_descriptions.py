# SPDX-License-Identifier: Apache-2.0
"""Watches as `_C.Specialization` takes them."""

from __future__ import annotations

from typing import Any

from hostjit.capturing.guards import watches

__all__ = ["describe_watch"]


def describe_watch(entry: watches.Watch) -> tuple[Any, ...]:
    """Return the tuple that `_C.Specialization` takes of an entry."""
    match entry:
        case watches.DictVersion():
            return ("dict", entry.mapping, entry.owner)
        case watches.DictItems():
            missing = watches.MISSING
            return ("dict_items", entry.mapping, entry.owner, entry.keys, entry.expected, missing)
        case watches.DictKeys():
            return ("dict_keys", entry.mapping, entry.keys)
        case watches.CellContents():
            contents = () if entry.expected is watches.MISSING else (entry.expected,)
            return ("cell", entry.cell, contents)
        case watches.ListItems():
            return ("list", entry.list, entry.items, watches.MISSING)
        case watches.SetItems():
            return ("set", entry.set, entry.items)
        case watches.TypeVersion():
            return ("type_but", entry.type, entry.open) if entry.by_items else ("type", entry.type)
        case watches.ObjectType():
            return ("object_type", entry.object, entry.type)
        case watches.FunctionState():
            return ("function", entry.function, entry.code, entry.defaults, entry.kwdefaults)
        case watches.FunctionFields():
            return ("fields", entry.function, entry.names)
        case watches.AbstractClasses():
            return ("abc_token", entry.token)
        case watches.Slots():
            return ("slots", entry.object, entry.members)
        case watches.TensorState():
            return ("tensor", entry.tensor)
        case watches.GradientState():
            return ("no_gradient" if entry.facts is None else "gradient", entry.owner)
