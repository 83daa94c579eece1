# SPDX-License-Identifier: Apache-2.0
"""Lists and sets of users' classes that change: Python changes them itself, between two parts.

Dynamo does not write back what changed one that it was given, loses the elements of a set that the
code makes and of what `copy.copy` makes of a list, and forgets what `+=` and the like do.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Iterator
from typing import Any, NoReturn
from unittest import mock

from torch._dynamo.exc import unimplemented
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.variables import ListVariable, SetVariable

__all__ = ["stopping_at_user_containers"]

_OPERATORS = frozenset({"__iadd__", "__imul__", "__ior__", "__iand__", "__isub__", "__ixor__"})
_COPIES = frozenset({"__reduce_ex__", "__reduce__"})


@contextlib.contextmanager
def stopping_at_user_containers() -> Iterator[None]:
    """Have Dynamo stop at such a change, in this thread."""
    owner = threading.get_ident()
    user_defined = importlib.import_module("torch._dynamo.variables.user_defined")
    lists, sets = user_defined.UserDefinedListVariable, user_defined.UserDefinedSetVariable

    note_change = SideEffects.mutation
    make_set = sets.__init__

    def change(self: Any, variable: Any) -> None:
        if threading.get_ident() == owner and _is_inside_another(self, variable):
            _stop("a change")
        note_change(self, variable)

    def make(self: Any, value: Any, *args: Any, **kwargs: Any) -> None:
        if threading.get_ident() == owner and kwargs.get("source") is None:
            _stop("a new object")
        make_set(self, value, *args, **kwargs)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(SideEffects, "mutation", change))
        stack.enter_context(mock.patch.object(sets, "__init__", make))
        for kind in (lists, sets):
            stack.enter_context(_stopping_at_methods(owner, kind))
        yield


@contextlib.contextmanager
def _stopping_at_methods(owner: int, kind: Any) -> Iterator[None]:
    # Torch 2.12 and earlier have no methods for the operators.
    wrong = {name: None for name in dir(kind) if "_inplace_" in name}
    methods = {**wrong, "call_method": _OPERATORS, "var_getattr": _COPIES}

    def stopping(original: Any, names: frozenset[str] | None) -> Any:
        def method(self: Any, tx: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == owner and (names is None or name in names):
                _stop("an operator in place, or a copy,")
            return original(self, tx, name, *args, **kwargs)

        return method

    is_constant = kind.is_python_constant

    def is_python_constant(self: Any) -> Any:
        # What has stopped is computed from constants otherwise, of the class that they have there.
        return threading.get_ident() != owner and is_constant(self)

    with contextlib.ExitStack() as stack:
        for name, names in methods.items():
            method = stopping(getattr(kind, name), names)
            stack.enter_context(mock.patch.object(kind, name, method))
        stack.enter_context(mock.patch.object(kind, "is_python_constant", is_python_constant))
        yield


def _is_inside_another(effects: Any, variable: Any) -> bool:
    """Tell whether a list or set is Dynamo's for what is in an object of a user's class."""
    if not isinstance(variable, (ListVariable, SetVariable)) or variable.source is None:
        return False
    # Only changes of what is tracked are written back, and here that is the object around it.
    return all(variable is not tracked for tracked in effects.id_to_variable.values())


def _stop(what: str) -> NoReturn:
    unimplemented(
        gb_type="container of a user's class",
        context=what,
        explanation=f"Dynamo does not follow {what} of a list or set of a user's class rightly.",
        hints=[],
    )
