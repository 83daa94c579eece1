# SPDX-License-Identifier: Apache-2.0
"""The code of a function in two: up to an instruction, and from there on."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any

from torch._dynamo.bytecode_transformation import Instruction, create_instruction

from hostjit.bytecode.flow import CodeFlow
from hostjit.bytecode.handlers import with_handlers
from hostjit.bytecode.making import JUMP_IF_NOT, begin_of, transformed
from hostjit.bytecode.making import kind_of_variable as _kind

__all__ = ["Returned", "Unset", "first_code", "rest_code"]

# The parameter of what follows; each that follows such a one has a longer name.
_FOUND = "hostjit_found"


class Unset:
    """What a variable has that was given no value."""


class Returned:
    """What ends the tuple of a first part that returns what the whole function does."""


def first_code(code: types.CodeType, index: int, found: Mapping[str, bool]) -> types.CodeType:
    """Return the code ahead of an instruction, which returns variables in a tuple.

    Where the whole returns, it returns that and `Returned`.

    Args:
        code: of a function that can be split there.
        index: of the instruction.
        found: the variables, and whether each has a value there.
    """

    def transform(instructions: list[Instruction], options: dict[str, Any]) -> None:
        parts = CodeFlow(instructions, code).parts(index)
        assert parts is not None
        end = [
            *(create_instruction(f"LOAD_{_kind(name, code)}", argval=name) for name in found),
            create_instruction("BUILD_TUPLE", arg=len(found)),
            create_instruction("RETURN_VALUE"),
        ]
        end[0].copy_positions(instructions[index])
        unset = [name for name, is_set in found.items() if not is_set]
        begin = begin_of(instructions)
        kept: list[Instruction] = []
        for i, instruction in enumerate(instructions):
            if i == begin:
                kept += [each for name in unset for each in _set_to_nothing(name, code)]
            if i == index:
                kept += end
            elif i in parts[0] and instruction.opname.startswith("RETURN"):
                kept += _returned(instruction, instructions)
            elif i in parts[0]:
                kept.append(instruction)
                if instruction.opname.startswith("DELETE_") and instruction.argval in unset:
                    kept += _set_to_nothing(instruction.argval, code)
        for instruction in kept:
            if instruction.target is instructions[index]:
                instruction.target = end[0]
        instructions[:] = with_handlers(kept, {*kept}, 0)

    return transformed(code, transform)


def _returned(instruction: Instruction, instructions: Sequence[Instruction]) -> list[Instruction]:
    """What ends a first part where the whole function returns."""
    made = [
        create_instruction("LOAD_CONST", argval=Returned),
        create_instruction("BUILD_TUPLE", arg=2),
        create_instruction("RETURN_VALUE"),
    ]
    if instruction.opname == "RETURN_CONST":
        made.insert(0, create_instruction("LOAD_CONST", argval=instruction.argval))
    for each in instructions:
        if each.target is instruction:
            each.target = made[0]
    for each in made:
        each.exn_tab_entry = instruction.exn_tab_entry
        each.copy_positions(instruction)
    return made


def _set_to_nothing(name: str, code: types.CodeType) -> list[Instruction]:
    return [
        create_instruction("LOAD_CONST", argval=Unset),
        create_instruction(f"STORE_{_kind(name, code)}", argval=name),
    ]


def _unset_if_nothing(name: str, code: types.CodeType) -> list[Instruction]:
    kind, end = _kind(name, code), create_instruction("NOP")
    return [
        create_instruction(f"LOAD_{kind}", argval=name),
        create_instruction("LOAD_CONST", argval=Unset),
        create_instruction("IS_OP", arg=0),
        create_instruction(JUMP_IF_NOT, target=end),
        create_instruction(f"DELETE_{kind}", argval=name),
        end,
    ]


def rest_code(
    code: types.CodeType, index: int, found: Mapping[str, bool], anew: Sequence[str]
) -> types.CodeType:
    """Return the code from an instruction on, which takes what `first_code` returns.

    Args:
        code: of a function that can be split there.
        index: of the instruction.
        found: the variables, and whether each has a value there.
        anew: variables that are lists, which it makes itself.
    """

    def transform(instructions: list[Instruction], options: dict[str, Any]) -> None:
        parts = CodeFlow(instructions, code).parts(index)
        assert parts is not None
        unset = [name for name, is_set in found.items() if not is_set]
        name_of_found = _FOUND + "_" * sum(name.startswith(_FOUND) for name in code.co_varnames)
        unpacked = [
            create_instruction("LOAD_FAST", argval=name_of_found),
            create_instruction("UNPACK_SEQUENCE", arg=len(found)),
            *(create_instruction(f"STORE_{_kind(name, code)}", argval=name) for name in found),
        ]
        unpacked += [each for name in unset for each in _unset_if_nothing(name, code)]
        for name in anew:
            unpacked.append(create_instruction("BUILD_LIST", arg=0))
            unpacked.append(create_instruction("STORE_FAST", argval=name))
        kept = [each for i, each in enumerate(instructions) if i in parts[1]]
        kept = [*instructions[: begin_of(instructions)], *unpacked, *kept]
        instructions[:] = with_handlers(kept, {*kept}, 0)
        options["co_varnames"] = (name_of_found, *options["co_varnames"])
        options["co_argcount"] += 1
        options["co_posonlyargcount"] += options["co_posonlyargcount"] > 0

    return transformed(code, transform)
