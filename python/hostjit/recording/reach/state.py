# SPDX-License-Identifier: Apache-2.0
"""The Python state that a recorded call can reach besides its arguments: found, compared, watched.

A call reaches objects from its globals, closures and arguments by the names that its code has. Each
container on the way is remembered before the code with the name runs. What differs afterwards the
call has changed itself; what differs at a later call makes a recording void.
"""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import itertools
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from hostjit.bytecode.counting import only_counts
from hostjit.capturing.guards.library import replaced_attribute_of_tensors
from hostjit.capturing.guards.structures import compares_identities
from hostjit.capturing.instances import (
    instance_dict,
    is_a,
    is_namedtuple_type,
    is_one_of,
    name_of,
    shown,
)
from hostjit.compiling.numbers_outside import NumberOutside
from hostjit.recording.calls.opened_objects import Opened, fields_of
from hostjit.recording.code.c_callables import names_held
from hostjit.recording.code.libraries import is_library, is_of_standard_library
from hostjit.recording.code.library_calls import GLOBALS
from hostjit.recording.code.names import (
    formats,
    globals_of,
    imports_of,
    names_in_texts,
    names_of,
    patterns_of,
    reaches_any,
    reads_groups,
    sets_by_variable,
)
from hostjit.recording.reach.attributes import Attribute
from hostjit.recording.reach.classes import Class
from hostjit.recording.reach.entries import (
    Entry,
    Items,
    ListEntry,
    Slots,
)
from hostjit.recording.reach.settings import LOCALE
from hostjit.recording.reach.walk import Walk

__all__ = ["Counter", "State"]

# Code that has one of these names reads variables of other code, or what no dict has.
_UNWATCHED = frozenset(
    {
        *("__globals__", "__builtins__", "f_globals", "f_locals", "f_builtins", "f_back"),
        "__subclasses__",
    }
)
# Code that has one of these asks whether an attribute is there.
_ABSENT = frozenset({"getattr", "hasattr", "vars", "dir", "__dict__", "AttributeError"})
# Of these an equal one may be another object, but for small ints.
_VALUES = (int, float, complex, str, bytes, tuple)
_SMALL = range(-5, 257)
# Code that has this name may reach any of its globals.
_OF_GLOBALS = "globals"


@dataclasses.dataclass(frozen=True, eq=False)
class Counter:
    """An int of an object's dict, or of a module's, that each call adds an amount to."""

    holder: dict[Any, Any]
    name: str
    amount: int


class State(Walk):
    """What the code seen so far can reach."""

    def __init__(self) -> None:
        super().__init__()
        self._opened: Opened = {}
        self._values: list[Any] = []  # among the arguments
        # Of code, which is equal to that of other files: where it is, and its globals.
        self._files = collections.defaultdict[types.CodeType, set[tuple[str, int]]](set)

    def add_code(self, code: types.CodeType, variables: dict[str, Any]) -> None:
        """Look at what `code`, which is going to run with these globals, can reach."""
        known = code.co_filename, id(variables)
        if code in self._codes and known in self._files[code]:
            return
        self._files[code].add(known)
        self._codes.setdefault(code, variables)
        with torch._C.DisableTorchFunction():
            file = code.co_filename
            if file.startswith("<"):  # made by code, for the module whose globals it has
                file = str(variables.get("__file__", file))
            is_user = not is_library(file)
            fresh = names_of(code) - self._names
            self._names |= fresh
            if is_user:
                fresh |= names_of(code) - self._user_names
                self._user_names |= fresh
                self._hold(names_held(code))
                if not _ABSENT.isdisjoint(code.co_names):
                    self._ask_for_absent()
                if reaches_any(code):
                    self.add_everything()
            elif (
                "__getattribute__" in code.co_names and is_of_standard_library(file)
            ) or sets_by_variable(code):
                self.add_everything()
            if reads_groups(code):
                self._compare_groups()
            if fresh:
                self._extend_all(fresh)
            if is_user:
                self._add_globals(code, variables)
                self._add_patterns(code)
                for names, path in self._attributes_of_arguments:
                    for name in names & self._user_names:
                        self._hinder(f"{path}.{name}")
            else:
                module = str(variables.get("__name__", ""))
                if module in GLOBALS:
                    wanted = GLOBALS[module]
                    self.add_items(
                        variables, module, [x for x in globals_of(code) if x.startswith(wanted)]
                    )
            self._walk()

    def add_target(self, target: Any) -> None:
        """Look at what is called."""
        with torch._C.DisableTorchFunction():
            self._push(target, name_of(target))
            self._walk()

    def add_arguments(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], opened: Opened | None = None
    ) -> None:
        """Look at the arguments: containers are compared with what they were, but not watched.

        So are objects of opened classes.
        """
        self._opened = opened or {}
        with torch._C.DisableTorchFunction():
            for index, value in enumerate(args):
                self._add_argument(value, f"argument {index}")
            for name, value in kwargs.items():
                self._add_argument(value, f"argument '{name}'")
            self._walk()

    def add_object(self, value: Any, path: str) -> None:
        """Look at an object and what can be reached from it."""
        with torch._C.DisableTorchFunction():
            self._push(value, path)
            self._walk()

    def add_global(self, variables: dict[str, Any], name: str) -> None:
        """Look at a global variable."""
        with torch._C.DisableTorchFunction():
            self._push_globals(variables, (name,))
            self._walk()

    def add_items(self, mapping: dict[Any, Any], path: str, keys: Iterable[Any]) -> None:
        """Look at some items of a dict, and what can be reached from them."""
        entry = self._entries.setdefault(
            ("some_items", id(mapping)), Items(mapping, None, path, by_name=True)
        )
        assert isinstance(entry, Items)
        with torch._C.DisableTorchFunction():
            for key in keys:
                if entry.add(key):
                    self._push(mapping.get(key), f"{path}.{key}")
            self._walk()

    def add_import(self, name: str) -> None:
        """Look at a module that code imports, and at those that it is in."""
        parts = name.split(".")
        names = [".".join(parts[: count + 1]) for count in range(len(parts))]
        self.add_items(sys.modules, "sys.modules", names)

    def add_all_attributes(self, value: Any) -> None:
        """Look at all attributes of an object, if it was there before the call."""
        entry = self._entries.get(("items", id(instance_dict(value))))
        if isinstance(entry, Items):
            entry.add_keys()
            self._extend_by(entry, entry.keys())
            self._walk()

    @property
    def hindrance(self) -> str:
        """What is reached and can never be watched, in words; "" if nothing."""
        return self._obstacle

    @property
    def obstacle(self) -> str:
        """What is reached and cannot be watched, in words; "" if nothing."""
        alive = [(reference(), path) for reference, path in self._weak]
        for value, path in alive:
            if value is not None and id(value) not in self.objects:
                return f"it can reach {path}, a weak reference, which a replay would keep alive"
        replaced = replaced_attribute_of_tensors()
        return self._obstacle or f"{replaced} is not PyTorch's own" * bool(replaced)

    def known_argument(self) -> str:
        """Say that the call may ask which of its opened arguments it knows; "" if it knows none."""
        if self._has_equal_arguments() and any(
            compares_identities(code) and not is_library(code.co_filename) for code in self._codes
        ):
            return "it may ask which of equal arguments are one object"
        known = (x for x in self.objects.values() if is_one_of(type(x), self._opened))
        kinds = (type(value).__qualname__ for value in known)
        found = next(kinds, "")
        return f"it can reach a {found}, so which {found} an argument is may matter" * bool(found)

    def _has_equal_arguments(self) -> bool:
        values = [x for x in self._values if not (type(x) is int and x in _SMALL)]
        return any(_may_be_equal(a, b) for a, b in itertools.combinations(values, 2))

    @property
    def codes(self) -> dict[types.CodeType, dict[str, Any]]:
        """The code seen so far, with its globals."""
        return self._codes

    def let_go(self) -> None:
        """Forget what matters only while the call is recorded, and the arguments with it."""
        self.objects, self.gradients, self._codes = {}, {}, {}
        self._files.clear()
        self.leaves, self.shared, self._weak, self._values = set(), [], [], []
        self._functions, self._attributes_of_arguments, self._without_attributes = [], [], []
        self._entries = {key: entry for key, entry in self._entries.items() if entry.watched}

    def all_entries(self) -> list[Entry]:
        """Return all entries, those of arguments too."""
        return [*self._entries.values()]

    def entries(self) -> Iterator[Entry]:
        """The entries that are watched."""
        return (entry for entry in self._entries.values() if entry.watched)

    def change(self) -> str:
        """Say what is watched and not as it was found; "" if all is."""
        return next((entry.where() for entry in self.entries() if entry.differs()), "")

    def changes(self) -> list[str]:
        """Say of everything what is not as it was found."""
        return [what for entry in self._entries.values() for what in entry.changes()]

    def compares(self, value: object) -> bool:
        """Tell whether an object was reached, among the arguments too."""
        kinds = ("list", "items", "slots")
        return id(value) in self.objects or any((x, id(value)) in self._entries for x in kinds)

    def changed(self) -> dict[Any, Any]:
        """Return all that is not as it was found, by places: other objects for other changes."""
        return {
            (key, place): now
            for key, entry in self._entries.items()
            for place, now in entry.changed().items()
        }

    def holds(self) -> bool:
        """Tell whether all that is watched is as it was found."""
        return not any(entry.differs() for entry in self.entries())

    def take_counters(self) -> list[Counter]:
        """Return the counters that the call has moved, which are compared no more.

        That is what all code that ran does nothing with but add constants.
        """
        if self._everything:
            return []
        found = []
        for entry in self.entries():
            if isinstance(entry, Items):
                for name, amount in [*entry.counted()]:
                    if self._only_counts(name, is_global=entry.is_of_module):
                        found.append(Counter(entry.leave(name), name, amount))
        return found

    def assigned(self) -> list[tuple[Any, str]]:
        """Return objects, and names of their attributes, whose assignment is all that differs.

        Nothing where something else does.
        """
        if self._everything:
            return []
        found: list[tuple[Any, str]] = []
        for entry in (entry for entry in self._entries.values() if entry.differs()):
            here = entry.assigned() if isinstance(entry, Items) and entry.watched else None
            if here is None:
                return []
            found += here
        return found

    def leaves_alone(self, owner: Any) -> bool:
        """Tell whether nothing that ran may look at attributes of an object but by their names."""
        entry = self._entries.get(("items", id(instance_dict(owner))))
        return not (self._everything or (isinstance(entry, Items) and entry.compares_all))

    def _only_counts(self, name: str, *, is_global: bool) -> bool:
        return name not in self._asked and all(
            only_counts(code, name, is_global=is_global) and name not in names_in_texts(code)
            for code in self._codes
        )

    def changes_are_followed(self) -> bool:
        """Tell whether all that is not as it was found is outside of the arguments and followed.

        `hostjit.compile` follows numbers, and lists and deques that are added to.
        """
        changed = [entry for entry in self._entries.values() if entry.differs()]
        return all(
            entry.watched and (entry.differs_in_numbers_alone() or entry.has_grown())
            for entry in changed
        )

    def numbers(self) -> list[NumberOutside]:
        """Return the numbers that are watched."""
        return [number for entry in self.entries() for number in entry.numbers()]

    def tensors_of_objects(self) -> Iterator[tuple[Attribute, torch.Tensor, Any]]:
        """Yield the attributes of objects that were tensors, what they were and are."""
        for entry in self.entries():
            yield from entry.tensor_attributes()

    def watches(self) -> list[tuple[Any, ...]]:
        """Return what is watched, as `_C.Specialization` takes it."""
        return [watch for entry in self.entries() for watch in entry.watches()]

    def settings(self) -> list[Entry]:
        """The entries that a condition has to compare."""
        return [entry for entry in self.entries() if entry.asked]

    def _add_globals(self, code: types.CodeType, variables: dict[str, Any]) -> None:
        entry = self._push_globals(variables, globals_of(code))
        for name in _UNWATCHED.intersection(code.co_names):
            self._hinder(f"what is in {name}")
        if formats(code):
            self.add_setting(LOCALE)
        if _OF_GLOBALS in code.co_names:
            self._take_whole(entry)
        for name, level in imports_of(code):
            if level:
                package = str(variables.get("__package__") or "").split(".")
                name = ".".join([*package[: len(package) + 1 - level], *filter(None, [name])])
            if name:
                self.add_import(name)

    def _push_globals(self, variables: dict[str, Any], names: Iterable[str]) -> Items:
        where = str(variables.get("__name__", "globals"))
        known = self._entries.get(("items", id(variables)))
        if known is None:
            known = self._entries["items", id(variables)] = Items(
                variables, None, where, by_name=True
            )
            self.objects[id(variables)] = variables
        assert isinstance(known, Items)
        names = list(names)
        for name in names:
            if known.add(name):
                self._push(variables.get(name), f"{where}.{name}", name)
        builtins = variables.get("__builtins__")
        if isinstance(builtins, types.ModuleType):
            builtins = vars(builtins)
        if isinstance(builtins, dict) and builtins is not variables:
            self._push_globals(builtins, [name for name in names if name not in variables])
        return known

    def _add_patterns(self, code: types.CodeType) -> None:
        patterns = patterns_of(code)
        if patterns & {"SEQUENCE", "MAPPING"}:
            self.abstract_classes().add_others()
        if "CLASS" in patterns and not self._by_position:
            self._by_position = True
            for entry in list(self._entries.values()):
                if isinstance(entry, Class):
                    self.add_names(entry.matched_names(), of_user=True)

    def _add_argument(self, value: Any, path: str) -> None:
        kind = type(value)
        if is_one_of(kind, _VALUES):
            self._values.append(value)
        if is_a(value, torch.Tensor):
            self.leaves.add(id(value))
            self._note_tensor(value)
            if attributes := instance_dict(value):
                self._attributes_of_arguments.append((frozenset(attributes), path))
        elif kind is tuple or is_namedtuple_type(kind):
            self._push(kind, kind.__qualname__)
            for index, item in enumerate(value):
                self._add_argument(item, f"{path}[{index}]")
        elif kind is list:
            self._add("list", value, ListEntry(value, path, watched=False))
            for index, item in enumerate(value):
                self._add_argument(item, f"{path}[{index}]")
        elif kind is dict or kind is collections.OrderedDict:
            self._add("items", value, Items(value, None, path, by_name=False, watched=False))
            for key, item in value.items():
                self._add_argument(item, f"{path}[{shown(key)}]")
        elif is_one_of(kind, self._opened):
            self._push(kind, kind.__qualname__)
            self._add("slots", value, Slots(value, path, watched=False))
            attributes = instance_dict(value)
            if attributes is not None:
                entry = Items(attributes, value, path, by_name=False, watched=False)
                self._add("items", attributes, entry)
            for name, item in fields_of(value).items():
                self._add_argument(item, f"{path}.{name}")
        else:
            self._push(value, path)


def _may_be_equal(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    return len(a) == len(b) if type(a) is tuple else bool(a == b or (a != a and b != b))
