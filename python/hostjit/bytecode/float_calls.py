# SPDX-License-Identifier: Apache-2.0
"""Calls of `float`, of which a recording may follow the number.

CPython makes a float of whatever `__float__` returns, so recorded code calls something else.
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

from hostjit.bytecode.appended import become
from hostjit.bytecode.flow import CodeFlow
from hostjit.bytecode.rewriting import rewritten

__all__ = ["float_of", "with_float_calls"]

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


def with_float_calls(function: types.FunctionType) -> types.FunctionType:
    """Return a function that does the same, and calls `float_of` for each `float(value)`."""
    code = function.__code__
    if "float" not in code.co_names:
        return function

    def rewrite(instructions: list[Instruction]) -> list[Instruction]:
        flow = CodeFlow(instructions, code)
        ends = {i: _end_of_call(instructions, flow, i) for i in range(len(instructions))}
        kept: list[Instruction] = []
        for index, each in enumerate(instructions):
            kept.append(each)
            if (end := ends[index]) is None:
                continue
            for call in instructions[end : end + 1 + (_CALL == "PRECALL")]:
                call.arg = call.argval = 2
            first, *others = add_push_null([create_instruction("LOAD_CONST", argval=float_of)])
            become(each, first)
            for other in (*others, create_instruction("LOAD_GLOBAL", arg=0, argval="float")):
                other.copy_positions(each)
                other.exn_tab_entry = each.exn_tab_entry
                kept.append(other)
        return kept

    return rewritten(function, rewrite)


def _end_of_call(instructions: Sequence[Instruction], flow: CodeFlow, index: int) -> int | None:
    """Where `float` is called that an instruction loads, if with one argument."""
    load = instructions[index]
    is_called = load.opname == "LOAD_GLOBAL" and load.argval == "float" and (load.arg or 0) & 1
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
