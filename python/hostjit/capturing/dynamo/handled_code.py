# SPDX-License-Identifier: Apache-2.0
"""Which instructions of a code raise to a handler in it."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["handled_names", "is_handled", "is_handler", "only_cleans_up"]

_GOES_ON = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})
# Of handlers that choose what they handle, raise something else, or end the error.
_ENDS = frozenset(
    {
        *("CHECK_EXC_MATCH", "CHECK_EG_MATCH", "RAISE_VARARGS", "POP_EXCEPT"),
        *("RETURN_VALUE", "RETURN_CONST"),
    }
)


def is_handled(code: types.CodeType, offset: int) -> bool:
    """Tell whether what the instruction at `offset` raises goes to an `except` or a `finally`.

    That of a `with` block counts in code alone that has the name `suppress`.
    """
    return any(begin <= offset < end for begin, end in _handled(code))


@functools.cache
def _handled(code: types.CodeType) -> tuple[tuple[int, int], ...]:
    instructions = [*dis.get_instructions(code)]
    at = {instruction.offset: index for index, instruction in enumerate(instructions)}
    entries: list[Any] = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    suppresses = "suppress" in code.co_names

    def handles(entry: Any, inside: frozenset[int] = frozenset()) -> bool:
        index = at.get(entry.target, len(instructions))
        if is_handler(instructions, index, suppresses):
            return True
        # The end of a `with` block, or the clean-up of a handler or a generator, raises it again.
        outer = [other for other in entries if other.start <= entry.target < other.end]
        inside |= {entry.target}
        return any(handles(other, inside) for other in outer if other.target not in inside)

    return tuple((entry.start, entry.end) for entry in entries if handles(entry))


def is_handler(instructions: Sequence[Any], index: int, suppresses: bool) -> bool:
    """Tell whether an `except` or a `finally` begins at an instruction, or a `with` that counts."""
    names = [instruction.opname for instruction in instructions[index : index + 2]]
    return names[:1] == ["PUSH_EXC_INFO"] and (names[1:] != ["WITH_EXCEPT_START"] or suppresses)


def handled_names(
    instructions: Sequence[Any], index_of: Mapping[Any, int], index: int
) -> tuple[str, ...] | None:
    """Return the names of all classes that an `except` handles.

    None where it handles every error, or has other expressions than global names for the classes.

    Args:
        instructions: Dynamo's, with the instructions that they jump to.
        index_of: where each is.
        index: the first one of the handler.
    """
    found: list[str] = []
    index += 1
    while instructions[index].opname != "RERAISE":
        first = index
        while instructions[index].opname == "LOAD_GLOBAL":
            index += 1
        names = [instruction.argval for instruction in instructions[first:index]]
        if instructions[index].opname == "BUILD_TUPLE" and instructions[index].argval == len(names):
            index += 1
        elif len(names) != 1:
            return None
        match, jump = instructions[index : index + 2]
        if match.opname != "CHECK_EXC_MATCH" or not jump.opname.endswith("IF_FALSE"):
            return None
        found += names
        index = index_of[jump.target]
    return tuple(found)


def only_cleans_up(instructions: Sequence[Any], index_of: Mapping[Any, int], index: int) -> bool:
    """Tell whether what begins there raises the error again in any case.

    Args:
        instructions: Dynamo's, with the instructions that they jump to.
        index_of: where each is.
        index: the first one of the handler.
    """
    seen: set[int] = set()
    reached = [index]
    while reached:
        index = reached.pop()
        if index in seen or instructions[index].opname == "RERAISE":
            continue
        seen.add(index)
        instruction = instructions[index]
        if instruction.opname in _ENDS:
            return False
        if instruction.target is not None:
            reached.append(index_of[instruction.target])
        if instruction.opname not in _GOES_ON:
            reached.append(index + 1)
    return True
