# SPDX-License-Identifier: Apache-2.0
"""Functions of code that is made of other code."""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Sequence
from typing import Any

from torch._dynamo.bytecode_transformation import Instruction, transform_code_object

__all__ = ["JUMP_IF_NOT", "begin_of", "function_of", "kind_of_variable", "transformed"]

JUMP_IF_NOT = (
    "POP_JUMP_IF_FALSE" if "POP_JUMP_IF_FALSE" in dis.opmap else "POP_JUMP_FORWARD_IF_FALSE"
)


def begin_of(instructions: Sequence[Instruction]) -> int:
    """Return where the code of the user's begins."""
    return next(i for i, each in enumerate(instructions) if each.opname == "RESUME") + 1


def kind_of_variable(name: str, code: types.CodeType) -> str:
    """Return "DEREF" for a variable that functions inside know, or "FAST": how operations end."""
    return "DEREF" if name in code.co_cellvars else "FAST"


def transformed(
    code: types.CodeType, transform: Callable[[list[Instruction], dict[str, Any]], None]
) -> types.CodeType:
    """Return code of which `transform` has changed the instructions."""

    def transform_with_names(instructions: list[Instruction], options: dict[str, Any]) -> None:
        transform(instructions, options)
        # Of names and constants there are those of this part: code is judged by what it can reach.
        options["co_names"], options["co_consts"] = (), code.co_consts[:1]
        for instruction in instructions:
            if instruction.opcode in dis.hasconst:
                instruction.arg = None

    transformed: types.CodeType = transform_code_object(code, transform_with_names)[0]
    return transformed


def function_of(target: types.FunctionType, code: types.CodeType) -> types.FunctionType:
    """Return a function like another, of other code."""
    made = types.FunctionType(
        code, target.__globals__, target.__name__, target.__defaults__, target.__closure__
    )
    made.__kwdefaults__ = target.__kwdefaults__
    made.__annotations__ = target.__annotations__
    made.__qualname__, made.__module__ = target.__qualname__, target.__module__
    return made
