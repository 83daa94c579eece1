# SPDX-License-Identifier: Apache-2.0
"""What callables of C code that code can reach may do when C code calls them.

The interpreter tells of a C function that Python code calls, not of one that `map`, `partial` or
`operator.call` call. So what a function may do counts as soon as code holds it as a value.
"""

from __future__ import annotations

import dis
import functools
import itertools
import operator
import sys
import types
from typing import Any

from hostjit.capturing.instances import is_a

__all__ = ["C_CALLABLES", "names_held", "reads_attributes"]

C_CALLABLES: tuple[type, ...] = (
    *(types.BuiltinFunctionType, types.MethodWrapperType, types.WrapperDescriptorType),
    *(types.MethodDescriptorType, types.ClassMethodDescriptorType),
)
# These look at attributes whose names the code need not have, or at all of them.
_READERS = frozenset(
    {
        *("getattr", "hasattr", "setattr", "delattr", "vars", "dir", "globals", "locals", "eval"),
        *("exec", "__getattribute__", "__getattr__", "__setattr__", "__delattr__", "__dir__"),
        *("__reduce__", "__reduce_ex__", "__getstate__", "format", "format_map"),
        *("get_referents", "get_referrers"),
    }
)


def reads_attributes(value: Any) -> bool:
    """Tell whether a callable of C code may read attributes that no name in the code tells."""
    if is_a(value, type):
        return value is operator.attrgetter or value is operator.methodcaller
    return is_a(value, C_CALLABLES) and getattr(value, "__name__", "") in _READERS


@functools.cache
def names_held(code: types.CodeType) -> frozenset[str]:
    """Return the names of what code loads for another use than calling it there.

    Those of attributes follow a dot.
    """
    held = set()
    is_callee = False
    found = [*dis.get_instructions(code)]
    for this, following in itertools.pairwise(found):
        is_attribute, is_flagged = this.opname == "LOAD_ATTR", bool((this.arg or 0) & 1)
        begins_call = this.opname == "PUSH_NULL" or (this.opname == "LOAD_GLOBAL" and is_flagged)
        # Up to CPython 3.12, what is called is the end of a chain of attributes behind a null.
        is_callee = begins_call or (is_callee and is_attribute)
        is_called = following.opname == "PUSH_NULL" or (
            is_flagged and sys.version_info >= (3, 12) if is_attribute else begins_call
        )
        if is_callee and following.opname != "LOAD_ATTR":
            is_called = True
        if is_attribute and not is_called:
            held.add(f".{this.argval}")
        elif this.opname in ("LOAD_GLOBAL", "LOAD_NAME") and not is_called:
            held.add(this.argval)
    return frozenset(held)
