# SPDX-License-Identifier: Apache-2.0
"""Attributes that `super().__delattr__(name)` deletes, as `torch.nn.Module` does.

Dynamo notes the deletion, but goes on finding the attribute in the `__dict__` of the object, where
`functools.cached_property` looks first.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.variables import DeletedVariable, UserDefinedObjectVariable, base
from torch._dynamo.variables.misc import SuperVariable

from hostjit.replacements import replaced_attribute

__all__ = ["deleting_from_dicts"]

_RESOLVE = "_resolved_getattr_and_source"


@contextlib.contextmanager
def deleting_from_dicts() -> Iterator[None]:
    """Have Dynamo delete them as `del holder.name` does, in this thread."""
    # Older versions note all changes of attributes in one place.
    if not (hasattr(base, "AttrMutationKind") and hasattr(SuperVariable, _RESOLVE)):
        yield
        return
    owner = threading.get_ident()
    original: Any = SuperVariable.call_method

    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if (
            name == "__delattr__"
            and threading.get_ident() == owner
            and isinstance(self.objvar, UserDefinedObjectVariable)
            and getattr(self, _RESOLVE)(tx, name)[0] is object.__delattr__
        ):
            (attribute,) = args
            return self.objvar.method_setattr_standard(tx, attribute, DeletedVariable())
        return original(self, tx, name, args, kwargs)

    with replaced_attribute(SuperVariable, "call_method", call_method):
        yield
