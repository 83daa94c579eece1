# SPDX-License-Identifier: Apache-2.0
"""Functions and tables of PyTorch's that are others for some time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

__all__ = ["replaced_attribute", "replaced_items"]

_MISSING = object()


class replaced_attribute:  # noqa: N801  # used as a function is, like contextlib.suppress
    """A context in which an attribute of a class, a module or an object has another value.

    As `unittest.mock.patch.object`, which takes twenty times as long; a capture replaces a hundred.
    What the owner has inherited it inherits again afterwards. Raises AttributeError when it has no
    attribute of that name, unless `create`.
    """

    __slots__ = ("_before", "_create", "_name", "_owner", "_value")

    def __init__(self, owner: Any, name: str, value: Any, *, create: bool = False) -> None:
        self._owner = owner
        self._name = name
        self._value = value
        self._create = create
        self._before: Any = _MISSING

    def __enter__(self) -> None:
        if not self._create:
            getattr(self._owner, self._name)
        # Of a class, what is in its dict: a staticmethod is read as the function that it holds.
        self._before = vars(self._owner).get(self._name, _MISSING)
        setattr(self._owner, self._name, self._value)

    def __exit__(self, *_: object) -> None:
        if self._before is _MISSING:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)


class replaced_items:  # noqa: N801  # used as a function is, like contextlib.suppress
    """A context in which a dict gives other values for some keys, and none for others.

    No other entry is touched. The tables are large, and other threads read them meanwhile:
    `unittest.mock.patch.dict` copies a dict, and empties it before it puts back what it had.
    """

    def __init__(
        self, table: dict[Any, Any], items: Mapping[Any, Any], *, without: Collection[Any] = ()
    ) -> None:
        self._table = table
        self._items = items
        self._without = without
        self._before: dict[Any, Any] = {}

    def __enter__(self) -> None:
        keys = (*self._items, *self._without)
        self._before = {key: self._table.get(key, _MISSING) for key in keys}
        self._table.update(self._items)
        for key in self._without:
            self._table.pop(key, None)

    def __exit__(self, *_: object) -> None:
        for key, value in self._before.items():
            if value is _MISSING:
                self._table.pop(key, None)
            else:
                self._table[key] = value
