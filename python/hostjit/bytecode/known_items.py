# SPDX-License-Identifier: Apache-2.0
"""Lists that loops append to and look at: variables have their lengths, and some of their items.

Of `losses.append(loss)`, `if len(losses) > 3 and abs(losses[-1] - losses[-2]) < tolerance`, a pass
needs no more than the last two losses and how many there are.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import Any

from torch._dynamo.bytecode_transformation import (
    Instruction,
    cleaned_instructions,
    create_instruction,
)

from hostjit.bytecode.appended import Append, ItemsOf, append_at, become, beside, stores_new_list
from hostjit.bytecode.flow import LOADS, STORES, CodeFlow
from hostjit.bytecode.followed_calls import calling, end_of_call, length_of
from hostjit.bytecode.handlers import with_handlers
from hostjit.bytecode.making import JUMP_IF_NOT
from hostjit.bytecode.rewriting import argument_of, with_more_variables
from hostjit.bytecode.splits import parameters_of

__all__ = ["with_known_items"]

# So many of the first and of the last items are kept in variables.
_MOST_ITEMS = 4
_ASK_FOR_TRUTH = ("UNARY_NOT", "TO_BOOL")


@dataclasses.dataclass
class _List:
    """A variable with a list of the call, and what the code does with that.

    Attributes:
        name: of the variable.
        stores: the indices of the instructions that give it a new list.
        appends: what appends to that.
        items: the indices of the instructions that load it for an item, by that item.
        lengths: of those that load it for its length, with where `len` is loaded and called.
        truths: of those that load it for whether it is empty.
        others: of all others that have to do with it.
    """

    name: str
    stores: list[int] = dataclasses.field(default_factory=list)
    appends: list[Append] = dataclasses.field(default_factory=list)
    items: dict[int, int] = dataclasses.field(default_factory=dict)
    lengths: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)
    truths: list[int] = dataclasses.field(default_factory=list)
    others: list[int] = dataclasses.field(default_factory=list)

    @property
    def looks(self) -> list[int]:
        """Where the code looks at the list."""
        return [*self.items, *self.lengths, *self.truths]

    @property
    def length(self) -> str:
        """The variable that has its length."""
        return f"hostjit_length_{self.name}"

    def item(self, place: int) -> str:
        """The variable that has an item, or None while there is none."""
        return f"hostjit_item_{self.name}_{place if place >= 0 else f'minus_{-place}'}"

    @property
    def first(self) -> int:
        """How many of the first items variables have."""
        return max((place + 1 for place in self.items.values()), default=0)

    @property
    def last(self) -> int:
        """How many of the last ones."""
        return max((-place for place in self.items.values()), default=0)

    def variables(self) -> list[str]:
        """Return all variables, as `ItemsOf` gives them values."""
        places = [*range(self.first), *range(-1, -1 - self.last, -1)]
        return [self.length, *map(self.item, places)]


def with_known_items(code: types.CodeType, variables: Mapping[str, Any]) -> types.CodeType | None:
    """Return code that has lengths and items of such lists in variables; None if there are none.

    `variables`: the global ones.
    """
    if "len" in variables:
        return None  # it may be something else

    def rewrite(instructions: list[Instruction]) -> tuple[list[Instruction], list[str]]:
        found = _lists(instructions, CodeFlow(instructions, code), code)
        return _written(instructions, found), [name for each in found for name in each.variables()]

    instructions = cleaned_instructions(code)
    if not _lists(instructions, CodeFlow(instructions, code), code):
        return None
    return with_more_variables(code, rewrite)


def _lists(
    instructions: Sequence[Instruction], flow: CodeFlow, code: types.CodeType
) -> list[_List]:
    """The lists that a loop appends to and looks at, and that nobody else has seen by then."""
    in_loops = frozenset[int]().union(*flow.loops().values())
    made: dict[str, _List] = {}
    for index in sorted(flow.depths):
        found = instructions[index]
        if "FAST" in found.opname and not flow.is_cell(found.argval):
            known = made.setdefault(found.argval, _List(found.argval))
            _note(known, index, instructions, flow)
    return [
        known
        for known in made.values()
        if known.name not in parameters_of(code)
        and in_loops.intersection(known.looks)
        and in_loops.intersection(append.begin for append in known.appends)
        and not _is_seen(known, flow, code)
    ]


def _note(known: _List, index: int, instructions: Sequence[Instruction], flow: CodeFlow) -> None:
    """Note what an instruction has to do with a variable."""
    found, behind = instructions[index], instructions[index + 1 : index + 3]
    if found.opname in STORES and stores_new_list(instructions, flow, index):
        known.stores.append(index)
    elif found.opname not in LOADS:
        known.others.append(index)
    elif (append := append_at(instructions, flow, index)) is not None:
        known.appends.append(append)
    elif (place := _place(behind)) is not None and -_MOST_ITEMS <= place < _MOST_ITEMS:
        known.items[index] = place
    elif index and (end := end_of_call(instructions, flow, index - 1, "len")) is not None:
        known.lengths[index] = (index - 1, end)
    elif behind[0].opname in _ASK_FOR_TRUTH or _jumps_by_truth(behind[0]):
        known.truths.append(index)
    else:
        known.others.append(index)


def _place(behind: Sequence[Instruction]) -> int | None:
    """The item that instructions look up of what is on the stack, if they do."""
    if [each.opname for each in behind] != ["LOAD_CONST", "BINARY_SUBSCR"]:
        return None
    return behind[0].argval if type(behind[0].argval) is int else None


def _jumps_by_truth(instruction: Instruction) -> bool:
    return instruction.opname.startswith("POP_JUMP") and "NONE" not in instruction.opname


def _is_seen(known: _List, flow: CodeFlow, code: types.CodeType) -> bool:
    """Whether a variable may have something else than a list of which nobody knows."""
    used = [*known.looks, *(append.begin for append in known.appends)]
    if not all(known.name in flow.assigned_at(index, parameters_of(code)) for index in used):
        return True
    before = set[int]().union(*map(flow.leading_to, used))
    return not before.isdisjoint(known.others)


def _written(instructions: Sequence[Instruction], found: Sequence[_List]) -> list[Instruction]:
    """Return instructions that keep and ask the variables."""
    before: dict[int, list[Instruction]] = {}
    behind: dict[int, list[Instruction]] = {}
    for known in found:
        for index in known.stores:  # behind all stores of the statement
            while instructions[index + 1].opname in STORES:
                index += 1
            behind[index] = [*behind.get(index, []), *_known_behind(known)]
        for append in known.appends:
            before[append.takes] = _noted(known)
        for index, place in known.items.items():
            _ask(instructions[index : index + 3], known, place, behind, index + 2)
        for index, (load, end) in known.lengths.items():
            behind[load] = calling(length_of, instructions, load, end)
            instructions[index].argval = known.length
        for index in known.truths:
            instructions[index].argval = known.length
    kept: list[Instruction] = []
    for index, each in enumerate(instructions):
        kept += beside(each, before.get(index, ()))
        kept += [each, *beside(each, behind.get(index, ()))]
    return with_handlers(kept, {*kept}, 0)


def _known_behind(known: _List) -> list[Instruction]:
    """Have variables know a new list."""
    names = known.variables()
    return [
        create_instruction("LOAD_CONST", argval=ItemsOf(known.first, known.last)),
        _load(known.name),
        create_instruction("BINARY_SUBSCR"),
        create_instruction("UNPACK_SEQUENCE", arg=len(names)),
        *map(_store, names),
    ]


def _noted(known: _List) -> list[Instruction]:
    """Have variables know what is on top of the stack, which is appended next."""
    made: list[Instruction] = []
    for place in range(known.first):
        end = create_instruction("NOP")
        made += _compared(known.length, "==", place)
        made += [create_instruction(JUMP_IF_NOT, target=end)]
        made += [create_instruction("COPY", arg=1), _store(known.item(place)), end]
    for place in range(-known.last, -1):
        made += [_load(known.item(place + 1)), _store(known.item(place))]
    if known.last:
        made += [create_instruction("COPY", arg=1), _store(known.item(-1))]
    return [
        *made,
        _load(known.length),
        create_instruction("LOAD_CONST", argval=1),
        create_instruction("BINARY_OP", arg=_ADD),
        _store(known.length),
    ]


def _ask(
    look: Sequence[Instruction],
    known: _List,
    place: int,
    behind: dict[int, list[Instruction]],
    last: int,
) -> None:
    """Have instructions that look up an item of a list ask a variable; raise where there is none.

    `behind`: what is added behind an instruction, the last one of these among them.
    """
    fewest = -place if place < 0 else place + 1
    end, missing = create_instruction("NOP"), create_instruction("BUILD_LIST", arg=0)
    for each, other in zip(look, _compared(known.length, ">=", fewest), strict=True):
        become(each, other)
    behind[last] = [
        create_instruction(JUMP_IF_NOT, target=missing),
        _load(known.item(place)),
        create_instruction("JUMP_FORWARD", target=end),
        missing,
        create_instruction("LOAD_CONST", argval=place),
        create_instruction("BINARY_SUBSCR"),
        end,
    ]


def _compared(name: str, operator: str, number: int) -> list[Instruction]:
    return [
        _load(name),
        create_instruction("LOAD_CONST", argval=number),
        create_instruction("COMPARE_OP", arg=_COMPARED[operator]),
    ]


_ADD = argument_of("BINARY_OP", "a + b")
_COMPARED = {operator: argument_of("COMPARE_OP", f"a {operator} b") for operator in (">=", "==")}


def _load(name: str) -> Instruction:
    return create_instruction("LOAD_FAST", argval=name)


def _store(name: str) -> Instruction:
    return create_instruction("STORE_FAST", argval=name)
