# SPDX-License-Identifier: Apache-2.0
"""Calls of Python's functions, of which a recording may follow the number.

CPython makes a float of whatever `__float__` returns, and an int of `__len__`, so recorded code
calls something else.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.bytecode_transformation import (
    Instruction,
    add_push_null,
    create_instruction,
)

from hostjit.bytecode.appended import become, beside
from hostjit.bytecode.flow import CodeFlow
from hostjit.bytecode.rewriting import rewritten

__all__ = ["FOLLOWED", "calling", "end_of_call", "float_of", "length_of", "with_float_calls"]

_CALL = "PRECALL" if "PRECALL" in dis.opmap else "CALL"


def float_of(kind: Any, value: Any) -> Any:
    """Return `kind(value)`, or what stands for that in code that is recorded.

    `kind`: what the code has by the name of `float`.
    """
    if kind is float:
        if isinstance(value, torch.Tensor):
            return value.__float__()
        if hasattr(value, "followed_float"):
            return value.followed_float()
    return kind(value)


def length_of(kind: Any, length: Any) -> Any:
    """Return the length of a list, as a variable has it.

    `kind`: what the code has by the name of `len`, which was Python's; raises NameError if not.
    """
    if kind is not len:
        raise NameError("hostjit: 'len' was replaced after a loop that calls it was compiled")
    return length


FOLLOWED = {float_of: "float", length_of: "len"}
"""What is called in place of a function of Python's, and the name of that."""


def with_float_calls(function: types.FunctionType) -> types.FunctionType:
    """Return a function that does the same, and calls `float_of` for each `float(value)`."""
    code = function.__code__
    if "float" not in code.co_names:
        return function

    def rewrite(instructions: list[Instruction]) -> list[Instruction]:
        flow = CodeFlow(instructions, code)
        ends = {i: end_of_call(instructions, flow, i, "float") for i in range(len(instructions))}
        kept: list[Instruction] = []
        for index, each in enumerate(instructions):
            kept.append(each)
            if (end := ends[index]) is not None:
                kept += calling(float_of, instructions, index, end)
        return kept

    return rewritten(function, rewrite)


def calling(
    function: Any, instructions: Sequence[Instruction], index: int, end: int
) -> list[Instruction]:
    """Have one of `FOLLOWED` called between two instructions; return what follows the first."""
    each = instructions[index]
    for call in instructions[end : end + 1 + (_CALL == "PRECALL")]:
        call.arg = call.argval = 2
    first, *others = add_push_null([create_instruction("LOAD_CONST", argval=function)])
    become(each, first)
    load = create_instruction("LOAD_GLOBAL", arg=0, argval=FOLLOWED[function])
    return beside(each, (*others, load))


def end_of_call(
    instructions: Sequence[Instruction], flow: CodeFlow, index: int, name: str
) -> int | None:
    """Return where a function is called that an instruction loads, if with one argument."""
    load = instructions[index]
    is_called = load.opname == "LOAD_GLOBAL" and load.argval == name and (load.arg or 0) & 1
    if not is_called or index not in flow.depths:
        return None
    depth = flow.depths[index]
    for end in range(index + 1, len(instructions)):
        now, here = instructions[end], flow.depths.get(end, 0)
        if here <= depth:
            return None
        if now.opname == _CALL and here == depth + 3 and now.arg == 1:
            return end if instructions[end - 1].opname != "KW_NAMES" else None
    return None
