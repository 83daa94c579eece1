# SPDX-License-Identifier: Apache-2.0
"""Tables of PyTorch's with other entries for some time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

__all__ = ["replaced_items"]

_MISSING = object()


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
