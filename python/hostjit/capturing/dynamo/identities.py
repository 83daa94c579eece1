# SPDX-License-Identifier: Apache-2.0
"""`a is b` of numbers, texts and tuples that are equal.

Dynamo's guards compare them by value, so that others which are one object, or are none, pass them.
Of what is found outside of the arguments the answer is compared, too. Other such code is Python's
to run: arguments are compared by value, and what Dynamo hands on to Python where it stops, or makes
a tuple of, are other objects.
"""

from __future__ import annotations

import contextlib
import contextvars
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch._dynamo import symbolic_convert
from torch._dynamo.exc import SkipFrame
from torch._dynamo.variables import BuiltinVariable, SymNodeVariable, TupleVariable

from hostjit.capturing.dynamo.entry import TARGET_NAME
from hostjit.replacements import replaced_attribute, replaced_items

__all__ = ["Identity", "before_identities", "noting_identities", "stopping_at_identities"]

# Two objects that are compared, each as Dynamo's source of it, or itself where code has it.
Identity = tuple[Any, Any]

_VALUES = (int, float, complex, str, bytes, tuple, frozenset)
_OPERATORS = ("is", "is not")
# Of these CPython has one object each.
_SMALL = range(-5, 257)
_noted: contextvars.ContextVar[list[Identity] | None] = contextvars.ContextVar(
    "noted", default=None
)


@contextlib.contextmanager
def noting_identities() -> Iterator[list[Identity]]:
    """Note what is compared outside of the arguments, for a check of the answers."""
    found: list[Identity] = []
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


@contextlib.contextmanager
def stopping_at_identities() -> Iterator[None]:
    """Have Dynamo leave code to Python that compares others, or all if none are noted."""

    def check(args: Any) -> None:
        left, right = (value.realize() for value in args)
        if not _may_be_either(left, right):
            return
        noted = _noted.get()
        if noted is None or not (_has_place(left) and _has_place(right)):
            raise SkipFrame("it asks which of equal numbers, texts or tuples are one object")
        noted.append((_place_of(left), _place_of(right)))

    with before_identities(check):
        yield


@contextlib.contextmanager
def before_identities(check: Callable[[Sequence[Any]], None]) -> Iterator[None]:
    """Have the two variables looked at that code is about to compare by `is`, in this thread."""
    owner = threading.get_ident()

    def look(args: Sequence[Any]) -> None:
        if threading.get_ident() == owner and len(args) == 2:
            check(args)

    def checked(handler: Any) -> Any:
        def compare(tx: Any, args: Any, kwargs: Any) -> Any:
            look(args)
            return handler(tx, args, kwargs)

        return compare

    call_builtin: Any = BuiltinVariable.call_function

    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if self.fn in (operator.is_, operator.is_not):
            look(args)
        return call_builtin(self, tx, args, kwargs)

    handlers = symbolic_convert.compare_op_handlers
    with (
        replaced_items(handlers, {name: checked(handlers[name]) for name in _OPERATORS}),
        replaced_attribute(BuiltinVariable, "call_function", call_function),
    ):
        yield


def _may_be_either(left: Any, right: Any) -> bool:
    """Whether two may be one object or two without a difference that guards see."""
    if left is right or (left.source is not None and left.source == right.source):
        return False
    kinds = [_kind(value) for value in (left, right)]
    if kinds[0] is not kinds[1] or kinds[0] not in _VALUES:
        return False
    if all(isinstance(value, TupleVariable) for value in (left, right)):
        return len(left.items) == len(right.items)
    if not all(value.is_python_constant() for value in (left, right)):
        return True
    first, second = (value.as_python_constant() for value in (left, right))
    is_one = isinstance(first, int) and first in _SMALL
    return bool(first == second or first != first) and not is_one


def _kind(value: Any) -> Any:
    try:
        return value.python_type()
    except NotImplementedError:
        return None


def _has_place(value: Any) -> bool:
    """Whether it is found outside of the arguments, or in the code, and is no open number."""
    if isinstance(value, (SymNodeVariable, TupleVariable)):
        return False
    source = value.source
    while hasattr(source, "base"):
        source = source.base
    return getattr(source, "local_name", TARGET_NAME) == TARGET_NAME


def _place_of(value: Any) -> Any:
    return value.as_python_constant() if value.source is None else value.source
