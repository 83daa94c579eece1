# SPDX-License-Identifier: Apache-2.0
"""What Dynamo remembers from one call to the next: classes and functions, which may change."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch._dynamo.variables import BuiltinVariable, functions

from hostjit.replacements import replaced_attribute

__all__ = ["remembering_nothing"]


def _tables() -> list[Any]:
    """Return the tables: by class the slots that C code fills, by function its parameters."""
    found: list[Any] = [getattr(functions, "_spec_cache", None)]
    try:
        from torch._dynamo.variables import object_protocol
    except ImportError:  # older versions of torch ask the class each time
        return found
    return [*found, getattr(object_protocol, "_get_cached_slots", None)]


_FORGETTING = [
    getattr(table, "cache_clear", None) or table.clear for table in _tables() if table is not None
]


@contextlib.contextmanager
def remembering_nothing() -> Iterator[None]:
    """Have Dynamo look at classes and functions anew, and at its own methods.

    By the types of the arguments of `isinstance` and its like it remembers the method of its own
    that answers: the one from before it was corrected, if another compilation asked first.
    """
    for forget in _FORGETTING:
        forget()
    with replaced_attribute(BuiltinVariable, "call_function_handler_cache", {}):
        yield
