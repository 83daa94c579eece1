# SPDX-License-Identifier: Apache-2.0
"""Keys of dicts and elements of sets whose classes say what is equal.

Dynamo follows a `__hash__` of the user's, and takes no two objects for equal then. Those of frozen
dataclasses it compares by their fields, also where the user wrote otherwise.
"""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torch._dynamo.exc import unimplemented
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.variables import user_defined
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import SourcelessBuilder
from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

from hostjit.replacements import replaced_attribute

__all__ = ["comparing_keys"]

_COMPARE, _HASH = "is_python_equal", "hash_impl"


@contextlib.contextmanager
def comparing_keys() -> Iterator[None]:
    """Have Dynamo compare such objects by their `__hash__` and `__eq__`, in this thread."""
    owner = threading.get_ident()
    frozen: Any = user_defined.FrozenDataClassVariable

    def comparing(original: Callable[..., Any]) -> Callable[..., Any]:
        def is_equal(self: Any, other: Any) -> Any:
            if threading.get_ident() != owner or not isinstance(other, VariableTracker):
                return original(self, other)
            both = (self, other.realize())
            if self is both[1] or not any(map(_says_what_is_equal, both)):
                equal: Any = object.__eq__
                is_itself = isinstance(self, frozen) and type(self.value).__eq__ is equal
                return both[1] is self if is_itself else original(self, other)
            return _ask(*both)

        return is_equal

    def hash_frozen(self: Any, tx: Any) -> Any:
        if threading.get_ident() != owner or _is_generated(type(self.value).__hash__):
            return frozen_hash(self, tx)
        return UserDefinedObjectVariable.hash_impl(self, tx)

    with contextlib.ExitStack() as stack:
        for kind in (UserDefinedObjectVariable, frozen):
            if _COMPARE in vars(kind):
                compare = comparing(getattr(kind, _COMPARE))
                stack.enter_context(replaced_attribute(kind, _COMPARE, compare))
        if _HASH in vars(frozen):
            frozen_hash = getattr(frozen, _HASH)
            stack.enter_context(replaced_attribute(frozen, _HASH, hash_frozen))
        yield


def _is_generated(method: Any) -> bool:
    """Tell whether `dataclass` wrote a method."""
    return getattr(getattr(method, "__code__", None), "co_filename", "") == "<string>"


def _says_what_is_equal(variable: Any) -> bool:
    """Tell whether users wrote how objects of a class compare, themselves or by `dataclass`."""
    if not isinstance(variable, UserDefinedObjectVariable):
        return False
    return hasattr(type(variable.value).__eq__, "__code__")


def _ask(first: Any, second: Any) -> bool:
    tx = InstructionTranslator.current_tx()
    answer = SourcelessBuilder.create(tx, operator.eq).call_function(tx, [first, second], {})
    if answer.is_python_constant():
        return bool(answer.as_python_constant())
    if hasattr(answer, "evaluate_expr"):
        return bool(answer.evaluate_expr())
    unimplemented(
        gb_type="comparison of keys",
        context=f"{first} {second}",
        explanation="Whether keys are equal depends on the data of tensors.",
        hints=[],
    )
