# SPDX-License-Identifier: Apache-2.0
"""Guards on functions and classes that code looks for in a dict or a set, as in a registry.

Dynamo leaves none: it compares the object from outside with the keys before it wraps it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.variables import ConstDictVariable, LazyVariableTracker

from hostjit.replacements import replaced_attribute

__all__ = ["OF_CONTAINERS", "guarding_looked_up_keys", "hashed"]

OF_CONTAINERS = frozenset({"ConstDictKeySource", "NonSerializableSetGetItemSource"})
"""Sources of the keys of a dict, or the elements of a set, which have guards of their own."""


@contextlib.contextmanager
def guarding_looked_up_keys() -> Iterator[None]:
    """Have Dynamo guard them, in this thread."""
    owner = threading.get_ident()
    kind = hashed()
    # Of torch 2.11, by another name; that of a variable which is wrapped asks that.
    is_hashable: Any = vars(LazyVariableTracker).get("is_hashable_lazy")
    is_hashable = is_hashable or vars(LazyVariableTracker)["is_hashable"]
    original = kind.__init__

    def init(self: Any, key: Any) -> None:
        if isinstance(key, LazyVariableTracker) and threading.get_ident() == owner:
            source: Any = None if key.is_realized() else key._cache.source
            is_compared = source is not None and is_hashable(key)
            if is_compared and type(source).__name__ not in OF_CONTAINERS:
                install_guard(source.make_guard(GuardBuilder.ID_MATCH))
        original(self, key)

    with replaced_attribute(kind, "__init__", init):
        yield


def hashed() -> Any:
    """Return the class of keys in Dynamo's dicts."""
    try:
        from torch._dynamo.variables.hashable import HashableTracker
    except ImportError:  # older versions of torch
        kind: Any = ConstDictVariable
        return kind._HashableTracker
    return HashableTracker
