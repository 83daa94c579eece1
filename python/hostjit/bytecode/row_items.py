# SPDX-License-Identifier: Apache-2.0
"""Passes over the rows of a tensor, `for row in x`: they are given `x` and the place of a row."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

from torch._dynamo.bytecode_transformation import Instruction, create_instruction

from hostjit.bytecode.loops import PassVariables
from hostjit.bytecode.splits import begin_of, function_of, may_be_taken_apart, transformed

__all__ = ["with_rows"]

_ROWS = "hostjit_rows"
_PLACE = "hostjit_place"


def with_rows(
    body: types.FunctionType, variables: PassVariables
) -> tuple[types.FunctionType, PassVariables] | None:
    """Return a function that looks the item of a pass up in what it is given in its place.

    It takes the number of the item behind the other variables. None where code does not do so.

    Args:
        body: of a pass over an iterator, which takes the item.
        variables: of the pass.
    """
    item, code = variables.item, body.__code__
    if item is None or item in code.co_cellvars or not may_be_taken_apart(code):
        return None
    taken = tuple(_ROWS if name == item else name for name in variables.taken)
    parameters = (*taken, _PLACE, *code.co_varnames[len(taken) : code.co_argcount])

    def transform(instructions: list[Instruction], options: dict[str, Any]) -> None:
        begin = begin_of(instructions)
        looked_up = [
            create_instruction("LOAD_FAST", argval=_ROWS),
            create_instruction("LOAD_FAST", argval=_PLACE),
            create_instruction("BINARY_SUBSCR"),
            create_instruction("STORE_FAST", argval=item),
        ]
        for each in looked_up:
            each.copy_positions(instructions[begin])
        instructions[begin:begin] = looked_up
        others = [name for name in options["co_varnames"] if name not in parameters]
        options["co_varnames"] = (*parameters, *others)
        options["co_argcount"] = len(parameters)

    try:
        made = function_of(body, transformed(code, transform))
    except (AssertionError, LookupError):
        return None
    return made, dataclasses.replace(variables, taken=(*taken, _PLACE), item=_PLACE)
