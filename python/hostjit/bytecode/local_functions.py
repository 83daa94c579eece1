# SPDX-License-Identifier: Apache-2.0
"""Functions that code makes and keeps in a variable: a region of it may make one of its own.

`cost = lambda u: (u - goal).square().sum()` ahead of a loop is another object at each call. What
the passes of the loop are given are the variables that it knows, rather.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from torch._dynamo.bytecode_transformation import Instruction

from hostjit.bytecode.flow import LOADS, STORES, CodeFlow

__all__ = ["MADE", "LocalFunction", "loads_cell", "local_functions"]

# What a function is made of: its code, the variables that it knows, annotations.
_MAKING = frozenset(
    {
        *("LOAD_CONST", "LOAD_GLOBAL", "LOAD_ATTR", "LOAD_CLOSURE", "BUILD_TUPLE", "NOP"),
        *("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"),
    }
)
MADE = frozenset({"MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"})
"""Operations that the making of a function ends with."""
_OF_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR"})


@dataclasses.dataclass(frozen=True)
class LocalFunction:
    """A statement that makes a function.

    Attributes:
        name: of the variable that has it from then on.
        begin: the index of the first instruction.
        end: that of the last one, which gives the variable its value.
        known: the variables of the code around that the function knows.
    """

    name: str
    begin: int
    end: int
    known: frozenset[str]

    def made_anew(self, instructions: Sequence[Instruction]) -> Iterator[Instruction]:
        """Yield instructions that make another one."""
        for each in instructions[self.begin : self.end + 1]:
            made = copy.copy(each)
            made.exn_tab_entry = None
            yield made


def local_functions(
    instructions: Sequence[Instruction], flow: CodeFlow, parameters: Sequence[str]
) -> dict[str, LocalFunction]:
    """Return the functions in variables that have no other values, by the names of these."""
    stores: dict[str, list[int]] = {}
    for index, each in enumerate(instructions):
        if each.opname in STORES and index in flow.depths:
            stores.setdefault(each.argval, []).append(index)
    found = (
        _made_at(instructions, flow, places[0])
        for name, places in stores.items()
        if len(places) == 1 and name not in parameters
        if not _is_looked_into(instructions, name)
    )
    return {each.name: each for each in found if each is not None}


def _made_at(instructions: Sequence[Instruction], flow: CodeFlow, end: int) -> LocalFunction | None:
    """The statement that ends where a variable is given a value."""
    base = flow.depths[end] - 1
    if instructions[end - 1].opname not in MADE:
        return None
    begin = end - 1
    while begin and flow.depths.get(begin) != base:
        begin -= 1
    inside = instructions[begin:end]
    follows = all(map(flow.follows_alone, range(begin + 1, end + 1)))
    known = {each.argval for each in inside if loads_cell(each, flow)}
    if not follows or not all(_is_of_making(each, flow) for each in inside):
        return None
    return LocalFunction(instructions[end].argval, begin, end, frozenset(known))


def _is_looked_into(instructions: Sequence[Instruction], name: str) -> bool:
    """Whether code has to do with attributes of what is in a variable."""
    return any(
        load.opname in (*LOADS, "LOAD_DEREF")
        and load.argval == name
        and after.opname in _OF_ATTRIBUTES
        for load, after in itertools.pairwise(instructions)
    )


def _is_of_making(instruction: Instruction, flow: CodeFlow) -> bool:
    return instruction.opname in _MAKING or loads_cell(instruction, flow)


def loads_cell(instruction: Instruction, flow: CodeFlow) -> bool:
    """Tell whether a function is given a variable; from CPython 3.13 on as others are loaded."""
    if instruction.opname == "LOAD_CLOSURE":
        return True
    return instruction.opname.startswith("LOAD_FAST") and flow.is_cell(instruction.argval)
