# SPDX-License-Identifier: Apache-2.0
"""What Dynamo remembers of classes and functions from one call to the next: they may change."""

from __future__ import annotations

from typing import Any

from torch._dynamo.variables import functions

__all__ = ["forget_classes_and_functions"]


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


def forget_classes_and_functions() -> None:
    """Have Dynamo look at them anew."""
    for forget in _FORGETTING:
        forget()
