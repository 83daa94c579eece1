# SPDX-License-Identifier: Apache-2.0
"""`len` of containers from outside of a call that grow: Dynamo stops there, and goes on behind.

It compares how long a list, deque, dict or set is. `if len(self.memory) < 128` would be a program
for each length; behind the line, the length is an open number.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torch._dynamo.exc import unimplemented
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.lazy import LazyVariableTracker

from hostjit.replacements import replaced_attribute

__all__ = ["stopping_at_lengths"]

_CONTAINERS = (list, dict, set, collections.deque, collections.OrderedDict)


@contextlib.contextmanager
def stopping_at_lengths(varies: Callable[[str, int], bool]) -> Iterator[None]:
    """Have Dynamo stop where code asks how long such a container is, in this thread.

    `varies` tells of a container, by Dynamo's name, and of its length whether there were others.
    """
    owner = threading.get_ident()
    call_function: Any = BuiltinVariable.call_function

    def call(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        is_asked = threading.get_ident() == owner and self.fn is len and len(args) == 1
        found: Any = args[0] if is_asked else None
        if type(found) is LazyVariableTracker and not found.is_realized():
            container, name = found.peek_value(), str(found.source and found.source.name)
            is_known = id(container) in tx.output.side_effects.id_to_variable
            if type(container) in _CONTAINERS and not is_known:
                if varies(name, len(container)):
                    unimplemented(
                        gb_type="length of a container that grows",
                        context=name,
                        explanation="The container had another length before.",
                        hints=[],
                    )
        return call_function(self, tx, args, kwargs)

    with replaced_attribute(BuiltinVariable, "call_function", call):
        yield
