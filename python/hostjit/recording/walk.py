# SPDX-License-Identifier: Apache-2.0
"""The walk over objects that code can reach by the names that it has."""

from __future__ import annotations

import collections
import collections.abc
import contextvars
import functools
import operator
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from hostjit.optimizers.rules import RULES
from hostjit.recording import numpy_types, triton_types
from hostjit.recording.classes import AbstractClasses, Class
from hostjit.recording.entries import (
    HEAP_TYPE,
    Cell,
    Contents,
    Entry,
    Function,
    Items,
    ListEntry,
    SetEntry,
    Slots,
    Variable,
)
from hostjit.recording.objects import (
    ITERATORS,
    SKIPPED,
    TRUSTED,
    has_attributes,
    has_hidden_state,
    is_data,
    is_library_module,
    is_users_alone,
    parts_of,
)
from hostjit.recording.seen_code import (
    RANDOM_SOURCES,
    is_library,
)

__all__ = ["Walk"]

_MOST_OBJECTS = 200_000


class Walk:
    """What is reached, and the entries that it is compared by.

    Attributes:
        tensors: by id, with where they were found.
        leaves: ids of the tensors among the arguments, which are no state.
        shared: those of them that are reached in another way, too.
    """

    def __init__(self) -> None:
        self.tensors: dict[int, tuple[torch.Tensor, str]] = {}
        self.leaves: set[int] = set()
        self.shared: list[torch.Tensor] = []
        self.objects: dict[int, Any] = {}
        self.optimizers: list[torch.optim.Optimizer] = []
        self.gradients: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
        self._obstacle = ""
        self.on_optimizer: Callable[[torch.optim.Optimizer], None] | None = None
        self._entries: dict[tuple[str, int], Entry] = {}
        self._names: set[str] = set()
        self._user_names: set[str] = set()
        self._everything = False
        self._by_position = False
        self._weak: list[tuple[weakref.ref[Any], str]] = []
        self._codes: dict[types.CodeType, dict[str, Any]] = {}
        self._pending: list[tuple[Any, str]] = []
        self._attributes_of_arguments: list[tuple[frozenset[str], str]] = []

    def add_names(self, names: frozenset[str], *, of_user: bool = False) -> None:
        """Look at what code that has these names can reach."""
        with torch._C.DisableTorchFunction():
            fresh = names - (self._user_names if of_user else self._names)
            self._names |= fresh
            if of_user:
                self._user_names |= fresh
            for entry in list(self._entries.values()):
                self._extend(entry, fresh)
            self._walk()

    def abstract_classes(self) -> AbstractClasses:
        """Return the entry of what is asked of abstract classes."""
        entry = self._entries.setdefault(("abstract", 0), AbstractClasses())
        assert isinstance(entry, AbstractClasses)
        return entry

    def _extend(self, entry: Entry, names: frozenset[str] | set[str]) -> None:
        if not isinstance(entry, (Items, Class)) or not entry.by_attribute:
            return
        if entry.of_library:
            names = self._user_names & set(entry.keys())
        elif self._everything:
            names = {*names, *entry.keys()}
            entry.add_keys()
        elif entry.of_user:
            names = {name for name in names if name in self._user_names or name[:2] == "__"}
        self._extend_by(entry, names)

    def _extend_by(self, entry: Items | Class, names: Iterable[str]) -> None:
        for name in names:
            if entry.add(name):
                for value in entry.values(name):
                    if isinstance(getattr(value, "__self__", None), RANDOM_SOURCES):
                        self._hinder(f"{entry.path}.{name}")
                    if not entry.of_library or is_data(value):
                        self._push(value, f"{entry.path}.{name}")

    def _push(self, value: Any, path: str) -> None:
        if not isinstance(value, SKIPPED) or isinstance(value, type) or has_attributes(value):
            self._pending.append((value, path))

    def _walk(self) -> None:
        while self._pending:
            value, path = self._pending.pop()
            if id(value) in self.objects:
                continue
            if len(self.objects) > _MOST_OBJECTS:
                self._hinder(f"more than {_MOST_OBJECTS} objects")
                self._pending.clear()
                return
            self.objects[id(value)] = value
            self._visit(value, path)

    def _hinder(self, what: str) -> None:
        self._obstacle = self._obstacle or f"it can reach {what}, which cannot be watched"

    def _add(self, kind: str, value: Any, entry: Entry) -> None:
        known = self._entries.get((kind, id(value)))
        if known is None:
            self._entries[kind, id(value)] = entry
        elif entry.watched:
            known.watched = True

    def _note_tensor(self, tensor: torch.Tensor) -> None:
        if tensor.is_leaf and tensor.requires_grad:
            self.gradients.setdefault(id(tensor), (tensor, tensor.grad))

    def _visit(self, value: Any, path: str) -> None:
        if isinstance(value, torch.Tensor):
            if id(value) in self.leaves:
                self.shared.append(value)
            else:
                self.tensors[id(value)] = value, path
                self._note_tensor(value)
            if vars(value):
                self._visit_attributes(value, path)
        elif isinstance(value, (tuple, frozenset)):
            for item in value:
                self._push(item, f"{path}[...]")
            self._visit_subclass(value, path)
        elif isinstance(value, list):
            self._add("list", value, ListEntry(value, path))
            for index, item in enumerate(value):
                self._push(item, f"{path}[{index}]")
            self._visit_subclass(value, path)
        elif isinstance(value, dict):
            self._add("items", value, Items(value, None, path, by_name=False))
            for key, item in value.items():
                self._push(item, f"{path}[{key!r}]")
                self._push(key, f"a key of {path}")
            self._visit_subclass(value, path)
        elif isinstance(value, set):
            self._add("set", value, SetEntry(value, path))
            for item in value:
                self._push(item, f"an item of {path}")
            self._visit_subclass(value, path)
        elif isinstance(value, types.ModuleType):
            self._visit_module(value)
        elif isinstance(value, types.FunctionType):
            self._visit_function(value, path)
        elif isinstance(value, type):
            self._visit_class(value, path)
        elif isinstance(value, types.CellType):
            self._visit_cell(value, path)
        elif isinstance(value, weakref.ref):
            self._visit_weak(value, path)
        else:
            self._visit_object(value, path)

    def _visit_module(self, module: types.ModuleType) -> None:
        of_library = is_library_module(module)
        entry = Items(vars(module), None, module.__name__, by_name=True, by_attribute=True)
        entry.of_library, entry.of_user = of_library, not of_library
        self._add("items", vars(module), entry)
        self.objects[id(vars(module))] = vars(module)
        known = self._entries["items", id(vars(module))]
        assert isinstance(known, Items)
        known.by_attribute = True  # its globals may be known already
        self._extend(known, self._names)

    def _visit_function(self, function: types.FunctionType, path: str) -> None:
        if is_library(function.__code__.co_filename) and not function.__closure__:
            return
        self._add("function", function, Function(function, path))
        for value in function.__defaults__ or ():
            self._push(value, f"a default of {path}")
        if function.__kwdefaults__:
            self._push(function.__kwdefaults__, f"the defaults of {path}")
        names = function.__code__.co_freevars
        for name, cell in zip(names, function.__closure__ or (), strict=True):
            self._visit_cell(cell, f"'{name}' of {path}")
        if vars(function) or not is_library(function.__code__.co_filename):
            self._visit_attributes(function, path)

    def _visit_cell(self, cell: types.CellType, path: str) -> None:
        entry = Cell(cell, path)
        self._add("cell", cell, entry)
        for value in entry.values():
            self._push(value, path)

    def _visit_weak(self, reference: weakref.ref[Any], path: str) -> None:
        value = reference()
        if isinstance(value, (type, types.ModuleType)):
            self._push(value, path)
        else:
            self._weak.append((reference, path))
        self._visit_subclass(reference, path)

    def _visit_class(self, kind: type, path: str) -> None:
        if not kind.__flags__ & HEAP_TYPE:  # made by C code, which nobody changes
            return
        module = sys.modules.get(kind.__module__)
        is_users = not is_library(getattr(module, "__file__", None) or "")
        entry = Class(kind, path, by_attribute=is_users)
        entry.of_user = is_users_alone(kind)
        self._add("class", kind, entry)
        if not is_users:
            return
        self._push(type(kind), f"the class of {path}")
        if self._by_position:
            self.add_names(entry.matched_names(), of_user=True)
        self._extend(entry, self._names)

    def _visit_subclass(self, value: Any, path: str) -> None:
        """Look at what an object of a class of users has besides what its builtin base has."""
        if not type(value).__flags__ & HEAP_TYPE:
            return
        self._push(type(value), type(value).__qualname__)
        if isinstance(getattr(value, "__dict__", None), dict):
            self._visit_attributes(value, path)

    def _visit_attributes(self, value: Any, path: str) -> None:
        attributes = vars(value)
        entry = Items(attributes, value, path, by_name=True, by_attribute=True)
        entry.of_user = is_users_alone(type(value))
        self._add("items", attributes, entry)
        self.objects[id(attributes)] = attributes
        self._extend(self._entries["items", id(attributes)], self._names)

    def _visit_object(self, value: Any, path: str) -> None:
        kind = type(value)
        inner = parts_of(value)
        if inner is not None:
            for part in inner:
                self._push(part, path)
            return
        if isinstance(value, (*numpy_types.ARRAYS, bytearray, memoryview, collections.deque)):
            contents = Contents(value, path)
            self._add("contents", value, contents)
            for item in contents.values():
                self._push(item, f"an item of {path}")
            self._visit_subclass(value, path)
            return
        if isinstance(value, (operator.attrgetter, operator.methodcaller)):
            self._add_names_of(value)
            return
        if isinstance(value, functools._lru_cache_wrapper):
            module = sys.modules.get(value.__module__)
            if module is None or not is_library_module(module):
                self._hinder(f"{path}, whose results are kept in a cache")
            return
        if isinstance(value, contextvars.ContextVar):
            variable = Variable(value, path)
            self._add("variable", value, variable)
            for found in variable.values():
                self._push(found, path)
            return
        if isinstance(value, (*ITERATORS, *RANDOM_SOURCES)) or hasattr(kind, "__next__"):
            self._hinder(f"{path}, a {kind.__qualname__}")
            return
        if type(value) in RULES:
            self._visit_optimizer(value, path)
            return
        if triton_types.is_kernel(value):
            self._visit_kernel(value, path)
            return
        self._push(kind, kind.__qualname__)
        slots = Slots(value, path)
        if slots:
            self._add("slots", value, slots)
            for found in slots.values():
                self._push(found, path)
        if isinstance(getattr(value, "__dict__", None), dict):
            self._visit_attributes(value, path)
        elif not slots and kind.__module__.partition(".")[0] not in TRUSTED:
            self._hinder(f"{path}, a {kind.__module__}.{kind.__qualname__}")
        if has_hidden_state(kind) or isinstance(value, BaseException):
            self._hinder(f"{path}, a {kind.__module__}.{kind.__qualname__}")

    def _add_names_of(self, getter: operator.attrgetter[Any] | operator.methodcaller) -> None:
        texts = [text for text in getter.__reduce__()[1] if isinstance(text, str)]
        names = {name for text in texts for name in text.split(".")}
        self._names |= names
        self._user_names |= names
        for entry in list(self._entries.values()):
            self._extend(entry, names)

    def _visit_kernel(self, kernel: Any, path: str) -> None:
        """Of what Triton launches, all but its caches."""
        entry = Items(vars(kernel), kernel, path, by_name=True)
        for name in triton_types.ATTRIBUTES:
            if entry.add(name):
                for value in entry.values(name):
                    self._push(value, f"{path}.{name}")
        self._add("items", vars(kernel), entry)
        self.objects[id(vars(kernel))] = vars(kernel)

    def _visit_optimizer(self, optimizer: torch.optim.Optimizer, path: str) -> None:
        """Numbers such as learning rates are read at each call, so they are free to change."""
        numbers = RULES[type(optimizer)].numbers
        for index, group in enumerate(optimizer.param_groups):
            entry = Items(group, None, f"{path}.param_groups[{index}]", by_name=True)
            for key in ("params", *optimizer.defaults):
                if key in numbers and not torch.is_tensor(group[key]):
                    continue
                entry.add(key)
                self._push(group[key], f"{entry.path}[{key!r}]")
            self._add("items", group, entry)
            self.objects[id(group)] = group
        self._push(type(optimizer), type(optimizer).__qualname__)
        self._visit_attributes(optimizer, path)
        self._extend(self._entries["items", id(vars(optimizer))], {"step"})
        self.optimizers.append(optimizer)
        if self.on_optimizer is not None:
            self.on_optimizer(optimizer)
