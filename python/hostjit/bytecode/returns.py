# SPDX-License-Identifier: Apache-2.0
"""Functions that return in one place.

CPython's compiler repeats what is short and returns, behind an `if` or a loop: what follows these
is then in several places.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

from torch._dynamo.bytecode_transformation import Instruction, create_instruction

from hostjit.bytecode.appended import become, beside
from hostjit.bytecode.handlers import with_handlers
from hostjit.bytecode.making import function_of
from hostjit.bytecode.rewriting import with_more_variables

__all__ = ["RETURNED", "with_one_return"]

RETURNED = "hostjit_returned"
"""The variable that has what the function returns."""
_RETURNS = ("RETURN_VALUE", "RETURN_CONST")
# Behind these, nothing is on the stack but what was there before.
_ENDS = frozenset({"POP_TOP", "END_FOR", "NOP", "NOT_TAKEN", "POP_ITER"})


def with_one_return(function: types.FunctionType) -> types.FunctionType:
    """Return a function that does the same, and returns in one place, what is in `RETURNED`."""
    code = with_more_variables(function.__code__, _rewritten)
    return function if code is None else function_of(function, code)


def _rewritten(instructions: list[Instruction]) -> tuple[list[Instruction], list[str]]:
    instructions = _with_single_ends(instructions)
    ends = [i for i, each in enumerate(instructions) if each.opname in _RETURNS]
    targets = {each.target for each in instructions}
    if len(ends) < 2 and not any(instructions[i] in targets for i in ends):
        return instructions, []
    load = create_instruction("LOAD_FAST", argval=RETURNED)
    made: list[Instruction] = []
    for index, each in enumerate(instructions):
        made.append(each)
        if index not in ends:
            continue
        constant = each.opname == "RETURN_CONST"
        value, argval = [], each.argval
        popped = 0
        while not constant and _pops_below(made, popped):
            popped += 1
        if constant:
            become(each, create_instruction("LOAD_CONST", argval=argval))
            value = [create_instruction("STORE_FAST", argval=RETURNED)]
        else:
            below = made[len(made) - 1 - 2 * popped : -1]
            first = below[0] if below else each
            become(first, create_instruction("STORE_FAST", argval=RETURNED))
            for other in [*below, each][1:]:
                become(other, create_instruction("NOP"))
            value = [create_instruction("POP_TOP") for _ in range(popped)]
        made += beside(each, [*value, create_instruction("JUMP_FORWARD", target=load)])
    last = [load, create_instruction("RETURN_VALUE")]
    for each in last:
        each.copy_positions(instructions[ends[-1]])
    made = [*made, *last]
    return with_handlers(made, {*made}, 0), [RETURNED]


def _pops_below(made: Sequence[Instruction], popped: int) -> bool:
    """Whether what is returned is kept while the iterator of a loop is dropped."""
    pair = made[len(made) - 3 - 2 * popped : len(made) - 1 - 2 * popped]
    names = [each.opname for each in pair]
    return names == ["SWAP", "POP_TOP"] and pair[0].arg == 2


def _with_single_ends(instructions: Sequence[Instruction]) -> list[Instruction]:
    """Have a return that CPython's compiler has repeated in one place only."""
    known: dict[tuple[Any, ...], Instruction] = {}
    dropped: set[int] = set()
    ends = (i for i, each in enumerate(instructions) if each.opname.startswith("RETURN_"))
    for end in ends:
        begin = end
        while begin and _is_of_return(instructions, begin - 1):
            begin -= 1
        block = instructions[begin : end + 1]
        if not begin or None in [each.positions for each in block]:
            continue
        first = known.setdefault(tuple(map(_written, block)), block[0])
        if first is not block[0]:
            become(block[0], create_instruction("JUMP_FORWARD"))
            block[0].target = first
            dropped |= {*range(begin + 1, end + 1)}
    kept = [each for i, each in enumerate(instructions) if i not in dropped]
    jumps = {each.target for each in kept} - {None}
    return kept if jumps <= {*kept} else [*instructions]


def _is_of_return(instructions: Sequence[Instruction], index: int) -> bool:
    """Whether an instruction leads to the next alone, and is of the statement of the next."""
    each, after = instructions[index], instructions[index + 1]
    if each.target is not None or each.opname in _ENDS or each.positions is None:
        return False
    return each.positions.lineno == after.positions.lineno if after.positions else False


def _written(instruction: Instruction) -> tuple[Any, ...]:
    argument = instruction.argval
    entry = instruction.exn_tab_entry
    handler = None if entry is None else id(entry.target)
    return instruction.opname, type(argument), repr(argument), instruction.positions, handler
