# SPDX-License-Identifier: Apache-2.0
"""Functions that code calls, so that a recording may have others called in their place.

`self.plan(x)` looks up `plan`, and asks for what does the same and lets a recording follow what it
decides: `CALLED[self.plan](x)`.
"""

from __future__ import annotations

import builtins
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
from hostjit.bytecode.flow import LOADS
from hostjit.bytecode.making import function_of
from hostjit.bytecode.rewriting import rewritten

__all__ = ["copy_of", "with_called_functions"]

# How LOAD_ATTR says that a method is called.
_LOADS_METHODS = sys.version_info >= (3, 12)
_OF_CONTAINERS = frozenset(name for kind in (list, dict, set, str, deque) for name in dir(kind))
_NULL_FIRST = sys.version_info < (3, 13)


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
    return rewritten(function, _rewritten)


def copy_of(function: types.FunctionType) -> types.FunctionType:
    """Return a function of other code that does the same."""
    code = function.__code__
    return function_of(function, code.replace(co_consts=(*code.co_consts, CALLED)))


def _rewritten(instructions: list[Instruction]) -> list[Instruction]:
    kept: list[Instruction] = []
    for index, each in enumerate(instructions):
        kept.append(each)
        if _loads_variable(instructions, index) or _loads_attribute(instructions, index):
            kept += beside(each, _looked_up())
        elif _loads_function(each):
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


def _loads_variable(instructions: Sequence[Instruction], index: int) -> bool:
    """Whether an instruction loads a function of the code around."""
    name = instructions[index].opname
    beside_it = index - 1 if _NULL_FIRST else index + 1
    is_load = name in LOADS or name == "LOAD_DEREF"
    return is_load and instructions[beside_it].opname == "PUSH_NULL"


def _loads_attribute(instructions: Sequence[Instruction], index: int) -> bool:
    """Whether an instruction loads a method, and another one what a call has besides."""
    each = instructions[index]
    if each.opname != "LOAD_ATTR" or instructions[index + 1].opname != "PUSH_NULL":
        return False
    return _may_be_of_users(each.argval)


def _loads_function(instruction: Instruction) -> bool:
    is_called = instruction.opname == "LOAD_GLOBAL" and (instruction.arg or 0) & 1
    return bool(is_called) and not hasattr(builtins, str(instruction.argval))


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
