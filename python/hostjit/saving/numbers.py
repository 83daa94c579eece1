# SPDX-License-Identifier: Apache-2.0
"""Numbers that programs read at each call from dicts and cells: where, and what is there now."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hostjit import _C
from hostjit.capturing.instances import fields_of
from hostjit.saving.names import Place
from hostjit.saving.values import Values

__all__ = ["NumberReader", "NumberWriter"]


class NumberWriter:
    """Numbers places.

    Args:
        names: of places that have some.
    """

    def __init__(self, names: Mapping[str, Place]) -> None:
        self._names: dict[tuple[int, Any], list[str]] = {}
        for name, (holder, key) in names.items():
            self._names.setdefault((id(holder), key), []).append(name)
        self._numbers: dict[tuple[int, Any], int] = {}
        self.places: list[Place] = []
        self.described: list[dict[str, Any]] = []

    def places_of(self, described: Sequence[tuple[Any, ...]]) -> dict[int, int]:
        """Return the numbers of the places of open numbers, by slots of these.

        Numbers in structures are in the file by themselves: the rest of a structure is as it is
        now, and nothing takes the place of it.
        """
        found: dict[int, int] = {}
        for slot, holder, key, *node in described:
            if slot is not None:
                if slot in found:
                    raise _C.Error(f"it reads numbers that have to be the same, {key!r} among them")
                found[slot] = self.add(holder, key)
                continue
            names = self._names.get((id(holder), key)) or [str(key or "number")]
            for inner, path, value in _open_numbers(node[0], _read(holder, key), ""):
                found[inner] = self._add_new([name + path for name in names], value)
        return found

    def _add_new(self, names: Sequence[str], value: Any) -> int:
        self.places.append(({names[0]: value}, names[0]))
        named = [self._unused(name) for name in names]
        self.described.append({"names": named, "value": Values().to_json(value)})
        return len(self.places) - 1

    def add(self, holder: Any, key: Any) -> int:
        """Return the number of a place."""
        if not isinstance(holder, (dict, types.CellType)):
            raise _C.Error(f"it reads a number of a {type(holder).__qualname__}, {key!r}")
        number = self._numbers.setdefault((id(holder), key), len(self.places))
        if number == len(self.places):
            value = Values().to_json(_read(holder, key))
            # By its key where nothing that the function can reach has it.
            names = self._names.get((id(holder), key)) or [self._unused(str(key or "number"))]
            self.places.append((holder, key))
            self.described.append({"names": names, "value": value})
        return number

    def _unused(self, name: str) -> str:
        used = {other for entry in self.described for other in entry["names"]}
        count = 1
        while name in used:
            count += 1
            name = f"{name.partition(' ')[0]} {count}"
        return name


class NumberReader:
    """Finds the places of a file.

    Args:
        described: its numbers.
        given: places by name that take the place of those of `values`.

    Attributes:
        places: in their order.
        named: the same by name.
        values: those that nothing else has, by name: of a file.
    """

    def __init__(self, described: Sequence[dict[str, Any]], given: Mapping[str, Place]) -> None:
        self.places: list[Place] = []
        self.named: dict[str, Place] = {}
        self.values: dict[str, Any] = {}
        values = Values()
        for entry in described:
            names = entry["names"]
            place = next((given[name] for name in names if name in given), None)
            if place is None:
                self.values[names[0]] = _checked(values.from_json(entry["value"]))
                place = self.values, names[0]
            self.places.append(place)
            self.named.update(dict.fromkeys(names, place))


def _read(holder: Any, key: Any) -> Any:
    if isinstance(holder, type):
        return vars(holder)[key]
    return holder.cell_contents if isinstance(holder, types.CellType) else holder[key]


def _open_numbers(node: Any, value: Any, path: str) -> Iterator[tuple[int, str, Any]]:
    """The slots of the open numbers in what a node describes, where they are, and what."""
    if node[0] == "open":
        yield node[1], path, value
    elif node[0] in ("tuple", "list"):
        for index, (child, item) in enumerate(zip(node[-1], value, strict=True)):
            yield from _open_numbers(child, item, f"{path}[{index}]")
    elif node[0] in ("dict", "object"):
        items = value if node[0] == "dict" else fields_of(value) or {}
        for child, (name, item) in zip(node[-1], items.items(), strict=True):
            where = f"{path}[{name!r}]" if node[0] == "dict" else f"{path}.{name}"
            yield from _open_numbers(child, item, where)


def _checked(value: Any) -> Any:
    items = value if isinstance(value, tuple) else (value,)
    if not all(type(item) in (int, float) for item in items):
        raise _C.Error(f"a number of the file is {value!r}")
    return value
