# SPDX-License-Identifier: Apache-2.0
"""Numbers outside of the arguments that differ from call to call, such as counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["NumbersOutside"]

# Of one number: what had a third one will have others.
_MOST_VALUES = 2


class NumbersOutside:
    """Remembers the values that calls of one function, and of its parts, found at each place."""

    def __init__(self) -> None:
        self._values: dict[Any, set[str]] = {}

    def note(self, found: Mapping[Any, tuple[str, int | float]], *, floats_only: bool) -> str:
        """Note what a call found; returns the name of a number with too many values, "" for none.

        `found`: name and value by place. Of an object that is gone the place may be another's
        now, whose calls are then recorded less than they could be.
        """
        varying = ""
        for place, (name, value) in found.items():
            seen = self._values.setdefault(place, set())
            if len(seen) <= _MOST_VALUES:
                seen.add(repr(value))
            if len(seen) > _MOST_VALUES and (isinstance(value, float) or not floats_only):
                varying = varying or f"the {type(value).__name__} {name}"
        return varying
