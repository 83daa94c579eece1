# SPDX-License-Identifier: Apache-2.0
"""What a function is made of, compared from call to call: its code, defaults and variables."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import Any

from hostjit.capturing.guards.watches import MISSING
from hostjit.recording.reach.entries import Entry, same

__all__ = ["Cell", "Function"]


class Cell(Entry):
    """A variable of a closure."""

    def __init__(self, cell: types.CellType, path: str) -> None:
        super().__init__(path)
        self._cell = cell
        self._expected = self._contents()

    def _contents(self) -> Any:
        try:
            return self._cell.cell_contents
        except ValueError:
            return MISSING

    def values(self) -> Iterable[Any]:
        """What it held."""
        return () if self._expected is MISSING else (self._expected,)

    def differs(self) -> bool:
        return not same(self._contents(), self._expected)

    def _values(self) -> Iterator[tuple[Any, str, Any, Any]]:
        yield None, self.path, self._expected, self._contents()

    def _has_same_places(self) -> bool:
        return True

    def _identity(self) -> int:
        return id(self._cell)

    def watches(self) -> list[tuple[Any, ...]]:
        found = self._contents()
        return [("cell", self._cell, () if found is MISSING else (found,))]


class Function(Entry):
    """What calling a function means."""

    def __init__(self, function: types.FunctionType, path: str) -> None:
        super().__init__(path)
        self._function = function
        self._expected = self._parts()

    def _parts(self) -> tuple[Any, ...]:
        found = self._function
        return found.__code__, found.__defaults__, found.__kwdefaults__

    def differs(self) -> bool:
        return any(a is not b for a, b in zip(self._parts(), self._expected, strict=True))

    def watches(self) -> list[tuple[Any, ...]]:
        return [("function", self._function, *self._parts())]
