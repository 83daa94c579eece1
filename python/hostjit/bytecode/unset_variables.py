# SPDX-License-Identifier: Apache-2.0
"""Variables that may have no value where a loop begins, as Python's compiler allows.

    if self.clip is not None:
        clip = self.clip(progress)
    for sample in samples:
        if self.clip is not None:
            values = values.clamp(-clip, clip)

The function of a pass is given its variables, so these have a mark of their own meanwhile. Reading
one that has it raises UnboundLocalError, as ever.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Set

from torch._dynamo.bytecode_transformation import (
    Instruction,
    add_push_null,
    cleaned_instructions,
    create_call_function,
    create_instruction,
)

from hostjit.bytecode.appended import become, beside
from hostjit.bytecode.flow import LOADS, CodeFlow
from hostjit.bytecode.halves import Unset
from hostjit.bytecode.handlers import with_handlers
from hostjit.bytecode.making import JUMP_IF_NOT, begin_of
from hostjit.bytecode.rewriting import with_more_variables
from hostjit.bytecode.splits import may_be_taken_apart, parameters_of

__all__ = ["marked", "with_marks"]

_OTHER_READS = frozenset({"DELETE_FAST", "LOAD_FAST_AND_CLEAR"})


def _raise_unset(name: str) -> None:
    text = f"cannot access local variable {name!r} where it is not associated with a value"
    raise UnboundLocalError(text)


def with_marks(code: types.CodeType) -> types.CodeType | None:
    """Return code in which variables that loops need have values; None where they do anyway."""
    if not may_be_taken_apart(code):
        return None
    instructions = cleaned_instructions(code)
    flow = CodeFlow(instructions, code)
    parameters = parameters_of(code)
    names = {
        name
        for head, inside in flow.loops().items()
        for name in flow.needed_by(head, inside) - flow.assigned_at(head, parameters)
        if not flow.is_cell(name)
    }
    return marked(code, names)


def marked(code: types.CodeType, names: Set[str]) -> types.CodeType | None:
    """Return code in which some variables have values from the begin on; None if none may.

    `names`: of variables that no function inside knows.
    """
    others = {each.argval for each in dis.get_instructions(code) if each.opname in _OTHER_READS}
    names = names - others
    if not names:
        return None

    def rewrite(found: list[Instruction]) -> tuple[list[Instruction], list[str]]:
        begin = begin_of(found)
        flow, parameters = CodeFlow(found, code), parameters_of(code)
        made: list[Instruction] = []
        for index, each in enumerate(found):
            if index == begin:
                for name in sorted(names):
                    made.append(create_instruction("LOAD_CONST", argval=Unset))
                    made.append(create_instruction("STORE_FAST", argval=name))
            made.append(each)
            if each.opname in LOADS and each.argval in names:
                if each.argval not in flow.assigned_at(index, parameters):
                    made += _checked(each)
        return with_handlers(made, {*made}, 0), []

    return with_more_variables(code, rewrite)


def _checked(load: Instruction) -> list[Instruction]:
    """What follows the load of a variable: the variable again, if it has a value."""
    name = load.argval
    become(load, create_instruction("LOAD_FAST", argval=name))
    again = create_instruction("NOP")
    return beside(
        load,
        (
            create_instruction("LOAD_CONST", argval=Unset),
            create_instruction("IS_OP", arg=0),
            create_instruction(JUMP_IF_NOT, target=again),
            *add_push_null([create_instruction("LOAD_CONST", argval=_raise_unset)]),
            create_instruction("LOAD_CONST", argval=name),
            *create_call_function(1, False),
            create_instruction("POP_TOP"),
            again,
            create_instruction("LOAD_FAST", argval=name),
        ),
    )
