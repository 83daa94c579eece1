# SPDX-License-Identifier: Apache-2.0
"""Guards on classes that Dynamo takes for known, and questions that a metaclass answers.

Dynamo leaves no guard on a class that it comes to by a variable of a closure, wherever on the way,
since `__class__`, which `super()` reads, is such a variable. And it asks a metaclass's own
`__instancecheck__` and `__subclasscheck__` once, or not at all: it stops there.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torch._dynamo.exc import unimplemented
from torch._dynamo.variables import BuiltinVariable, builder

from hostjit.capturing.dynamo.class_changes import has_own
from hostjit.replacements import replaced_attribute

__all__ = ["guarding_classes"]

_FROM_CLOSURE = "is_from_closure_source"


@contextlib.contextmanager
def guarding_classes() -> Iterator[None]:
    """Have Dynamo guard them, and stop, in this thread."""
    owner = threading.get_ident()

    def asking(original: Callable[..., Any], check: str) -> Callable[..., Any]:
        def ask(self: Any, tx: Any, value: Any, kinds: Any) -> Any:
            if threading.get_ident() == owner and _asks_metaclass(kinds, check):
                unimplemented(
                    gb_type="question that a metaclass answers",
                    context=f"{value} {kinds}",
                    explanation=f"A metaclass has a `{check}` of its own.",
                    hints=[],
                )
            return original(self, tx, value, kinds)

        return ask

    with contextlib.ExitStack() as stack:
        for name, check in (
            ("call_isinstance", "__instancecheck__"),
            ("call_issubclass", "__subclasscheck__"),
        ):
            if hasattr(BuiltinVariable, name):
                asked = asking(getattr(BuiltinVariable, name), check)
                stack.enter_context(replaced_attribute(BuiltinVariable, name, asked))
        if hasattr(builder, _FROM_CLOSURE):
            stack.enter_context(replaced_attribute(builder, _FROM_CLOSURE, _is_of_super))
        yield


def _is_of_super(source: Any) -> bool:
    """Tell whether a class is what a method was defined in, which nobody changes."""
    return getattr(source, "freevar_name", None) == "__class__"


def _asks_metaclass(kinds: Any, check: str) -> bool:
    if not kinds.is_python_constant():
        return False
    found = kinds.as_python_constant()
    found = found if isinstance(found, tuple) else (found,)
    return any(isinstance(kind, type) and has_own(type(kind), check) for kind in found)
