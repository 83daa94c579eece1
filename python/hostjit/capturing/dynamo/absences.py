# SPDX-License-Identifier: Apache-2.0
"""Guards on attributes and keys that code asks for where they may be absent.

Dynamo leaves none where an AttributeError or a KeyError is handled, none for `hasattr` of functions
and modules, and none for keys that are tuples of open numbers.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torch._dynamo import symbolic_convert
from torch._dynamo.exc import ObservedAttributeError
from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.source import AttrSource, TorchFunctionModeStackSource
from torch._dynamo.variables import (
    ConstantVariable,
    ConstDictVariable,
    SymNodeVariable,
    TupleVariable,
    builtin,
)
from torch._guards import ChainedSource

from hostjit.capturing.dynamo.source_values import value_at
from hostjit.replacements import replaced_attribute

__all__ = ["guarding_absences"]

_BY_NAME = "attr" in inspect.signature(GuardBuilder.HASATTR).parameters


@contextlib.contextmanager
def guarding_absences() -> Iterator[None]:
    """Have Dynamo guard them, in this thread."""
    owner = threading.get_ident()

    def asking(original: Callable[..., Any], takes_lists: bool, reads: bool) -> Callable[..., Any]:
        def ask(self: Any, tx: Any, *given: Any, **kwargs: Any) -> Any:
            operands = given[0] if takes_lists else given
            guard: Callable[[], None] = _nothing
            if threading.get_ident() == owner and len(operands) >= 2:
                holder, name = operands[:2]
                if name.is_python_constant():
                    name = name.as_python_constant()
                    guard = functools.partial(_guard, tx, holder, name, reads)
            try:
                found = original(self, tx, *given, **kwargs)
            except ObservedAttributeError:
                guard()
                raise
            guard()
            return found

        return ask

    with contextlib.ExitStack() as stack:
        for kind, name, takes_lists, reads in _questions():
            asked = asking(getattr(kind, name), takes_lists, reads)
            stack.enter_context(replaced_attribute(kind, name, asked))
        stack.enter_context(_guarding_reads(owner))
        stack.enter_context(_guarding_keys(owner))
        stack.enter_context(_guarding_tuples(owner))
        yield


def _guarding_reads(owner: int) -> contextlib.AbstractContextManager[Any]:
    """For `holder.name`, which Dynamo of torch 2.14 and later reads without `getattr`."""
    original: Any = getattr(symbolic_convert, "generic_getattr", None)
    if original is None:
        return contextlib.nullcontext()

    def read(tx: Any, holder: Any, name: str, *default: Any) -> Any:
        try:
            return original(tx, holder, name, *default)
        except ObservedAttributeError:
            if threading.get_ident() == owner:
                _guard(tx, holder, name, reads=True)
            raise

    return replaced_attribute(symbolic_convert, "generic_getattr", read)


def _guarding_keys(owner: int) -> contextlib.AbstractContextManager[Any]:
    kind: Any = ConstDictVariable
    original = kind.getitem_const_raise_exception_if_absent

    def get(self: Any, tx: Any, key: Any) -> Any:
        if threading.get_ident() == owner and key not in self:
            self.install_dict_contains_guard(tx, [key])
        return original(self, tx, key)

    return replaced_attribute(kind, "getitem_const_raise_exception_if_absent", get)


def _guarding_tuples(owner: int) -> contextlib.AbstractContextManager[Any]:
    kind: Any = ConstDictVariable
    original = kind.install_dict_contains_guard

    def install(self: Any, tx: Any, args: Any) -> None:
        key = args[0]
        if threading.get_ident() == owner and key.source is None:
            key = _known(key)
        original(self, tx, [key, *args[1:]])

    return replaced_attribute(kind, "install_dict_contains_guard", install)


def _known(key: Any) -> Any:
    """Return a key by the numbers that are in it; to look it up, Dynamo holds them to these."""
    if isinstance(key, TupleVariable):
        return TupleVariable([_known(item.realize()) for item in key.items])
    if isinstance(key, SymNodeVariable):
        return ConstantVariable.create(key.evaluate_expr())
    return key


def _questions() -> Iterator[tuple[Any, str, bool, bool]]:
    """Yield what answers; whether it takes operands in a list, and whether it reads what is there.

    Such a read has a guard of its own.
    """
    for name, method, reads in (
        ("GetAttrBuiltinVariable", "call_getattr", True),
        ("HasAttrBuiltinVariable", "call_hasattr", False),
    ):
        if hasattr(builtin, name):
            yield getattr(builtin, name), "call_function", True, reads
        else:  # older versions of torch
            yield builtin.BuiltinVariable, method, False, reads


def _nothing() -> None:
    """Stands for no guard."""


def _guard(tx: Any, holder: Any, attribute: str, reads: bool) -> None:
    holder = holder.realize() if hasattr(holder, "realize") else holder
    source = holder.source
    if source is None or _is_of_a_mode(source):
        return
    if tx.output.side_effects.has_pending_mutation_of_attr(holder, attribute):
        return
    value = value_at(tx, source)
    # None has the same attributes always; torch 2.11 fails at such a guard.
    if value is None or (reads and _is_there(value, attribute)):
        return
    if _BY_NAME:
        create: Any = functools.partial(GuardBuilder.HASATTR, attr=attribute)
        install_guard(source.make_guard(create))
    else:
        install_guard(AttrSource(source, attribute).make_guard(GuardBuilder.HASATTR))


def _is_of_a_mode(source: Any) -> bool:
    """Tell whether a source leads to a mode in place, which Dynamo compares by its identity."""
    while isinstance(source, ChainedSource):
        source = source.base
    return isinstance(source, TorchFunctionModeStackSource)


def _is_there(value: Any, name: str) -> bool:
    """Tell whether a read finds an attribute, without running a user's `__getattr__`."""
    return inspect.getattr_static(value, name, _nothing) is not _nothing
