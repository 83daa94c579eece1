# SPDX-License-Identifier: Apache-2.0
"""Which classes of objects among a callable's arguments have other instances at other calls."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from hostjit.capturing.arguments import items_of
from hostjit.capturing.instances import is_a, is_value, slot_names
from hostjit.capturing.module_fields import is_plain_module

__all__ = ["VaryingObjects"]

_DEPTH = 8
# So many have programs of their own, which are faster: an actor and a critic, or a target network.
_MODULES = 2


class VaryingObjects:
    """Remembers the objects that calls bring.

    The second object in the place of one makes its class one of those that are compared by their
    fields; of modules the third. Slots, which nothing tells the changes of, do so at once.

    Attributes:
        classes: those.
    """

    def __init__(self) -> None:
        self.classes: frozenset[type] = frozenset()
        self._first: dict[str, Any] = {}
        self._modules: dict[tuple[str, type], list[weakref.ref[nn.Module]]] = {}
        self._refused = False

    def refuse(self) -> Callable[[], None]:
        """Compare all objects by identity from now on; returns what undoes that."""
        before = self._refused, self.classes

        def undo() -> None:
            self._refused, self.classes = before

        self._refused, self.classes = True, frozenset()
        return undo

    def note(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Look at a call; returns it with the objects met first, if there are more classes now."""
        if self._refused:
            return None
        before = self.classes
        for path, value in (*enumerate(args), *kwargs.items()):
            self._visit(value, str(path), _DEPTH)
        if self.classes == before:
            return None
        first = tuple(self._first_at(str(i), value) for i, value in enumerate(args))
        return first, {name: self._first_at(name, value) for name, value in kwargs.items()}

    def _first_at(self, path: str, value: Any) -> Any:
        met = self._modules.get((path, type(value)))
        first = met[0]() if met else None
        return self._first.get(path, value) if first is None else first

    def _visit(self, value: Any, path: str, depth: int) -> None:
        kind = type(value)
        if is_a(value, nn.Module):
            if is_plain_module(value):
                self._visit_module(value, path)
            return
        if is_value(value):
            first = self._first.setdefault(path, value)
            is_other = first is not value and type(first) is kind
            if kind not in self.classes and (is_other or slot_names(kind)):
                self.classes |= {kind}
        items = items_of(value, {kind}) or {}
        for place, item in enumerate(items.values() if depth else ()):  # keys may say anything
            self._visit(item, f"{path}.{place}", depth - 1)

    def _visit_module(self, module: nn.Module, path: str) -> None:
        """Look at a module that is no more than its fields, and at those in it."""
        kind = type(module)
        met = self._modules.setdefault((path, kind), [])
        if len(met) <= _MODULES and not any(known() is module for known in met):
            met.append(weakref.ref(module))
        if len(met) > _MODULES:
            self.classes |= {kind}
        for place, item in enumerate((items_of(module, {kind}) or {}).values()):
            self._visit(item, f"{path}.{place}", _DEPTH)
