# SPDX-License-Identifier: Apache-2.0
"""Guards on classes that Dynamo takes for known, and questions that a metaclass answers.

Dynamo leaves no guard on a class that it comes to by a variable of a closure, wherever on the way,
since `__class__`, which `super()` reads, is such a variable. And it asks a metaclass's own
`__instancecheck__` and `__subclasscheck__` once, or not at all, and a protocol about the class of
an object alone: it stops there.
"""

from __future__ import annotations

import abc
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torch._dynamo.exc import unimplemented
from torch._dynamo.variables import BuiltinVariable, builder

from hostjit.capturing.dynamo.class_changes import has_own
from hostjit.capturing.dynamo.kept_results import is_installed_class
from hostjit.replacements import replaced_attribute

__all__ = ["guarding_classes", "token_of"]

# Of the environment of sizes, which Dynamo hands on.
_TOKEN = "hostjit_abc_token"
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
            if threading.get_ident() == owner and _is_abstract(kinds):
                setattr(tx.output.shape_env, _TOKEN, abc.get_cache_token())
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


def token_of(output: Any) -> object:
    """Return `abc.get_cache_token()` of when abstract classes were asked, None if none was.

    Args:
        output: Dynamo's record of the call, or another thing that has its environment of sizes.
    """
    return getattr(output.shape_env, _TOKEN, None)


def _classes(kinds: Any) -> list[type]:
    found = kinds.as_python_constant() if kinds.is_python_constant() else ()
    found = found if isinstance(found, tuple) else (found,)
    return [kind for kind in found if isinstance(kind, type)]


def _asks_metaclass(kinds: Any, check: str) -> bool:
    return any(has_own(type(kind), check) or _is_protocol(kind) for kind in _classes(kinds))


def _is_abstract(kinds: Any) -> bool:
    """Tell whether other classes may be registered with one of these, which users wrote."""
    return any(
        isinstance(kind, abc.ABCMeta) and not is_installed_class(kind) for kind in _classes(kinds)
    )


def _is_protocol(kind: Any) -> bool:
    """Tell whether users wrote a protocol, for which attributes of an object itself count."""
    return bool(getattr(kind, "_is_protocol", False)) and kind.__module__ != "typing"
