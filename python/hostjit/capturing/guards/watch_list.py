# SPDX-License-Identifier: Apache-2.0
"""Collects what a program assumes about Python state, while its guards are gone through."""

from __future__ import annotations

import collections
import dataclasses
import threading
import types
from collections.abc import Set
from typing import TYPE_CHECKING, Any

import torch

from hostjit.capturing.guards.watches import (
    MISSING,
    AbstractClasses,
    CellContents,
    DictItems,
    DictKeys,
    DictVersion,
    FunctionFields,
    FunctionState,
    GradientState,
    ListItems,
    ObjectType,
    SetItems,
    Slots,
    TensorState,
    TypeVersion,
    Watch,
)
from hostjit.capturing.instances import HEAP_TYPE, elements_of, is_a
from hostjit.capturing.tensors import TensorFacts

if TYPE_CHECKING:
    from hostjit.capturing.numbers.open_numbers import NumberPlace

__all__ = ["WatchList"]


class WatchList:
    """Collects entries without repetition; `entries()` merges what one check can cover."""

    def __init__(self) -> None:
        self._versions: dict[int, DictVersion] = {}
        self._items: dict[int, tuple[DictItems, dict[Any, Any]]] = {}
        self._others: dict[tuple[str, int], Watch] = {}
        self._open_items: set[tuple[int, Any]] = set()
        self._open_cells: set[int] = set()
        self._open_slots: set[tuple[int, types.MemberDescriptorType]] = set()
        self.open_attributes: dict[type, set[str]] = {}
        self._whole_lists: set[int] = set()
        self._read_items: set[tuple[int, int]] = set()
        self.unwatchable: dict[str, None] = {}
        self._read_attributes: set[str] = set()
        self._known_names: Set[str] | None = None

    def read_attribute(self, name: Any) -> None:
        """Note the name of an attribute that was read, of an object or a class."""
        if isinstance(name, str):
            self._read_attributes.add(name)

    def compare_classes(self, names: Set[str]) -> None:
        """Compare what is in classes that change: counters and switches, which others set.

        `names`: those that the code knows. Data of a class with another name may be any.
        """
        self._known_names = names | self._read_attributes

    def leave_open(self, place: NumberPlace) -> None:
        """Let a number be any: it is read at each call."""
        if isinstance(place.key, types.MemberDescriptorType):
            self._open_slots.add((id(place.holder), place.key))
        elif isinstance(place.holder, (dict, list)):
            self._open_items.add((id(place.holder), place.key))
        elif isinstance(place.holder, tuple):
            return  # which does not change
        elif isinstance(place.holder, type):
            self.open_attributes.setdefault(place.holder, set()).add(place.key)
        else:
            self._open_cells.add(id(place.holder))

    def dict_version(self, mapping: dict[Any, Any], path: str, owner: object = None) -> None:
        """Watch the whole of a dict."""
        known = self._versions.get(id(mapping))
        if known is None or (known.owner is None and owner is not None):
            self._versions[id(mapping)] = DictVersion(mapping, owner, path)

    def dict_item(self, mapping: dict[Any, Any], key: Any, path: str, owner: object = None) -> None:
        """Watch one key of a dict, present or not."""
        if is_a(owner, threading.local):  # which has another dict in each thread
            self.cannot_watch(f"{path}.{key} (of a thread)")
            return
        entry, items = self._items.setdefault(
            id(mapping), (DictItems(mapping, owner, (), (), path), {})
        )
        if entry.owner is None and owner is not None:
            entry = dataclasses.replace(entry, owner=owner)
            self._items[id(mapping)] = (entry, items)
        items[key] = dict.get(mapping, key, MISSING)

    def dict_keys(self, mapping: dict[Any, Any], path: str) -> None:
        """Watch which keys a dict has."""
        self._others["dict_keys", id(mapping)] = DictKeys(mapping, tuple(mapping), path)

    def functions(self, entry: DictItems) -> None:
        """Watch functions of a module."""
        self._others["functions", id(entry.mapping)] = entry

    def cell(self, cell: types.CellType, path: str) -> None:
        """Watch what a cell holds."""
        try:
            contents = cell.cell_contents
        except ValueError:
            contents = MISSING
        self._others["cell", id(cell)] = CellContents(cell, contents, path)

    def list_items(self, items: list[Any] | collections.deque[Any], path: str) -> None:
        """Watch the length and the items of a list or deque."""
        self._others["list", id(items)] = ListItems(items, tuple(items), path)

    def whole_list(self, items: list[Any]) -> None:
        """Leave none of the items of a list open: it was compared as a whole."""
        self._whole_lists.add(id(items))

    def read_item(self, items: list[Any] | collections.deque[Any], item: object) -> None:
        """Note that code looks at an item of a list. Other tensors may be any."""
        self._read_items.add((id(items), id(item)))

    def set_items(self, items: set[Any] | frozenset[Any], path: str) -> None:
        """Watch the contents of a set."""
        self._others["set", id(items)] = SetItems(items, elements_of(items), path)

    def type_version(self, kind: type, path: str) -> None:
        """Watch a class that Python code can change; immutable builtin classes need no watch."""
        if kind.__flags__ & HEAP_TYPE:
            self._others["type", id(kind)] = TypeVersion(kind, path)

    def object_type(self, value: object, path: str) -> None:
        """Watch the class of an object, and the class itself."""
        kind = type(value)
        self.type_version(kind, path)
        if kind.__flags__ & HEAP_TYPE:
            self._others["object", id(value)] = ObjectType(value, kind, path)

    def function(self, function: types.FunctionType, path: str) -> None:
        """Watch what calling a function means."""
        self._others["function", id(function)] = FunctionState(
            function, function.__code__, function.__defaults__, function.__kwdefaults__, path
        )

    def abstract_classes(self, token: object) -> None:
        """Watch what is registered with abstract classes, if one was asked, at `token`."""
        if token is not None:
            self._others["abstract", 0] = AbstractClasses(token)

    def function_field(self, function: types.FunctionType, name: str, path: str) -> None:
        """Watch an attribute of a function that is in no dict."""
        known = self._others.get(("fields", id(function)))
        names = {*known.names, name} if isinstance(known, FunctionFields) else {name}
        found = FunctionFields(function, tuple(sorted(names)), path)
        self._others["fields", id(function)] = found

    def slot(self, value: object, member: types.MemberDescriptorType, path: str) -> None:
        """Watch what a slot of an object holds."""
        known = self._others.get(("slots", id(value)))
        members = known.members if isinstance(known, Slots) else ()
        if member not in members:
            self._others["slots", id(value)] = Slots(value, (*members, member), path)

    def tensor(self, tensor: torch.Tensor, path: str) -> None:
        """Watch the metadata of a tensor."""
        self._others["tensor", id(tensor)] = TensorState(tensor, TensorFacts.of(tensor), path)

    def leave_tensor(self, tensor: torch.Tensor) -> None:
        """Watch the metadata of a tensor no more."""
        self._others.pop(("tensor", id(tensor)), None)

    def gradient(self, owner: torch.Tensor, path: str) -> None:
        """Watch what the gradient of a tensor is like, or that there is none."""
        facts = None if owner.grad is None else TensorFacts.of(owner.grad)
        self._others["gradient", id(owner)] = GradientState(owner, facts, path)

    def cannot_watch(self, reason: str) -> None:
        """Record a fact that no entry covers: the full check has to run at every call."""
        self.unwatchable[reason] = None

    def entries(self) -> tuple[Watch, ...]:
        """Return the entries: whole dicts, then items of other dicts, then the rest."""
        items = []
        for number, (entry, found) in self._items.items():
            whole = self._versions.get(number)
            if whole is not None and whole.owner is None:
                self._versions[number] = dataclasses.replace(whole, owner=entry.owner)
            elif whole is None:
                keys = [key for key in found if (number, key) not in self._open_items]
                expected = tuple(found[key] for key in keys)
                items.append(dataclasses.replace(entry, keys=tuple(keys), expected=expected))
        others = [
            self._but_open(entry)
            for (kind, number), entry in self._others.items()
            if kind != "cell" or number not in self._open_cells
        ]
        return (*self._versions.values(), *items, *others)

    def _but_open(self, entry: Watch) -> Watch:
        if isinstance(entry, ListItems):
            return self._but_open_items(entry)
        if isinstance(entry, TypeVersion):
            bases = entry.type.__mro__
            names = {base: self._open_names(base) for base in bases}
            found = {base: open_names for base, open_names in names.items() if open_names}
            by_items = bool(found) or self._known_names is not None
            return dataclasses.replace(entry, open=found, by_items=by_items)
        if isinstance(entry, Slots):
            number = id(entry.object)
            members = (m for m in entry.members if (number, m) not in self._open_slots)
            return dataclasses.replace(entry, members=tuple(members))
        return entry

    def _open_names(self, kind: type) -> tuple[str, ...]:
        found = self.open_attributes.get(kind, set())
        if self._known_names is None or not kind.__flags__ & HEAP_TYPE:
            return tuple(found)
        known = self._known_names
        data = (name for name, value in vars(kind).items() if not hasattr(type(value), "__get__"))
        unread = (name for name in data if name not in known and not name.startswith("__"))
        return tuple({*found, *unread})

    def _but_open_items(self, entry: ListItems) -> ListItems:
        number = id(entry.list)
        if number in self._whole_lists:
            return entry

        def is_open(index: int, item: object) -> bool:
            # Code that reads a tensor leaves a guard on it, but not for everything else.
            is_unread = (number, id(item)) not in self._read_items
            is_free = is_unread and isinstance(item, torch.Tensor)
            return is_free or (number, index) in self._open_items

        items = (MISSING if is_open(*pair) else pair[1] for pair in enumerate(entry.items))
        return dataclasses.replace(entry, items=tuple(items))
