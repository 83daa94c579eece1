# SPDX-License-Identifier: Apache-2.0
"""A block of a kernel while it is written, and the values that are known in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Scope"]


class Scope:
    """The lines of a block.

    A block inside is appended when it ends: what it needs of outer blocks stands before it.
    `level` is what values that are written here may vary with; `place` is the index of the vector
    that arrays of this block are read at.
    """

    def __init__(self, level: int, parent: Scope | None = None, place: str = "") -> None:
        self.level = level
        self.parent = parent
        self.place: str = place or (parent.place if parent else "")
        self.lines: list[str] = []
        self.known: dict[int, str] = {}
        self.names: set[str] = set()

    def add(self, *lines: str) -> None:
        """Append statements."""
        self.lines.extend(lines)

    @contextmanager
    def block(self, head: str, level: int | None = None, place: str = "") -> Iterator[Scope]:
        """A block inside, behind `head` or bare."""
        inner = Scope(self.level if level is None else level, self, place)
        yield inner
        self.lines.append(f"{head} {{".lstrip())
        self.lines.extend(f"  {line}" for line in inner.lines)
        self.lines.append("}")

    def find(self, value: int) -> str | None:
        """The name of a value that is known here."""
        scope: Scope | None = self
        while scope is not None:
            if value in scope.known:
                return scope.known[value]
            scope = scope.parent
        return None

    def at_level(self, level: int) -> Scope:
        """The outermost block around this one where values of a level can be written."""
        scope = self
        while scope.level > level and scope.parent is not None:
            scope = scope.parent
        return scope
