# SPDX-License-Identifier: Apache-2.0
"""`types.SimpleNamespace`: objects of it that a call makes, and attributes that it sets.

Its `__new__`, `__init__` and `__setattr__` are of C, but do what those of a class without any do.
Dynamo stops at them.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Iterator
from typing import Any

from torch._dynamo.variables import misc, user_defined
from torch._dynamo.variables.constant import ConstantVariable

from hostjit.replacements import replaced_attribute

__all__ = ["following_namespaces"]

_MAKES: Any = types.SimpleNamespace.__new__
_SETS: Any = types.SimpleNamespace.__setattr__
_DELETES: Any = types.SimpleNamespace.__delattr__


@contextlib.contextmanager
def following_namespaces() -> Iterator[None]:
    """Have Dynamo follow both, in this thread."""
    owner = threading.get_ident()
    is_setattr: Any = user_defined.is_standard_setattr
    is_delattr: Any = user_defined.is_standard_delattr
    kind: Any = user_defined.UserDefinedClassVariable
    is_new: Any = kind.is_supported_new_method
    call_class: Any = kind.call_function

    def makes(found: object) -> bool:
        return is_new(found) or (found == _MAKES and threading.get_ident() == owner)

    def sets(found: object) -> bool:
        return is_setattr(found) or (found is _SETS and threading.get_ident() == owner)

    def deletes(found: object) -> bool:
        return is_delattr(found) or (found is _DELETES and threading.get_ident() == owner)

    def call(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        is_asked = self.value is types.SimpleNamespace and threading.get_ident() == owner
        if args or not is_asked:
            return call_class(self, tx, args, kwargs)
        made = tx.output.side_effects.track_new_user_defined_object(self, self, [])
        for name, value in kwargs.items():
            made.call_method(tx, "__setattr__", [ConstantVariable.create(name), value], {})
        return made

    with (
        replaced_attribute(kind, "is_supported_new_method", staticmethod(makes)),
        replaced_attribute(kind, "call_function", call),
        replaced_attribute(user_defined, "is_standard_setattr", sets),
        replaced_attribute(misc, "is_standard_setattr", sets),
        replaced_attribute(user_defined, "is_standard_delattr", deletes),
    ):
        yield
