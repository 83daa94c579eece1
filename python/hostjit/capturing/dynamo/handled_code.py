# SPDX-License-Identifier: Apache-2.0
"""Which instructions of a code raise to a handler in it."""

from __future__ import annotations

import dis
import functools
import types
from typing import Any

__all__ = ["is_handled"]


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
        names = [instruction.opname for instruction in instructions[index : index + 2]]
        if names[:1] == ["PUSH_EXC_INFO"] and (names[1:] != ["WITH_EXCEPT_START"] or suppresses):
            return True
        # The end of a `with` block, or the clean-up of a handler or a generator, raises it again.
        outer = [other for other in entries if other.start <= entry.target < other.end]
        inside |= {entry.target}
        return any(handles(other, inside) for other in outer if other.target not in inside)

    return tuple((entry.start, entry.end) for entry in entries if handles(entry))
