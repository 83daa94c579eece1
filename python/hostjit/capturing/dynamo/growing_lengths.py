# SPDX-License-Identifier: Apache-2.0
"""`len` of containers from outside of a call that grow: Dynamo stops there, and goes on behind.

It compares how long a list, deque, dict or set is. `if len(self.memory) < 128` would be a program
for each length; behind the line, the length is an open number.
"""

from __future__ import annotations

import collections
import contextlib
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from torch._dynamo.exc import unimplemented
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.lazy import LazyVariableTracker

from hostjit.replacements import replaced_attribute

__all__ = ["LENGTH", "Varies", "is_one_graph", "stopping_at_lengths", "varies_in_frame"]

LENGTH = "length of a container that grows"
"""How a stop at one is called."""
# varies(translator, name, length): whether a container, by Dynamo's name, had another length when
# the code was traced before.
Varies = Callable[[Any, str, int], bool]

_CONTAINERS = (list, dict, set, collections.deque, collections.OrderedDict)


_of_frames: weakref.WeakKeyDictionary[types.CodeType, dict[str, int]] = weakref.WeakKeyDictionary()


def is_one_graph(translator: Any) -> bool:
    """Tell whether it is an error to stop, as with `fullgraph=True`."""
    return bool(translator.one_graph or translator.error_on_graph_break)


def varies_in_frame(translator: Any, name: str, length: int) -> bool:
    """Tell it of containers that the code of a frame knows by these names."""
    lengths = _of_frames.setdefault(translator.output.root_tx.f_code, {})
    return lengths.setdefault(name, length) != length


@contextlib.contextmanager
def stopping_at_lengths(varies: Varies) -> Iterator[None]:
    """Have Dynamo stop where code asks how long a container is that varies, in this thread."""
    owner = threading.get_ident()
    call_function: Any = BuiltinVariable.call_function

    def call(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        is_asked = threading.get_ident() == owner and self.fn is len and len(args) == 1
        found: Any = args[0] if is_asked else None
        if type(found) is LazyVariableTracker and not found.is_realized():
            container, name = found.peek_value(), str(found.source and found.source.name)
            is_known = id(container) in tx.output.side_effects.id_to_variable
            if type(container) in _CONTAINERS and not is_known:
                if varies(tx, name, len(container)) and not is_one_graph(tx):
                    unimplemented(
                        gb_type=LENGTH,
                        context=name,
                        explanation="The container had another length before.",
                        hints=[],
                    )
        return call_function(self, tx, args, kwargs)

    with replaced_attribute(BuiltinVariable, "call_function", call):
        yield
