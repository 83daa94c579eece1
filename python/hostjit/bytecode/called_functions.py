# SPDX-License-Identifier: Apache-2.0
"""Functions that code calls, so that a recording may have others called in their place.

`self.plan(x)` looks up `plan`, and asks for what does the same and lets a recording follow what it
decides: `CALLED[self.plan](x)`.
"""

from __future__ import annotations

import builtins
import dis
import functools
import sys
import types
from collections import deque
from collections.abc import Sequence
from typing import Any

from torch._dynamo.bytecode_transformation import (
    Instruction,
    add_push_null,
    create_instruction,
)

from hostjit.bytecode.appended import become, beside
from hostjit.bytecode.chooser import current_chooser
from hostjit.bytecode.computing import is_of_tensors
from hostjit.bytecode.flow import LOADS, CodeFlow
from hostjit.bytecode.making import function_of
from hostjit.bytecode.rewriting import rewritten
from hostjit.bytecode.stack import num_taken

__all__ = ["copy_of", "with_called_functions"]

# How LOAD_ATTR says that a method is called.
_LOADS_METHODS = sys.version_info >= (3, 12)
# Users' classes have methods of these names, too.
_OF_BOTH = frozenset({"update", "get", "insert", "remove", "clear", "copy", "count", "index"})
_OF_CONTAINERS = frozenset(
    name for kind in (list, dict, set, str, deque) for name in dir(kind) if name not in _OF_BOTH
)
_NULL_FIRST = sys.version_info < (3, 13)
# Takes the arguments of a call from the stack.
_CALL = "PRECALL" if "PRECALL" in dis.opmap else "CALL"


class _Called:
    """`CALLED[function]` is what is called in place of a function."""

    def __getitem__(self, function: Any) -> Any:
        chooser = current_chooser()
        return function if chooser is None else chooser.called(function)


CALLED = _Called()


def with_called_functions(function: types.FunctionType) -> types.FunctionType:
    """Return a function that does the same, and looks up what it calls in `CALLED`.

    Functions by the names of variables, and methods of objects.
    """
    return rewritten(function, functools.partial(_rewritten, function.__code__))


def copy_of(function: types.FunctionType) -> types.FunctionType:
    """Return a function of other code that does the same."""
    code = function.__code__
    return function_of(function, code.replace(co_consts=(*code.co_consts, CALLED)))


def _rewritten(code: types.CodeType, instructions: list[Instruction]) -> list[Instruction]:
    flow = CodeFlow(instructions, code)
    kept: list[Instruction] = []
    for index, each in enumerate(instructions):
        kept.append(each)
        if _loads_variable(instructions, flow, index) or _loads_attribute(
            instructions, flow, index
        ):
            kept += beside(each, _looked_up())
        elif _loads_function(instructions, flow, index):
            load = create_instruction("LOAD_GLOBAL", arg=0, argval=each.argval)
            first, *others = add_push_null([load, *_looked_up()])
            become(each, first)
            kept += beside(each, others)
        elif _loads_method(each):
            arg = 0 if _LOADS_METHODS else None
            become(each, create_instruction("LOAD_ATTR", arg=arg, argval=each.argval))
            null = [create_instruction("PUSH_NULL")]
            if _NULL_FIRST:
                null.append(create_instruction("SWAP", arg=2))
            kept += beside(each, [*_looked_up(), *null])
    return kept


def _loads_variable(instructions: Sequence[Instruction], flow: CodeFlow, index: int) -> bool:
    """Whether an instruction loads a function of the code around."""
    name = instructions[index].opname
    beside_it = index - 1 if _NULL_FIRST else index + 1
    is_load = name in LOADS or name == "LOAD_DEREF"
    is_beside = is_load and instructions[beside_it].opname == "PUSH_NULL"
    return is_beside and (not _NULL_FIRST or _is_called(instructions, flow, index))


def _loads_attribute(instructions: Sequence[Instruction], flow: CodeFlow, index: int) -> bool:
    """Whether an instruction loads a method, and another one what a call has besides."""
    each = instructions[index]
    if each.opname != "LOAD_ATTR" or not _may_be_of_users(each.argval):
        return False
    if not _NULL_FIRST:
        return instructions[index + 1].opname == "PUSH_NULL"
    return _has_null(instructions[index - 1]) and _is_called(instructions, flow, index)


def _loads_function(instructions: Sequence[Instruction], flow: CodeFlow, index: int) -> bool:
    each = instructions[index]
    if not _has_null(each) or hasattr(builtins, str(each.argval)):
        return False
    return _is_called(instructions, flow, index)


def _is_called(instructions: Sequence[Instruction], flow: CodeFlow, index: int) -> bool:
    """Whether what an instruction has put on the stack is what a call further on calls.

    Not so where it may be something that is made of that: `layers[1](x)`.
    """
    if index + 1 not in flow.depths:
        return False
    base = flow.depths[index + 1]
    for place in range(index + 1, len(instructions)):
        each = instructions[place]
        if place not in flow.depths or each.opname == "SWAP":
            return False
        above = flow.depths[place] - base
        if each.opname in (_CALL, "CALL_FUNCTION_EX"):
            given = each.arg or 0
            given = given if each.opname == _CALL else 1 + (given & 1)
            if above <= given:
                return above == given
        elif not _only_loads(each):
            takes = 1 if each.opname == "DICT_MERGE" else num_taken(each)
            if takes is None or takes > above:
                return False
    return False


def _only_loads(instruction: Instruction) -> bool:
    name = instruction.opname
    return name in LOADS or name in ("LOAD_GLOBAL", "COPY", "KW_NAMES", "NOP")


def _has_null(instruction: Instruction) -> bool:
    """Whether an instruction loads a global variable, and what a call has besides."""
    return instruction.opname == "LOAD_GLOBAL" and bool((instruction.arg or 0) & 1)


def _loads_method(instruction: Instruction) -> bool:
    if instruction.opname == "LOAD_ATTR":
        is_called = _LOADS_METHODS and bool((instruction.arg or 0) & 1)
    else:
        is_called = instruction.opname == "LOAD_METHOD"
    return is_called and _may_be_of_users(instruction.argval)


def _may_be_of_users(method: str) -> bool:
    """Whether a method is none that containers or tensors have, by its name."""
    return not (method in _OF_CONTAINERS or is_of_tensors(method))


def _looked_up() -> Sequence[Instruction]:
    return [
        create_instruction("LOAD_CONST", argval=CALLED),
        create_instruction("SWAP", arg=2),
        create_instruction("BINARY_SUBSCR"),
    ]
