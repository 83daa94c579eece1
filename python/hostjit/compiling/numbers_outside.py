# SPDX-License-Identifier: Apache-2.0
"""Numbers outside of the arguments that differ from call to call, such as counters."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterable
from typing import Any

__all__ = ["NumberOutside", "NumbersOutside"]

# Of one number: what had a third one will have others.
_MOST_VALUES = 2


@dataclasses.dataclass
class NumberOutside:
    """A number that a call found.

    Attributes:
        place: where: the identity of what holds it, and which of its numbers it is.
        holder: what holds it, if that can go while others remember the place: then the place is
            that of something else.
        name: for messages.
        value: what it was.
    """

    place: Any
    holder: weakref.ref[Any] | None
    name: str
    value: int | float


class NumbersOutside:
    """Remembers the values that calls of one function, and of its parts, found at each place."""

    def __init__(self) -> None:
        self._values: dict[Any, tuple[weakref.ref[Any] | None, set[str]]] = {}

    def note(self, found: Iterable[NumberOutside], *, floats_only: bool) -> str:
        """Note what a call found; returns the name of a number with too many values, "" for none.

        Of a dict or closure that is gone, which nothing can hold weakly, the place may be another's
        now, whose calls are then recorded less than they could be.
        """
        varying = ""
        for number in found:
            seen = self._seen_at(number)
            if len(seen) <= _MOST_VALUES:
                seen.add(repr(number.value))
            is_asked = isinstance(number.value, float) or not floats_only
            if len(seen) > _MOST_VALUES and is_asked:
                varying = varying or f"the {type(number.value).__name__} {number.name}"
        return varying

    def varying(self, found: Iterable[NumberOutside]) -> list[NumberOutside]:
        """Return those of what a call found that have had too many values."""
        return [number for number in found if len(self._seen_at(number)) > _MOST_VALUES]

    def _seen_at(self, number: NumberOutside) -> set[str]:
        holder, seen = self._values.get(number.place, (None, set()))
        is_gone = holder is not None and holder() is None
        self._values[number.place] = number.holder, set() if is_gone else seen
        return self._values[number.place][1]
