# SPDX-License-Identifier: Apache-2.0
"""What classes held when they were met, PyTorch's functions, and answers of abstract classes."""

from __future__ import annotations

import abc
import types
from collections.abc import Iterable
from typing import Any

from hostjit.capturing.guards.library import functions_now
from hostjit.capturing.guards.watches import MISSING
from hostjit.capturing.instances import is_a
from hostjit.recording.reach.attributes import as_defined
from hostjit.recording.reach.entries import Entry, all_same

__all__ = ["AbstractClasses", "Class", "LibraryFunctions"]

_BOUND_LATER = (staticmethod, classmethod)
# What libraries keep in classes that they meet.
_KEPT_BY_LIBRARIES = frozenset({"__slotnames__"})


class Class(Entry):
    """Some attributes of a class and its bases."""

    def __init__(self, kind: type, path: str, *, by_attribute: bool) -> None:
        super().__init__(path)
        self.by_attribute = by_attribute
        self._type = kind
        self._bases = kind.__mro__
        self._specials = self._find_specials()
        self._expected: dict[str, tuple[Any, ...]] = {}

    def keys(self) -> list[str]:
        """The attributes that there are."""
        return [name for base in self._type.__mro__[:-1] for name in vars(base)]

    def add_keys(self) -> bool:
        """False: bases are not compared by all names, but by those that code has."""
        return False

    def _find(self, name: str) -> tuple[Any, ...]:
        bases = self._type.__mro__[:-1]
        return tuple(as_defined(vars(base).get(name, MISSING)) for base in bases)

    def _find_specials(self) -> dict[tuple[int, str], Any]:
        """What operators and built-in functions look up, without a name in the code.

        All of a class of a library, whose code's names are not looked at one by one.
        """
        return {
            (place, name): value
            for place, base in enumerate(self._type.__mro__[:-1])
            for name, found in vars(base).items()
            if not (self.by_attribute and name[:2] != "__") and name not in _KEPT_BY_LIBRARIES
            if (value := as_defined(found)) is not MISSING
        }

    def special_functions(self) -> Iterable[Any]:
        """What operators call, and no name of its code tells of: `__new__` of a named tuple."""
        for (_, name), value in self._specials.items():
            function = getattr(value, "__func__", value) if is_a(value, _BOUND_LATER) else value
            if is_a(function, types.FunctionType) and function.__code__.co_name != name:
                yield value

    def matched_names(self) -> frozenset[str]:
        """The attributes that patterns without names look at."""
        return frozenset(getattr(self._type, "__match_args__", ()))

    def add(self, name: str) -> bool:
        """Remember an attribute; False if there is none or it was known."""
        if name in self._expected:
            return False
        self._expected[name] = self._find(name)
        return True

    def values(self, name: str) -> Iterable[Any]:
        """What the class and its bases had there."""
        return (value for value in self._expected[name] if value is not MISSING)

    def differs(self) -> bool:
        if not all_same(self._type.__mro__, self._bases):
            return True
        specials = self._find_specials()
        if specials.keys() != self._specials.keys():
            return True
        if any(specials[key] is not value for key, value in self._specials.items()):
            return True
        return not all(all_same(self._find(name), was) for name, was in self._expected.items())

    def watches(self) -> list[tuple[Any, ...]]:
        return [("type", self._type)]


class AbstractClasses(Entry):
    """What was asked of abstract classes, which registrations may answer otherwise later."""

    def __init__(self) -> None:
        super().__init__("which classes are registered with an abstract class")
        self._token = abc.get_cache_token()
        self._answers: dict[tuple[type, type], bool] = {}
        self._asked_otherwise = False

    def add(self, abstract: type, kind: type) -> None:
        """Remember whether a class counts as a subclass of an abstract one."""
        try:
            self._answers[abstract, kind] = issubclass(kind, abstract)
        except TypeError:  # of a protocol with data, which is asked of objects only
            self.add_others()

    def add_others(self) -> None:
        """Remember that something was asked which can't be asked again."""
        self._asked_otherwise = True

    def differs(self) -> bool:
        if abc.get_cache_token() == self._token:
            return False
        return self._asked_otherwise or any(
            issubclass(kind, abstract) != was for (abstract, kind), was in self._answers.items()
        )

    def watches(self) -> list[tuple[Any, ...]]:
        return [("abc_token", abc.get_cache_token())]


class LibraryFunctions(Entry):
    """Functions of PyTorch that its own code calls, whose names are not looked at one by one."""

    def __init__(self) -> None:
        super().__init__("a function of torch or torch.nn.functional")
        self._functions = functions_now()

    def differs(self) -> bool:
        return not self._functions.unchanged()

    def watches(self) -> list[tuple[Any, ...]]:
        modules = [
            ("dict_items", found.mapping, None, found.keys, found.expected, MISSING)
            for found in self._functions.modules
        ]
        return [*modules, ("type", self._functions.tensors)]
