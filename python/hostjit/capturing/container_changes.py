# SPDX-License-Identifier: Apache-2.0
"""Changes of containers that Dynamo follows wrongly: Python makes them itself, between two parts.

Dynamo does not write back what `OrderedDict.move_to_end` did to an object of the user's, and what
changed a set of a class of the user's; it does not know the limit of a deque, or forgets it for
some changes.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from torch._dynamo.exc import unimplemented
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.variables import SetVariable

__all__ = ["stopping_at_container_changes"]

_CHANGES = frozenset(
    {
        *("append", "appendleft", "clear", "extend", "extendleft", "insert", "pop", "popleft"),
        *("remove", "reverse", "rotate", "__setitem__", "__delitem__", "__iadd__"),
    }
)
# Those that heed the limit in Dynamo too, for a deque that the call makes itself.
_RIGHT = frozenset({"append", "appendleft", "clear", "pop", "popleft", "remove", "reverse"})


@contextlib.contextmanager
def stopping_at_container_changes() -> Iterator[None]:
    """Have Dynamo stop at such a change, in this thread."""
    owner = threading.get_ident()

    def checked(kind: Any, is_wrong: Callable[[Any, Any, str], bool]) -> Any:
        original = kind.call_method

        def call(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
            if threading.get_ident() == owner and is_wrong(tx, self, name):
                _stop(f"{self.python_type_name()}.{name}")
            return original(self, tx, name, args, kwargs)

        return mock.patch.object(kind, "call_method", call)

    note_change = SideEffects.mutation

    def change(self: Any, variable: Any) -> None:
        if threading.get_ident() == owner and _is_wrong_for_set(self, variable):
            _stop("changes of a set of a user's class")
        note_change(self, variable)

    dicts = importlib.import_module("torch._dynamo.variables.dicts")
    lists = importlib.import_module("torch._dynamo.variables.lists")
    user_defined = importlib.import_module("torch._dynamo.variables.user_defined")
    with contextlib.ExitStack() as stack:
        stack.enter_context(checked(lists.DequeVariable, _is_wrong_for_deque))
        # Torch 2.11 has no class of its own for them.
        ordered = getattr(user_defined, "OrderedDictVariable", dicts.ConstDictVariable)
        stack.enter_context(checked(ordered, _is_wrong_for_ordered_dict))
        stack.enter_context(mock.patch.object(SideEffects, "mutation", change))
        yield


def _stop(what: str) -> None:
    unimplemented(
        gb_type="change of a container",
        context=what,
        explanation=f"Dynamo does not follow {what} rightly.",
        hints=[],
    )


def _is_wrong_for_deque(tx: Any, deque: Any, name: str) -> bool:
    if name not in _CHANGES:
        return False
    if deque.source is None:
        return deque.maxlen.as_python_constant() is not None and name not in _RIGHT
    # Dynamo does not know the limit of one that it was given.
    resolve = getattr(tx.output, "resolve_source_value", None)
    return resolve is None or resolve(deque.source).maxlen is not None


def _is_wrong_for_ordered_dict(tx: Any, ordered: Any, name: str) -> bool:
    return name == "move_to_end" and ordered.source is not None


def _is_wrong_for_set(effects: Any, variable: Any) -> bool:
    if not isinstance(variable, SetVariable) or variable.source is None:
        return False
    # Only changes of what is tracked are written back, and here that is the object around the set.
    return all(variable is not tracked for tracked in effects.id_to_variable.values())
