# SPDX-License-Identifier: Apache-2.0
"""Numbers outside of the arguments that are always the same, such as the counters of an optimizer.

`state[p]["step"]` is one number for each parameter, and all have the same value. One open number
stands for them, as long as they have.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.variables import builder
from torch._dynamo.variables.tensor import SymNodeVariable

from hostjit.replacements import replaced_attribute

__all__ = ["equal_numbers_are_one"]


@contextlib.contextmanager
def equal_numbers_are_one(groups: Mapping[str, Hashable]) -> Iterator[dict[str, str]]:
    """Have Dynamo trace one symbol for the numbers of a group, in this thread.

    Yields the names of all but the first that it meets, with that one's.

    Args:
        groups: by Dynamo's names of numbers that are left open, and have the same value.
    """
    same: dict[str, str] = {}
    if not groups:
        yield same
        return
    owner = threading.get_ident()
    original: Any = builder.VariableBuilder.__call__
    first: dict[Hashable, tuple[Any, Any]] = {}

    def build(self: Any, value: Any) -> Any:
        group = groups.get(self.source.name)
        if group is None or threading.get_ident() != owner:
            return original(self, value)
        output = self.tx.output
        known, variable = first.get(group, (None, None))
        if known is not output:  # it has begun anew, or this is the first
            variable = original(self, value)
            if isinstance(variable, SymNodeVariable):
                first[group] = output, variable
                same.pop(self.source.name, None)
            return variable
        if variable.source.name != self.source.name:
            same[self.source.name] = variable.source.name
            install_guard(self.source.make_guard(GuardBuilder.TYPE_MATCH))
        return variable

    with replaced_attribute(builder.VariableBuilder, "__call__", build):
        yield same
