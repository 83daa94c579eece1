# SPDX-License-Identifier: Apache-2.0
"""Guards on what classes of users define, for code that has Dynamo's guards alone.

Dynamo guards the class of an object, but not the methods that it finds there, nor that the class
itself goes on to have no attribute that it found in a base class.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import types
from collections.abc import Iterator
from typing import Any

from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.source import GetItemSource, TypeDictSource, TypeMROSource
from torch._dynamo.variables.functions import UserMethodVariable
from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

from hostjit.capturing.dynamo.kept_results import is_installed_class, is_installed_file
from hostjit.replacements import replaced_attribute

__all__ = ["guarding_methods"]

_WALK = "get_source_by_walking_mro"


@contextlib.contextmanager
def guarding_methods() -> Iterator[None]:
    """Have Dynamo guard them, in this thread."""
    owner = threading.get_ident()
    call = UserMethodVariable.call_function
    walk: Any = getattr(UserDefinedObjectVariable, _WALK)

    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if (
            threading.get_ident() == owner
            and isinstance(self.fn, types.FunctionType)
            and not is_installed_file(self.fn.__code__.co_filename)
            and _is_in_class(self.source_fn)
        ):
            install_guard(self.source_fn.make_guard(GuardBuilder.CLOSURE_MATCH))
        return call(self, tx, args, kwargs)

    def walk_bases(self: Any, *args: Any) -> Any:
        source, kind, name = walk(self, *args), type(self.value), args[-1]
        if (
            threading.get_ident() == owner
            and name not in vars(kind)
            and not is_installed_class(kind)
        ):
            own = TypeDictSource(GetItemSource(TypeMROSource(self.cls_source), 0))
            absent = functools.partial(GuardBuilder.DICT_NOT_CONTAINS, key=name)
            install_guard(own.make_guard(absent))
        return source

    with (
        replaced_attribute(UserMethodVariable, "call_function", call_function),
        replaced_attribute(UserDefinedObjectVariable, _WALK, walk_bases),
    ):
        yield


def _is_in_class(source: Any) -> bool:
    """Tell whether a function is in the dict of a class, or in a property or the like there."""
    while source is not None and not isinstance(source, TypeDictSource):
        source = getattr(source, "base", None)
    return source is not None
