# SPDX-License-Identifier: Apache-2.0
"""Which instruction a frame is at."""

from __future__ import annotations

import dis
import types
from collections.abc import Sequence

from torch._dynamo.bytecode_transformation import Instruction

__all__ = ["place_of_call", "place_of_result"]


def place_of_call(
    instructions: Sequence[Instruction], code: types.CodeType, offset: int
) -> int | None:
    """Return the index of a CALL; None where something else is.

    Args:
        instructions: of the code, as `cleaned_instructions` returns them.
        code: of a function.
        offset: of the call, in bytes, as in `f_lasti` of a frame.
    """
    return place_of_result(instructions, code, offset, is_any_call=True)


def place_of_result(
    instructions: Sequence[Instruction],
    code: types.CodeType,
    offset: int,
    *,
    is_any_call: bool = False,
    is_attribute: bool = False,
) -> int | None:
    """Return the index of what gives a number; None where something else is.

    That is an operator, a call of `item`, or the read of an attribute.

    Args:
        instructions: of the code, as `cleaned_instructions` returns them.
        code: of a function.
        offset: where it begins, in bytes, as in `f_lasti` of a frame: a call may begin ahead of
            CALL.
        is_any_call: a call of whatever may be there.
        is_attribute: the read of an attribute is to be there, and nothing else.
    """
    # Dynamo's instructions have offsets of their own, but as many calls and operators.
    original = [*dis.get_instructions(code)]
    # Where Python code is called, it is behind what CPython keeps in the code of the call.
    index = max(i for i, each in enumerate(original) if each.offset <= offset)
    index += original[index].opname == "PRECALL"
    if original[index].opname not in (("LOAD_ATTR",) if is_attribute else ("BINARY_OP", "CALL")):
        return None
    name = original[index].opname
    count = sum(each.opname == name for each in original[:index])
    place = [i for i, each in enumerate(instructions) if each.opname == name][count]
    if name == "LOAD_ATTR":
        return place if instructions[place].argval == original[index].argval else None
    if name == "BINARY_OP" or is_any_call or _calls_item(original, index):
        return place
    return None


def _calls_item(instructions: Sequence[dis.Instruction], index: int) -> bool:
    index -= 1 + (instructions[index - 1].opname in ("PRECALL", "PUSH_NULL"))
    method = instructions[index]
    return method.opname in ("LOAD_METHOD", "LOAD_ATTR") and method.argval in ("item", "numpy")
