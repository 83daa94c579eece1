# SPDX-License-Identifier: Apache-2.0
"""What Dynamo does not know of classes.

Where the code has set an attribute of a class, Dynamo finds the old value in classes derived from
it, which is corrected, and in objects: it stops there. And it makes objects without asking a
metaclass that has a `__call__` of its own, such as one that returns what it made before.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.exc import unimplemented
from torch._dynamo.variables import UserDefinedClassVariable, UserDefinedObjectVariable

from hostjit.capturing.dynamo.attribute_reads import Read, replaced_reads
from hostjit.replacements import replaced_attribute

__all__ = ["has_own", "stopping_at_class_changes"]


# Of Dynamo's side effects: how many objects were changed, and which of them are classes.
_KNOWN_HOLDERS = "_hostjit_classes_set"


@contextlib.contextmanager
def stopping_at_class_changes() -> Iterator[None]:
    """Have Dynamo find what the code has set, or stop, in this thread."""
    owner = threading.get_ident()
    of_class: Any = UserDefinedClassVariable
    of_object: Any = UserDefinedObjectVariable
    call = of_class.call_function

    def reading(original: Read) -> Read:
        def read(self: Any, tx: Any, name: str) -> Any:
            holder = _inherited(tx, self.value, name) if threading.get_ident() == owner else None
            return original(self if holder is None else holder, tx, name)

        return read

    def reading_objects(original: Read) -> Read:
        def read(self: Any, tx: Any, name: str) -> Any:
            kind = type(self.value)
            if threading.get_ident() == owner and _holder(tx, kind, name) is not None:
                _stop(f"{kind.__qualname__}.{name}", "The code has set it in a class.")
            return original(self, tx, name)

        return read

    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        kind = type(self.value)
        if threading.get_ident() == owner and has_own(kind, "__call__"):
            _stop(kind.__qualname__, "A metaclass says what a call of its classes does.")
        return call(self, tx, args, kwargs)

    with (
        replaced_reads(of_class, reading),
        replaced_attribute(of_class, "call_function", call_function),
        replaced_reads(of_object, reading_objects),
    ):
        yield


def _holder(tx: Any, kind: type, name: str) -> Any:
    """Return the class where a read finds what the code has set; None for what was there before."""
    effects = tx.output.side_effects
    holders = [
        holder for holder in _classes_set(effects) if name in effects.store_attr_mutations[holder]
    ]
    if not holders:
        return None
    for base in kind.__mro__:
        for holder in holders:
            if holder.value is base:
                return holder
        if name in vars(base):
            return None
    return None


def _classes_set(effects: Any) -> list[Any]:
    """Return Dynamo's variables of the classes in which the code has set something.

    There are as many changes as the code has made objects, and each read of an attribute asks.
    """
    changes = effects.store_attr_mutations
    count, found = getattr(effects, _KNOWN_HOLDERS, (0, []))
    if count != len(changes):
        found = [holder for holder in changes if isinstance(getattr(holder, "value", None), type)]
        setattr(effects, _KNOWN_HOLDERS, (len(changes), found))
    return list(found)


def _inherited(tx: Any, kind: type, name: str) -> Any:
    holder = _holder(tx, kind, name)
    return None if holder is None or holder.value is kind else holder


def has_own(metaclass: type, method: str) -> bool:
    """Tell whether users wrote a metaclass with a method; Dynamo knows those of libraries."""
    for base in metaclass.__mro__:
        if method in vars(base):
            return base is not type and base.__module__.partition(".")[0] not in _KNOWN
    return False


_KNOWN = frozenset({"torch", "abc", "enum", "typing"})


def _stop(context: str, explanation: str) -> None:
    unimplemented(
        gb_type="attribute or call of a class",
        context=context,
        explanation=explanation,
        hints=[],
    )
