# SPDX-License-Identifier: Apache-2.0
"""What Dynamo remembers from one call to the next: classes, functions and modules, which change."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch._dynamo import symbolic_convert
from torch._dynamo.variables import BuiltinVariable, base, functions

from hostjit.replacements import replaced_attribute

__all__ = ["remembering_nothing"]


def _tables() -> list[Any]:
    """Return the tables: by class the slots that C code fills, by function its parameters.

    And by name the modules that code imports when it runs.
    """
    found: list[Any] = [
        getattr(functions, "_spec_cache", None),
        getattr(symbolic_convert, "_import_module", None),
        *(getattr(base, name, None) for name in ("_tp_type", "_compute_slotdefs")),
    ]
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
    """Have Dynamo look at classes, functions and modules anew, and at its own methods.

    By the types of the arguments of `isinstance` and its like it remembers the method of its own
    that answers: the one from before it was corrected, if another compilation asked first.
    """
    for forget in _FORGETTING:
        forget()
    with replaced_attribute(BuiltinVariable, "call_function_handler_cache", {}):
        yield
