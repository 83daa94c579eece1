# SPDX-License-Identifier: Apache-2.0
"""Objects among the arguments that are compared by their fields, as containers by their items."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from hostjit.capturing.instances import slot_names
from hostjit.capturing.module_fields import fields_of_any

__all__ = ["NONE_BY_FIELDS", "ByFields"]


class ByFields:
    """Classes of such objects, and the names of the fields that are compared; None for all.

    Of another field an object has to have one of the name, and no more is known of it.
    """

    def __init__(self, classes: Mapping[type, Collection[str] | None] | None = None) -> None:
        pairs = (classes or {}).items()
        self._items = tuple((k, None if n is None else frozenset(n)) for k, n in pairs)

    @classmethod
    def of(cls, *classes: type) -> ByFields:
        """Return these classes, with all their fields."""
        return cls(dict.fromkeys(classes))

    # A class is not asked for a hash, nor whether it is another: its metaclass would answer.
    def __contains__(self, kind: object) -> bool:
        return any(known is kind for known, _ in self._items)

    def __iter__(self) -> Iterator[type]:
        return (kind for kind, _ in self._items)

    def __len__(self) -> int:
        return len(self._items)

    def with_all_of(self, kinds: Iterable[type]) -> ByFields:
        """Return these classes, and others with all their fields."""
        return ByFields({**dict.fromkeys(kinds), **dict(self._items)})

    def fields_of(self, value: Any) -> dict[str, Any] | None:
        """Return what is compared of an object, in its order; None for one that is no container."""
        for kind, names in self._items:
            if type(value) is kind:
                found = fields_of_any(value)
                if names is None or found is None:
                    return found
                return {name: item for name, item in found.items() if name in names}
        return None

    def leaves_out(self, value: Any, name: str) -> bool:
        """Tell whether an object has a field that is not compared."""
        names = next((names for kind, names in self._items if type(value) is kind), None)
        return names is not None and name not in names and name in (fields_of_any(value) or ())

    def described(self) -> dict[type, tuple[tuple[str, ...], tuple[str, ...] | None]]:
        """Return what `_C.Specialization` takes: by class its slots, and what is compared."""
        return {
            kind: (slot_names(kind), None if names is None else tuple(sorted(names)))
            for kind, names in self._items
        }


NONE_BY_FIELDS = ByFields()
