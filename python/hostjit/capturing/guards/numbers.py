# SPDX-License-Identifier: Apache-2.0
"""The numbers outside of the arguments that guards are about: where they are, and how exactly."""

from __future__ import annotations

import collections
import dataclasses
import struct
from collections.abc import Mapping, Set
from typing import Any

from hostjit.capturing.arguments import same_keys
from hostjit.capturing.guards import kinds
from hostjit.capturing.guards.sources import SourceWalker
from hostjit.capturing.guards.watch_list import WatchList
from hostjit.capturing.instances import elements_of
from hostjit.capturing.numbers.open_numbers import NumberPlace, named_numbers

__all__ = ["Elements", "GuardedNumbers"]


class Elements:
    """The elements of a set, or the keys of an OrderedDict, as code meets them.

    Those that are equal may be others, and Dynamo does not know of items that were moved.
    """

    def __init__(self, found: Set[Any] | collections.OrderedDict[Any, Any]) -> None:
        if isinstance(found, collections.OrderedDict):
            self._found = tuple(collections.OrderedDict.__iter__(found))
        else:
            self._found = elements_of(found)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Elements) and same_keys(self._found, other._found)

    __hash__ = None  # type: ignore[assignment]


class GuardedNumbers:
    """Collects them, by Dynamo's names.

    Attributes:
        numbers: the ints and floats, those that are left open included.
        places: for each of them where else it may be found, and the structure.
        exact: what Dynamo compares less exactly than code does.
    """

    def __init__(
        self,
        left_open: Set[str],
        structures: Mapping[str, NumberPlace],
        watches: WatchList,
    ) -> None:
        """`left_open`: names of those that a call may have any value of."""
        self.numbers: dict[str, NumberPlace] = {}
        self.places: dict[str, list[tuple[NumberPlace, Any]]] = {}
        self.exact: dict[str, bytes | Elements] = {}
        self._open = left_open
        self._structures = structures
        self._watches = watches

    def note(self, source: Any, kind: str, value: Any, walker: SourceWalker) -> None:
        """Note what a guard says of a value, if that is a number or a tuple."""
        is_open = source.name in self._open
        if type(value) is float and not is_open:
            self.exact[source.name] = struct.pack("d", value)
        is_handed_on = kind == "TYPE_MATCH"  # the rest of a call takes it, or a result has it
        if type(value) is int and is_handed_on and not is_open:
            self.exact[source.name] = repr(value).encode()
        if type(value) is complex:
            self.exact[source.name] = struct.pack("dd", value.real, value.imag)
        if type(value) in (int, float) and (is_open or is_handed_on or kind in kinds.BY_VALUE):
            direct = walker.number_place(source) or walker.inner_place(source)
            found = list(walker.structure_places(source))
            places = [place for place, _ in found if place.structure in self._structures]
            if not places:
                places = [place for place in (direct,) if place is not None]
                places += [place for place, _ in found if not is_open]
            here = next((place for place in places if place.read() is value), None)
            if here is not None:
                self.numbers[source.name] = here
                self.places[source.name] = found
                if is_open and not here.structure:
                    self._watches.leave_open(here)
        if type(value) is tuple and kind in kinds.BY_VALUE:
            for path, item in named_numbers(value, source.name):
                if type(item) is float and path not in self._open:  # 0.0 is equal to -0.0
                    self.exact[path] = struct.pack("d", item)
            self._note_elements(source, value, walker)

    def note_unread(self) -> None:
        """Note open numbers of structures that the code does not look at."""
        for name in self._open - set(self.numbers):
            for place in self._structures.values():
                if name in dict(named_numbers(place.read_holder(), place.structure)):
                    path = name.removeprefix(place.structure)
                    self.numbers[name] = dataclasses.replace(place, path=path)

    def _note_elements(self, source: Any, value: Any, walker: SourceWalker) -> None:
        """Note the numbers of a tuple that is compared as a whole."""
        direct = walker.number_place(source)
        found = list(walker.structure_places(source))
        if direct is not None and direct.read_holder() is value:
            found = [(dataclasses.replace(direct, structure=source.name), value), *found]
        for path, _ in named_numbers(value, "") if found else ():
            inside = [(dataclasses.replace(p, path=p.path + path), held) for p, held in found]
            self.numbers[source.name + path] = inside[0][0]
            self.places[source.name + path] = inside
