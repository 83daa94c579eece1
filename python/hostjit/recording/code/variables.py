# SPDX-License-Identifier: Apache-2.0
"""Which variables of functions around it code knows: a part of a function has them all."""

from __future__ import annotations

import dis
import functools
import types

__all__ = ["known_variables"]


@functools.lru_cache(maxsize=4096)
def known_variables(code: types.CodeType) -> frozenset[str]:
    """Return the free variables that code reads or writes, or hands to code inside."""
    free = frozenset(code.co_freevars)
    found = {each.argval for each in dis.get_instructions(code) if isinstance(each.argval, str)}
    return free & found
