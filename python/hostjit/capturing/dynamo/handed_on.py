# SPDX-License-Identifier: Apache-2.0
"""Containers and constants that code has read and not looked at, at a break: handed on as they are.

`random.sample(self.memory, 32)` is a break, at which Dynamo would look at all that it hands on, and
so compare how long the memory is, and what is in it, at every call.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.output_graph import OutputGraph
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.lazy import LazyConstantVariable, LazyVariableTracker
from torch._dynamo.variables.lists import BaseListVariable, TupleVariable

from hostjit.capturing.dynamo.waiting_methods import waiting_method
from hostjit.replacements import replaced_attribute

__all__ = ["handing_on_unread"]

_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque)


class HandedOnVariable(VariableTracker):
    """Stands for what the code of a break reads from its source."""


@contextlib.contextmanager
def handing_on_unread() -> Iterator[None]:
    """Have Dynamo not look at these, in this thread."""
    owner = threading.get_ident()
    compile_subgraph = OutputGraph.compile_subgraph

    def compile_up_to_break(self: Any, translator: Any, reason: Any, **options: Any) -> Any:
        if threading.get_ident() == owner and reason.graph_break:
            _hand_on(translator, options.get("stack_pops", 0))
        return compile_subgraph(self, translator, reason, **options)

    with replaced_attribute(OutputGraph, "compile_subgraph", compile_up_to_break):
        yield


def _hand_on(translator: Any, popped: int) -> None:
    """Replace what no code looked into among the values of a frame and of those above it.

    `popped`: so many values of the frame does the instruction take at which Dynamo stops.
    """
    effects = translator.output.side_effects
    while translator is not None:
        stack = translator.stack
        stack[:] = [_handed_on(value, effects) for value in stack]
        left = len(stack) - popped
        stack[:left] = map(waiting_method, stack[:left])
        popped = 0
        for name, value in translator.symbolic_locals.items():
            translator.symbolic_locals[name] = _handed_on(value, effects)
        translator = translator.parent


def _handed_on(value: VariableTracker, effects: SideEffects) -> VariableTracker:
    kind = type(value)  # `isinstance` would look at it
    lazy: Any = value
    if kind is LazyConstantVariable and not lazy.is_realized():
        return HandedOnVariable(source=lazy.source)
    if kind is LazyVariableTracker and not lazy.is_realized():
        # What is known under another name may have been changed.
        known = id(lazy.peek_value()) in effects.id_to_variable
        is_container = issubclass(lazy.peek_type(), _CONTAINERS) and not known
        return HandedOnVariable(source=lazy.source) if is_container else value
    if kind is LazyVariableTracker:
        value = lazy.unwrap()
    if isinstance(value, BaseListVariable):  # code looked at it, and not at all that is in it
        if value.source is not None and not effects.is_modified(value):
            return HandedOnVariable(source=value.source)
        if isinstance(value, TupleVariable):  # such as the arguments of a call
            value.items = [_handed_on(item, effects) for item in value.items]
    return value
