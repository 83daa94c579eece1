# SPDX-License-Identifier: Apache-2.0
"""Attributes that statements assign, `self.plan = trial`, as variables of these statements.

Code that has variables in their place changes no object: it takes what attributes are, and returns
what they become.
"""

from __future__ import annotations

import dataclasses
import itertools
import types
from collections.abc import Mapping, Sequence
from typing import Any

from torch._dynamo.bytecode_transformation import Instruction, create_instruction

from hostjit.bytecode.appended import become, beside
from hostjit.bytecode.flow import LOADS, CodeFlow
from hostjit.bytecode.making import transformed

__all__ = ["StoredAttribute", "attribute_of", "object_of_store", "variable_of", "with_variables"]

_VARIABLE = "hostjit_attribute_"


@dataclasses.dataclass(frozen=True)
class StoredAttribute:
    """An attribute that statements assign.

    Attributes:
        variable: which has the object.
        name: of the attribute.
    """

    variable: str
    name: str


def object_of_store(
    instructions: Sequence[Instruction], index: int, depths: Mapping[int, int]
) -> int | None:
    """Return which instruction loads the object that a STORE_ATTR is about, from a variable.

    None where the object is something else. Behind `self.cost += x` it stays on the stack
    meanwhile: COPY, and the LOAD_ATTR that reads the attribute, follow the one that is returned.

    Args:
        instructions: of the code.
        index: of the STORE_ATTR.
        depths: how many values each instruction finds on the stack.
    """
    if instructions[index - 1].opname in LOADS:
        return index - 1
    if instructions[index - 1].opname != "SWAP" or instructions[index - 1].arg != 2:
        return None
    for place in range(index - 2, 0, -1):
        each = instructions[place]
        if each.target is not None or each.opname.startswith("STORE"):
            return None  # other statements, or ways
        if depths.get(place) == depths[index] - 2:
            first, second = instructions[place + 1 : place + 3]
            is_known = each.opname in LOADS and first.opname == "COPY" and first.arg == 1
            is_same = second.opname == "LOAD_ATTR" and second.argval == instructions[index].argval
            return place if is_known and is_same else None
    return None


def variable_of(index: int, name: str) -> str:
    """Return the variable in the place of the attribute of a name, one of some by an index."""
    return f"{_VARIABLE}{index}_{name}"


def attribute_of(variable: str) -> str:
    """Return the name of the attribute that a variable is in the place of; "" if of none."""
    is_known = variable.startswith(_VARIABLE)
    return variable.removeprefix(_VARIABLE).partition("_")[2] if is_known else ""


def with_variables(code: types.CodeType, attributes: Sequence[StoredAttribute]) -> types.CodeType:
    """Return code that takes what attributes are, behind its parameters, and returns what they are.

    Args:
        code: of a function that returns new tuples alone.
        attributes: which it assigns.
    """
    names = {each: variable_of(i, each.name) for i, each in enumerate(attributes)}

    def transform(instructions: list[Instruction], options: dict[str, Any]) -> None:
        flow = CodeFlow(instructions, code)
        stored: dict[int, int] = {}
        for index, each in enumerate(instructions):
            if each.opname == "STORE_ATTR" and index in flow.depths:
                place = object_of_store(instructions, index, flow.depths)
                assert place is not None
                stored[index] = place
        for index, place in stored.items():
            attribute = StoredAttribute(instructions[place].argval, instructions[index].argval)
            name = names[attribute]
            become(instructions[index], create_instruction("STORE_FAST", argval=name))
            become(instructions[place], create_instruction("NOP"))
            if place < index - 1:
                become(instructions[place + 1], create_instruction("NOP"))
                become(instructions[place + 2], create_instruction("LOAD_FAST", argval=name))
                become(instructions[index - 1], create_instruction("NOP"))
        for first, second in itertools.pairwise(instructions):
            if first.opname in LOADS and second.opname == "LOAD_ATTR":
                name = names.get(StoredAttribute(first.argval, second.argval), "")
                if name:
                    become(first, create_instruction("NOP"))
                    become(second, create_instruction("LOAD_FAST", argval=name))
        made: list[Instruction] = []
        for each, behind in zip(instructions, [*instructions[1:], None], strict=True):
            if each.opname == "BUILD_TUPLE" and behind and behind.opname == "RETURN_VALUE":
                loads = [create_instruction("LOAD_FAST", argval=name) for name in names.values()]
                build = create_instruction("BUILD_TUPLE", arg=(each.arg or 0) + len(names))
                become(each, loads[0])  # which others jump to
                made += [each, *beside(each, [*loads[1:], build])]
            else:
                made.append(each)
        instructions[:] = made
        variables = options["co_varnames"]
        count = options["co_argcount"]
        options["co_varnames"] = (*variables[:count], *names.values(), *variables[count:])
        options["co_argcount"] = count + len(names)

    return transformed(code, transform)
