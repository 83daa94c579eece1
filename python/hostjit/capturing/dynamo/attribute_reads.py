# SPDX-License-Identifier: Apache-2.0
"""Reads of attributes as Dynamo follows them, done otherwise for some time.

Up to torch 2.13 a variable of Dynamo's has one method for them. Later ones look into a table of the
attributes that C code defines first, and ask a method of another name for the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from torch._dynamo.variables.base import VariableTracker

from hostjit.replacements import replaced_attribute

__all__ = ["READ", "Read", "replaced_reads"]

# Given the variable, Dynamo's translator and the name of the attribute.
Read = Callable[[Any, Any, str], Any]

# The method, and the one that looks into the table.
READ = "tp_getattro_impl" if hasattr(VariableTracker, "tp_getattro_impl") else "var_getattr"
_LOOK_UP = "lookup_tp_getset_member"


class replaced_reads:  # noqa: N801  # used as a function is, like contextlib.suppress
    """A context in which Dynamo reads attributes of variables of a kind otherwise.

    Args:
        kind: the class of the variables.
        make: returns the new way, given Dynamo's. It may be asked twice for the same attribute.
    """

    def __init__(self, kind: Any, make: Callable[[Read], Read]) -> None:
        self._patches = [replaced_attribute(kind, READ, make(getattr(kind, READ)))]
        if hasattr(kind, _LOOK_UP):
            look_up = _replaced_look_up(getattr(kind, _LOOK_UP), make)
            self._patches.append(replaced_attribute(kind, _LOOK_UP, look_up))

    def __enter__(self) -> None:
        for patch in self._patches:
            patch.__enter__()

    def __exit__(self, *_: object) -> None:
        for patch in reversed(self._patches):
            patch.__exit__(None, None, None)


def _replaced_look_up(look_up: Callable[[Any, str], Any], make: Callable[[Read], Read]) -> Any:
    def replaced(self: Any, name: str) -> Any:
        found = look_up(self, name)
        if found is None:
            return None
        read = make(lambda variable, tx, _: found.getter(variable, tx))
        return dataclasses.replace(found, getter=lambda variable, tx: read(variable, tx, name))

    return replaced
