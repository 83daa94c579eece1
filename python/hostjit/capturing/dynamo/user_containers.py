# SPDX-License-Identifier: Apache-2.0
"""Containers of users' classes that change: Python changes them itself, between two parts.

Dynamo does not write back what changed a list or set that it was given, loses the elements of a set
that the code makes and of what `copy.copy` makes of a list, forgets what `+=` and the like do, and
makes plain dicts where objects of a dict's class are copied or joined.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import importlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from torch._dynamo.exc import unimplemented
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.variables import ListVariable, SetVariable

from hostjit.capturing.dynamo.attribute_reads import Read, replaced_reads
from hostjit.capturing.instances import HEAP_TYPE
from hostjit.replacements import replaced_attribute

__all__ = ["stopping_at_user_containers"]

_OPERATORS = frozenset({"__iadd__", "__imul__", "__ior__", "__iand__", "__isub__", "__ixor__"})
# Methods of Dynamo's variables, with the names that they must not be given; None for any.
_Methods = Mapping[str, frozenset[str] | None]
_OF_CHANGES: _Methods = {"call_method": _OPERATORS}
_OF_DICTS: _Methods = {
    "call_method": frozenset({"copy", "__copy__", "__or__", "__ror__", "__ior__"}),
    "nb_or_impl": None,
    "nb_inplace_or_impl": None,
}
# What `copy.copy` asks for: Dynamo's answer has the attributes alone, not what is in them.
_REDUCE = frozenset({"__reduce_ex__", "__reduce__"})
_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque)


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
        stack.enter_context(replaced_attribute(SideEffects, "mutation", change))
        stack.enter_context(replaced_attribute(sets, "__init__", make))
        for kind in (lists, sets):
            stack.enter_context(
                _stopping_at_methods(owner, kind, {**_OF_CHANGES, **_operators_of(kind)})
            )
        for kind in (user_defined.UserDefinedDictVariable, *_kinds_of_dicts(user_defined)):
            known = {name: names for name, names in _OF_DICTS.items() if hasattr(kind, name)}
            stack.enter_context(_stopping_at_methods(owner, kind, known))
        stack.enter_context(_stopping_at_copies(owner, user_defined.UserDefinedObjectVariable))
        stack.enter_context(_stopping_at_fromkeys(owner, user_defined.UserDefinedClassVariable))
        yield


@functools.cache
def _operators_of(kind: Any) -> dict[str, None]:
    """Return the methods for operators; torch 2.12 and earlier have none."""
    return {name: None for name in dir(kind) if "_inplace_" in name}


@functools.cache
def _kinds_of_dicts(user_defined: Any) -> list[Any]:
    base = user_defined.UserDefinedDictVariable
    classes = [kind for kind in vars(user_defined).values() if isinstance(kind, type)]
    return [kind for kind in classes if issubclass(kind, base) and kind is not base]


@contextlib.contextmanager
def _stopping_at_methods(owner: int, kind: Any, methods: _Methods) -> Iterator[None]:
    """Stop at methods of Dynamo's variables, at some names that they are given or at all."""

    def is_watched(variable: Any) -> bool:
        return threading.get_ident() == owner and _is_of_user(variable.python_type())

    def stopping(original: Any, names: frozenset[str] | None) -> Any:
        def method(self: Any, tx: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
            if (names is None or name in names) and is_watched(self):
                _stop("an operator or a copy")
            return original(self, tx, name, *args, **kwargs)

        return method

    is_constant = kind.is_python_constant

    def is_python_constant(self: Any) -> Any:
        # What has stopped is computed from constants otherwise, of the class that they have there.
        return not is_watched(self) and is_constant(self)

    with contextlib.ExitStack() as stack:
        for name, names in methods.items():
            method = stopping(getattr(kind, name), names)
            stack.enter_context(replaced_attribute(kind, name, method))
        stack.enter_context(replaced_attribute(kind, "is_python_constant", is_python_constant))
        yield


@contextlib.contextmanager
def _stopping_at_copies(owner: int, objects: Any) -> Iterator[None]:
    def stopping(original: Read) -> Read:
        def read(self: Any, tx: Any, name: str) -> Any:
            is_copied = name in _REDUCE and issubclass(self.python_type(), _CONTAINERS)
            if threading.get_ident() == owner and is_copied:
                _stop("a copy")
            return original(self, tx, name)

        return read

    with replaced_reads(objects, stopping):
        yield


@contextlib.contextmanager
def _stopping_at_fromkeys(owner: int, classes: Any) -> Iterator[None]:
    original = classes.call_method

    def call(self: Any, tx: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        is_of_user = name == "fromkeys" and _is_of_user(self.value)
        if threading.get_ident() == owner and is_of_user:
            _stop("a new object")
        return original(self, tx, name, *args, **kwargs)

    with replaced_attribute(classes, "call_method", call):
        yield


def _is_of_user(kind: type) -> bool:
    """Tell whether Python code made a class; that of `OrderedDict` is C code's."""
    return bool(kind.__flags__ & HEAP_TYPE)


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
        explanation=f"Dynamo does not follow {what} of a container of a user's class rightly.",
        hints=[],
    )
