# SPDX-License-Identifier: Apache-2.0
"""Counters: attributes and globals that code does nothing with but add constant ints."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Sequence

__all__ = ["only_counts"]

_ADDED = frozenset({"+", "+=", "-", "-="})
_NOTHING = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "RESUME", "MAKE_CELL", "COPY_FREE_VARS"})
_OF_ATTRIBUTES = ("_ATTR", "_METHOD", "IMPORT_FROM", "IMPORT_NAME")
_OF_VARIABLES = ("_FAST", "_FAST_CHECK", "_DEREF", "_CLOSURE", "_CONST")
_OF_GLOBALS = {"LOAD_GLOBAL": "STORE_GLOBAL", "LOAD_NAME": "STORE_NAME"}

Instruction = dis.Instruction


@functools.lru_cache(maxsize=4096)
def only_counts(code: types.CodeType, name: str, *, is_global: bool = False) -> bool:
    """Tell whether all that code does with attributes of a name is `x.name += 1`.

    Any constant int will do, `-=`, and `x.name = x.name + 1`. Code without the name does.

    Texts of the code are not looked at, which may have the name, too.

    Args:
        code: of a function.
        name: of the attribute.
        is_global: it is that of a module, which code of the module has as a global variable.
    """
    if name not in code.co_names:
        return True
    instructions = [x for x in dis.get_instructions(code) if x.opname not in _NOTHING]
    counted = {
        place for index in range(len(instructions)) for place in _counted(instructions, index, name)
    }
    named = {
        index
        for index, x in enumerate(instructions)
        if x.argval == name and (is_global or x.opname.endswith(_OF_ATTRIBUTES))
        if not x.opname.endswith(_OF_VARIABLES)
    }
    return named <= counted


def _counted(instructions: Sequence[Instruction], index: int, name: str) -> tuple[int, ...]:
    """Where a counter is read and written by the addition that reads it at `index`; else ()."""
    read, *behind = instructions[index : index + 5]
    if read.argval != name or len(behind) < 3:
        return ()
    amount, add, last = behind[:3]
    if (amount.opname, type(amount.argval)) != ("LOAD_CONST", int):
        return ()
    if add.opname != "BINARY_OP" or add.argrepr not in _ADDED:
        return ()
    if read.opname in _OF_GLOBALS:
        stored = index + 3
        if (last.opname, last.argval) != (_OF_GLOBALS[read.opname], name):
            return ()
    else:
        stored = index + 4
        if read.opname != "LOAD_ATTR" or index == 0 or len(behind) < 4:
            return ()
        if (behind[3].opname, behind[3].argval) != ("STORE_ATTR", name):
            return ()
        owner = instructions[index - 1]
        is_in_place = (owner.opname, owner.arg) == ("COPY", 1) and last.opname == "SWAP"
        is_same = owner.opname == last.opname == "LOAD_FAST" and owner.arg == last.arg
        if not (is_in_place or is_same):
            return ()
    if any(x.is_jump_target for x in instructions[index + 1 : stored + 1]):
        return ()
    return index, stored
