# SPDX-License-Identifier: Apache-2.0
"""Attributes of functions and classes that no dict has."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

from hostjit.recording.reach.entries import Entry

__all__ = ["Fields", "ModuleClass"]

_OF_CLASSES = ("__name__", "__qualname__")
_OF_FUNCTIONS = (*_OF_CLASSES, "__doc__", "__module__", "__annotations__")


class Fields(Entry):
    """Some of these attributes; `repr` looks at the qualified name in any case."""

    by_attribute = True

    def __init__(self, owner: type | types.FunctionType, path: str) -> None:
        super().__init__(path)
        self._owner = owner
        self._known = _OF_CLASSES if isinstance(owner, type) else _OF_FUNCTIONS
        self._expected: dict[str, Any] = {}
        self.add("__qualname__")

    def keys(self) -> list[str]:
        """The attributes that there are."""
        return list(self._known)

    def add_keys(self) -> bool:
        """True: none is added or removed."""
        return True

    def add(self, name: str) -> bool:
        """Remember an attribute; False if there is none or it was known."""
        if name not in self._known or name in self._expected:
            return False
        self._expected[name] = self._find(name)
        return True

    def _find(self, name: str) -> Any:
        # A metaclass may have attributes of these names.
        base: Any = type if isinstance(self._owner, type) else types.FunctionType
        return vars(base)[name].__get__(self._owner)

    def values(self, name: str) -> Iterable[Any]:
        """What the attribute was."""
        return (self._expected[name],)

    def differs(self) -> bool:
        return any(self._find(name) is not was for name, was in self._expected.items())

    def watches(self) -> list[tuple[Any, ...]]:
        return [("fields", self._owner, tuple(self._expected))]


class ModuleClass(Entry):
    """The class of a module, which may be assigned."""

    def __init__(self, module: types.ModuleType) -> None:
        super().__init__(f"the class of {module.__name__}")
        self._module = module
        self._expected = type(module)

    def differs(self) -> bool:
        return type(self._module) is not self._expected

    def watches(self) -> list[tuple[Any, ...]]:
        return [("object_type", self._module, type(self._module))]
