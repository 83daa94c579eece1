# SPDX-License-Identifier: Apache-2.0
"""Tuples of numbers among the attributes of modules, which Dynamo takes for constants."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator
from typing import Any

from torch._dynamo.variables import builder
from torch._dynamo.variables.constant import ConstantVariable

from hostjit.replacements import replaced_attribute

__all__ = ["keeps_tuples_open"]


@contextlib.contextmanager
def keeps_tuples_open(sources: Collection[str]) -> Iterator[None]:
    """Let tuples that have numbers of these sources be like any other, in this thread."""
    if not sources:
        yield
        return
    owner = threading.get_ident()
    wrappers = builder.VariableBuilder._type_dispatch
    is_literal = ConstantVariable.is_literal

    def is_none(*args: Any, **kwargs: Any) -> bool:
        return threading.get_ident() != owner and is_literal(*args, **kwargs)

    def wrap_tuple(self: Any, value: Any) -> Any:
        wrap = wrappers()[tuple]
        if not any(name.startswith(f"{self.source.name}[") for name in sources):
            return wrap(self, value)
        # Asked for the elements of a module's tuple alone.
        with replaced_attribute(ConstantVariable, "is_literal", staticmethod(is_none)):
            return wrap(self, value)

    def type_dispatch(cls: Any) -> Any:
        found = wrappers()
        return {**found, tuple: wrap_tuple} if threading.get_ident() == owner else found

    with replaced_attribute(builder.VariableBuilder, "_type_dispatch", classmethod(type_dispatch)):
        yield
