# SPDX-License-Identifier: Apache-2.0
"""Tuples of constants that a call leaves at several places: `self.a = self.b = (None, 1)`.

Dynamo makes one for each place, so that `is` would tell them apart.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.codegen import PyCodegen
from torch._dynamo.utils import is_safe_constant
from torch._dynamo.variables.lists import TupleVariable

from hostjit.replacements import replaced_attribute

__all__ = ["making_tuples_once"]


@contextlib.contextmanager
def making_tuples_once() -> Iterator[None]:
    """Have the code that Dynamo writes make one of each, in this thread."""
    owner = threading.get_ident()
    made: dict[int, tuple[Any, Any]] = {}  # by id the variable, which stays alive, and its value
    generate: Any = PyCodegen.__call__

    def constant_of(value: Any) -> Any:
        value = value.realize()
        if type(value) is not TupleVariable or value.source is not None:
            return value.as_python_constant()
        if id(value) not in made:
            made[id(value)] = value, tuple(map(constant_of, value.items))
        return made[id(value)][1]

    def load(self: Any, value: Any, allow_cache: bool = True) -> Any:
        is_asked = threading.get_ident() == owner and type(value) is TupleVariable
        if not is_asked or value.source is not None or not value.is_python_constant():
            return generate(self, value, allow_cache)
        found = constant_of(value)
        if not is_safe_constant(found):
            return generate(self, value, allow_cache)
        self.append_output(self.create_load_const(found))
        self.top_of_stack = value
        return None

    with replaced_attribute(PyCodegen, "__call__", load):
        yield
