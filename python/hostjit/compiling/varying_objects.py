# SPDX-License-Identifier: Apache-2.0
"""Which classes of objects among a callable's arguments have other instances at other calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hostjit.capturing.arguments import items_of
from hostjit.capturing.instances import is_value, slot_names

__all__ = ["VaryingObjects"]

_DEPTH = 8


class VaryingObjects:
    """Remembers the objects that calls bring.

    The second object in the place of one makes its class one of those that are compared by their
    fields. Slots, which nothing tells the changes of, do so at once.

    Attributes:
        classes: those.
    """

    def __init__(self) -> None:
        self.classes: frozenset[type] = frozenset()
        self._first: dict[str, Any] = {}
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
        first = tuple(self._first.get(str(i), value) for i, value in enumerate(args))
        return first, {name: self._first.get(name, value) for name, value in kwargs.items()}

    def _visit(self, value: Any, path: str, depth: int) -> None:
        kind = type(value)
        if is_value(value):
            first = self._first.setdefault(path, value)
            is_other = first is not value and type(first) is kind
            if kind not in self.classes and (is_other or slot_names(kind)):
                self.classes |= {kind}
        for name, item in (items_of(value, {kind}) or {}).items() if depth else ():
            self._visit(item, f"{path}.{name}", depth - 1)
