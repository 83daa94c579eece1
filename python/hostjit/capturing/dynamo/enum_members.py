# SPDX-License-Identifier: Apache-2.0
"""Members of enumerations that code meets: Dynamo takes what they hold for constant.

Up to torch 2.12 it guards none of their attributes, later only those of members that it came to by
attributes and keys of dicts: not those of `Color(2)`.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.variables import UserDefinedObjectVariable

from hostjit.replacements import replaced_attribute

__all__ = ["noting_members"]


@contextlib.contextmanager
def noting_members() -> Iterator[dict[int, enum.Enum]]:
    """Note the members that Dynamo meets in this thread, by id."""
    owner = threading.get_ident()
    found: dict[int, enum.Enum] = {}

    def noting(original: Any) -> Any:
        def init(self: Any, value: Any, *args: Any, **kwargs: Any) -> None:
            if isinstance(value, enum.Enum) and threading.get_ident() == owner:
                found[id(value)] = value
            original(self, value, *args, **kwargs)

        return init

    variables: Any = importlib.import_module("torch._dynamo.variables")
    kinds = (UserDefinedObjectVariable, getattr(variables, "EnumVariable", None))
    with contextlib.ExitStack() as stack:
        for kind in filter(None, kinds):
            patch = replaced_attribute(kind, "__init__", noting(kind.__init__))
            stack.enter_context(patch)
        yield found
