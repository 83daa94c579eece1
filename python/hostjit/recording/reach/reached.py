# SPDX-License-Identifier: Apache-2.0
"""What code has reached so far, and which of it is to be looked at by the names that it has."""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

from hostjit.capturing.instances import METHODS, is_a
from hostjit.recording.code.c_callables import C_CALLABLES, reads_attributes
from hostjit.recording.code.names import ASKING
from hostjit.recording.code.repeatable import OF_GENERATORS, RANDOM_SOURCES, is_repeatable
from hostjit.recording.reach.classes import AbstractClasses, Class, LibraryFunctions
from hostjit.recording.reach.entries import Entry, Items
from hostjit.recording.reach.fields import Fields
from hostjit.recording.reach.objects import SKIPPED, has_attributes, is_data
from hostjit.recording.reach.settings import (
    WARN,
    WARNINGS,
    Setting,
    reader_of,
    settings_behind,
    settings_now,
)
from hostjit.recording.running.generator_draws import address_of

__all__ = ["Reached"]

_MOST_OBJECTS = 200_000
# From so many entries on, to look at more takes seconds.
_MANY_ENTRIES = 3000


class Reached:
    """The entries that what is reached is compared by, and the names that they are looked at by.

    Attributes:
        objects: what is reached, by id.
        generators: those of random numbers, by address.
        gave_up: there is more, which was not looked at: it takes seconds, and nothing can replay
            the call.
        left_alone: names of attributes that the call assigns, by the id of the object's dict.
    """

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}
        default = torch.default_generator
        self.generators: dict[int, torch.Generator] = {address_of(default): default}
        self.gave_up = False
        self.left_alone: dict[int, frozenset[str]] = {}
        self._obstacle = ""
        self._entries: dict[tuple[str, int], Entry] = {("library", 0): LibraryFunctions()}
        self._names: set[str] = set()
        self._user_names: set[str] = set()
        self._held: set[str] = set()
        self._asked: set[str] = set()  # for what no name in the code tells
        self._functions: list[tuple[str, str, Any]] = []
        self._everything = False
        self._pending: list[tuple[Any, str]] = []
        self._settings = settings_now()

    def add_names(self, names: frozenset[str], *, of_user: bool = False) -> None:
        """Look at what code that has these names can reach."""
        with torch._C.DisableTorchFunction():
            fresh = names - (self._user_names if of_user else self._names)
            self._names |= fresh
            if of_user:
                self._user_names |= fresh
            self._extend_all(fresh)
            self._walk()

    def add_asked_name(self, name: str | None) -> None:
        """Look at what is reached by a name that code has computed; None: it may be any."""
        if name is None:
            self.add_everything()
        else:
            self._asked.add(name)
            self._hold(frozenset({f".{name}"}))
            self.add_names(frozenset({name}), of_user=True)

    def add_everything(self) -> None:
        """Look at all attributes from now on: code may reach any of them."""
        if not self._everything:
            self._everything = True
            with torch._C.DisableTorchFunction():
                self._extend_all(set(self._names))
                self._walk()

    def is_large(self) -> bool:
        """Tell whether so much is reached that to look at more takes seconds."""
        return len(self._entries) > _MANY_ENTRIES

    def add_setting(self, name: str) -> None:
        """Compare a setting with what it was when the call began."""
        self._entries.setdefault((name, 0), self._settings[name])

    def add_reader(self, function: Any) -> None:
        """Compare what a function tells of a setting, if it does."""
        read: Callable[[], Any] | None = None
        if ("setting", id(function)) not in self._entries:
            read = reader_of(function)
        if read is not None:
            setting = Setting(f"what {function.__name__} tells", read, read())
            self._entries["setting", id(function)] = setting

    def abstract_classes(self) -> AbstractClasses:
        """Return the entry of what is asked of abstract classes."""
        entry = self._entries.setdefault(("abstract", 0), AbstractClasses())
        assert isinstance(entry, AbstractClasses)
        return entry

    def _extend_all(self, names: frozenset[str] | set[str]) -> None:
        for entry in list(self._entries.values()):
            self._extend(entry, names)

    def _extend(self, entry: Entry, names: frozenset[str] | set[str]) -> None:
        if not isinstance(entry, (Items, Class, Fields)) or not entry.by_attribute:
            return
        if entry.is_whole:
            return
        if isinstance(entry, Items) and entry.of_library:
            names = self._user_names & set(entry.keys())
            if self._everything:
                names |= entry.constants()
        elif self._everything:
            names = {*names, *entry.keys()}
            entry.is_whole = entry.add_keys()
        elif entry.of_user:
            names = {name for name in names if name in self._user_names or name[:2] == "__"}
        self._extend_by(entry, names)

    def _extend_by(self, entry: Items | Class | Fields, names: Iterable[str]) -> None:
        alone = self.left_alone.get(entry.mapping, ()) if isinstance(entry, Items) else ()
        for name in names:
            if name not in alone and entry.add(name):
                for value in entry.values(name):
                    if is_a(value, _BOUND) and is_a(
                        getattr(value, "__self__", None), RANDOM_SOURCES
                    ):
                        self._hinder(f"{entry.path}.{name}")
                    if not entry.of_library or is_data(value) or is_a(value, _CALLABLE):
                        self._push(value, f"{entry.path}.{name}", f".{name}")

    def _push(self, value: Any, path: str, name: str | None = None) -> None:
        """Have a value looked at.

        `name`: that of the global variable which it is, or after a dot of the attribute.
        """
        if is_a(value, C_CALLABLES):
            self._push_function(value, path, name)
            return
        if is_a(value, torch.Generator):
            self.generators[address_of(value)] = value
            self._hold_generators()
        if is_a(value, slice):
            for part in (value.start, value.stop, value.step):
                self._push(part, path)
            return
        for setting in settings_behind(value):
            self.add_setting(setting)
        if is_a(value, type) and reads_attributes(value):
            self.add_everything()
        if not is_a(value, SKIPPED) or is_a(value, type) or has_attributes(value):
            self._pending.append((value, path))

    def _push_function(self, function: Any, path: str, name: str | None) -> None:
        """Look at a function of C code, which C code may call without our notice."""
        owner = getattr(function, "__self__", None)
        if owner is not None and not is_a(owner, types.ModuleType):
            self._push(owner, f"{path}.__self__")
        if reads_attributes(function) and function not in ASKING:
            self.add_everything()
        self.add_reader(function)
        if name is None or name in self._held:
            self._hold_function(function, path)
        else:
            self._functions.append((name, path, function))

    def _hold_function(self, function: Any, path: str) -> None:
        if function in ASKING:
            self.add_everything()
        elif function in WARN:
            self.add_setting(WARNINGS)
        elif not is_repeatable(function):
            self._obstacle = self._obstacle or f"it can reach {path}, which a replay cannot repeat"

    def _hold(self, names: frozenset[str]) -> None:
        """Note that code loads what has these names for another use than calling it there."""
        self._held |= names
        for name, path, function in self._functions:
            if name in names:
                self._hold_function(function, path)

        self._hold_generators()

    def _hold_generators(self) -> None:
        """Note that code holds methods of generators, which are no attributes that are stored."""
        held = self._held & _METHODS_OF_GENERATORS
        if held and self.generators:
            name = min(held)[1:]
            what = f"it can reach {name} of a random number generator, which a replay cannot repeat"
            self._obstacle = self._obstacle or what

    def _walk(self) -> None:
        while self._pending:
            value, path = self._pending.pop()
            if id(value) in self.objects:
                self._meet_again(value)
                continue
            is_full = len(self.objects) > _MOST_OBJECTS
            if is_full:
                self._hinder(f"more than {_MOST_OBJECTS} objects")
            if is_full or (self._obstacle and self.is_large()):
                self.gave_up = True
                self._pending.clear()
                return
            self.objects[id(value)] = value
            self._visit(value, path)

    def _visit(self, value: Any, path: str) -> None:
        raise NotImplementedError

    def _meet_again(self, value: Any) -> None:
        """Look at all of a dict of which names were looked at: code has the dict itself."""
        entry = self._entries.get(("items", id(value))) if is_a(value, dict) else None
        if isinstance(entry, Items) and not entry.of_library and value is not vars(builtins):
            self._take_whole(entry)

    def _take_whole(self, entry: Items) -> None:
        if not entry.is_whole:
            entry.is_whole = True
            entry.add_all_keys()
            self._extend_by(entry, entry.keys())

    def _hinder(self, what: str) -> None:
        self._obstacle = self._obstacle or f"it can reach {what}, which cannot be watched"

    def _add(self, kind: str, value: Any, entry: Entry) -> None:
        known = self._entries.get((kind, id(value)))
        if known is None:
            self._entries[kind, id(value)] = entry
        elif entry.watched:
            known.watched = True


# Not those that code of users may call a number by.
_METHODS_OF_GENERATORS = frozenset(f".{x}" for x in OF_GENERATORS - {"seed", "initial_seed"})
_CALLABLE: tuple[type, ...] = (type, *C_CALLABLES)
_BOUND: tuple[type, ...] = (*METHODS, *C_CALLABLES)
