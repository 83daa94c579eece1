# SPDX-License-Identifier: Apache-2.0
"""Attributes that code finds by `vars(f)`, `f.__dict__` or `f.__annotations__`, and of partials.

Dynamo leaves no guard on which there are, none on those that a `__getattr__` makes since the dict
has none, and takes a `functools.partial` for one without any.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.source import AttrSource
from torch._dynamo.variables import UserDefinedObjectVariable, dicts, functions
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.constant import ConstantVariable

from hostjit.capturing.dynamo.attribute_reads import Read, replaced_reads
from hostjit.capturing.dynamo.kept_results import is_installed_file
from hostjit.capturing.dynamo.source_values import value_at
from hostjit.capturing.instances import instance_dict
from hostjit.replacements import replaced_attribute

__all__ = ["guarding_dicts_of_objects"]


@contextlib.contextmanager
def guarding_dicts_of_objects() -> Iterator[None]:
    """Have Dynamo guard them, in this thread."""
    owner = threading.get_ident()
    partial: Any = functions.FunctoolsPartialVariable
    ask = partial.call_obj_hasattr

    def reading_functions(original: Read) -> Read:
        def read(self: Any, tx: Any, name: str) -> Any:
            if name == "__annotations__" and self.source and threading.get_ident() == owner:
                if not is_installed_file(tx.f_code.co_filename):
                    source = AttrSource(self.source, name)
                    return VariableTracker.build(tx, self.fn.__annotations__, source)
            return original(self, tx, name)

        return read

    def reading(original: Read) -> Read:
        def read(self: Any, tx: Any, name: str) -> Any:
            found = _own(self, tx, name) if threading.get_ident() == owner else None
            return original(self, tx, name) if found is None else found

        return read

    def call_obj_hasattr(self: Any, tx: Any, name: str) -> Any:
        if threading.get_ident() == owner and _own(self, tx, name) is not None:
            return ConstantVariable.create(True)
        return ask(self, tx, name)

    def reading_objects(original: Read) -> Read:
        def read(self: Any, tx: Any, name: str) -> Any:
            if self.source and threading.get_ident() == owner and _is_made(self.value, name):
                hidden = functools.partial(GuardBuilder.NOT_PRESENT_IN_GENERIC_DICT, attr=name)
                install_guard(self.source.make_guard(hidden))
            return original(self, tx, name)

        return read

    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced_reads(UserDefinedObjectVariable, reading_objects))
        stack.enter_context(replaced_reads(functions.UserFunctionVariable, reading_functions))
        stack.enter_context(replaced_reads(partial, reading))
        stack.enter_context(replaced_attribute(partial, "call_obj_hasattr", call_obj_hasattr))
        if hasattr(dicts, "DunderDictVariable"):
            for name in ("install_dict_keys_match_guard", "install_dict_contains_guard"):
                guard = _guarding(owner, name)
                stack.enter_context(replaced_attribute(dicts.DunderDictVariable, name, guard))
        yield


def _own(partial: Any, tx: Any, name: str) -> Any:
    """Return what a partial from outside has in its dict; None where there is no such attribute."""
    if partial.source is None or hasattr(functools.partial, name):
        return None
    state = vars(value_at(tx, partial.source))
    if name not in state:
        return None
    return VariableTracker.build(tx, state[name], AttrSource(partial.source, name))


def _is_made(value: Any, name: str) -> bool:
    """Tell whether a user's `__getattr__` gives an attribute, which one in the dict would hide."""
    kind = type(value)
    if name == "__dict__" or not hasattr(kind, "__getattr__"):
        return False
    if kind.__getattr__ is torch.nn.Module.__getattr__ or hasattr(kind, name):
        return False
    state = instance_dict(value)
    return state is not None and name not in state


def _guarding(owner: int, name: str) -> Callable[..., None]:
    """Return a method as that of other dicts; the guards are about what the call found."""
    original = getattr(dicts.ConstDictVariable, name)

    def guard(self: Any, *args: Any) -> None:
        if threading.get_ident() != owner or self.source is None:
            return
        if name == "install_dict_keys_match_guard":
            install_guard(self.source.make_guard(GuardBuilder.DICT_KEYS_MATCH))
        else:
            original(self, *args)

    return guard
