# SPDX-License-Identifier: Apache-2.0
"""`float.__add__(x, y)`, as in classes derived from numbers, and `range` of a float.

Dynamo answers the first with NotImplemented, and the second as if the float were an int.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.exc import raise_observed_exception, unimplemented
from torch._dynamo.variables.builtin import BuiltinVariable

from hostjit.replacements import replaced_attribute

__all__ = ["slots_as_python"]

_NUMBERS = (int, float, complex, bool)


@contextlib.contextmanager
def slots_as_python() -> Iterator[None]:
    """Have Dynamo stop there, or raise as Python does, in this thread."""
    owner = threading.get_ident()
    make_range: Any = BuiltinVariable.call_range
    call_method: Any = BuiltinVariable.call_method

    def call_range(self: Any, tx: Any, *args: Any) -> Any:
        if threading.get_ident() == owner and any(x.python_type() is float for x in args):
            text = "'float' object cannot be interpreted as an integer"
            raise_observed_exception(TypeError, tx, args=[text])
        return make_range(self, tx, *args)

    def method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        found = call_method(self, tx, name, args, kwargs)
        is_asked = threading.get_ident() == owner and self.fn in _NUMBERS
        if is_asked and found.is_python_constant() and found.as_python_constant() is NotImplemented:
            unimplemented(
                gb_type="slot of a number",
                context=f"{self.fn.__name__}.{name}",
                explanation="Dynamo takes it for that of the type of the type.",
                hints=[],
            )
        return found

    with (
        replaced_attribute(BuiltinVariable, "call_range", call_range),
        replaced_attribute(BuiltinVariable, "call_method", method),
    ):
        yield
