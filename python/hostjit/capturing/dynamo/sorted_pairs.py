# SPDX-License-Identifier: Apache-2.0
"""Tuples that are sorted, such as `sorted(kwargs.items())`: what comes after the names may be any.

Dynamo stops there where a tuple holds a tensor. Where the first items differ, nothing else is
compared.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from torch._dynamo.variables import ConstantVariable
from torch._dynamo.variables.lists import ListVariable, TupleVariable

from hostjit.replacements import replaced_attribute

__all__ = ["sorting_pairs"]


@contextlib.contextmanager
def sorting_pairs() -> Iterator[None]:
    """Have Dynamo sort tuples by their first items, in this thread."""
    owner = threading.get_ident()
    original = ListVariable.call_method

    def call_method(self: Any, tx: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name != "sort" or args or kwargs.keys() - {"reverse"} or not self.is_mutable():
            return original(self, tx, name, args, kwargs)
        firsts = _firsts(self.items) if threading.get_ident() == owner else None
        if firsts is None:
            return original(self, tx, name, args, kwargs)
        reverse = "reverse" in kwargs and kwargs["reverse"].as_python_constant()
        order = sorted(range(len(firsts)), key=firsts.__getitem__, reverse=bool(reverse))
        tx.output.side_effects.mutation(self)
        self.items[:] = [self.items[index] for index in order]
        return ConstantVariable.create(None)

    with replaced_attribute(ListVariable, "call_method", call_method):
        yield


def _firsts(items: Sequence[Any]) -> list[Any] | None:
    """Return the first items of tuples, if they decide; None where all that is in them does."""
    found: list[Any] = []
    for item in items:
        value = item.realize()
        if not isinstance(value, TupleVariable) or value.python_type() is not tuple:
            return None
        if not value.items or not value.items[0].is_python_constant():
            return None
        found.append(value.items[0].as_python_constant())
    kinds = set(map(type, found))
    return found if kinds in ({str}, {int}) and len(set(found)) == len(found) else None
