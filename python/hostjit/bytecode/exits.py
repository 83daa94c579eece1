# SPDX-License-Identifier: Apache-2.0
"""Tests by which loops are left early, `if residual < limit: break`, as questions.

At such a test a recording is asked for the answer, and is told what the variables have that are
needed behind the loop; there, it is asked what these become. Where the call that is recorded stays,
others may leave: its replays select what was there at the test.
"""

from __future__ import annotations

import dataclasses
import itertools
import types
from collections.abc import Iterator, Sequence
from typing import Any

from torch._dynamo.bytecode_transformation import (
    Instruction,
    add_push_null,
    create_call_function,
    create_instruction,
)

from hostjit.bytecode.appended import become, beside
from hostjit.bytecode.chooser import current_chooser
from hostjit.bytecode.flow import CodeFlow
from hostjit.bytecode.handlers import with_handlers
from hostjit.bytecode.making import kind_of_variable
from hostjit.bytecode.rewriting import with_more_variables
from hostjit.bytecode.splits import parameters_of
from hostjit.bytecode.unset_variables import marked

__all__ = ["Exit", "Leave", "instructions_of_exits", "is_test", "with_exits"]

_ANSWERED = "hostjit_answered"
# What is done on the way out of a loop, besides jumps.
_ON_THE_WAY = frozenset(
    {
        *("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"),
        *("NOP", "NOT_TAKEN", "POP_TOP", "END_FOR", "POP_ITER"),
    }
)


@dataclasses.dataclass(frozen=True, eq=False)
class Exit:
    """The place behind a loop.

    Attributes:
        names: the variables that are needed there.
        code: of the function whose they are, as it was written.
    """

    names: tuple[str, ...]
    code: types.CodeType

    def __call__(self, *values: Any) -> Sequence[Any]:
        chooser = current_chooser()
        return values if chooser is None else chooser.arrive(self, values)


@dataclasses.dataclass(frozen=True, eq=False)
class Leave:
    """A test by which a loop is left.

    Attributes:
        exit: where that leads to.
        answer: the one by which it is left.
    """

    exit: Exit
    answer: bool

    def __call__(self, test: Any, *values: Any) -> bool:
        chooser = current_chooser()
        return bool(test) if chooser is None else chooser.leave(self, test, values)


def is_test(name: str) -> bool:
    """Tell whether an operation asks for the truth of something, and jumps by that."""
    return name.startswith("POP_JUMP") and not name.endswith("NONE")


def with_exits(code: types.CodeType, origin: types.CodeType) -> types.CodeType | None:
    """Return code that asks for each test by which loops are left early; None if none is known.

    `origin`: the code as it was written.
    """
    found, unset = 0, set[str]()

    def rewrite(instructions: list[Instruction]) -> tuple[list[Instruction], list[str]]:
        nonlocal found
        instructions = _with_single_ends(instructions)
        exits = _Exits(instructions, code)
        made = exits.written(origin)
        found = len(exits.tests)
        unset.update(exits.unset)
        return with_handlers(made, {*made}, 0), [_ANSWERED]

    made = with_more_variables(code, rewrite)
    if unset and (code_with_marks := marked(code, unset)) is not None:
        return with_exits(code_with_marks, origin)
    return made if found else None


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
    assert {each.target for each in kept} <= {None, *kept}  # Dynamo would refuse it, too
    return kept


def _is_of_return(instructions: Sequence[Instruction], index: int) -> bool:
    """Whether an instruction leads to the next alone, and is of the statement of the next."""
    each, after = instructions[index], instructions[index + 1]
    if each.target is not None or each.opname in _ON_THE_WAY or each.positions is None:
        return False
    return each.positions.lineno == after.positions.lineno if after.positions else False


def _written(instruction: Instruction) -> tuple[Any, ...]:
    argument = instruction.argval
    entry = instruction.exn_tab_entry
    handler = None if entry is None else id(entry.target)
    return instruction.opname, type(argument), repr(argument), instruction.positions, handler


class _Exits:
    """The tests by which the loops of some code are left.

    Attributes:
        tests: what each of them is, by index.
        unset: variables that are needed behind some, and may have no value there.
    """

    def __init__(self, instructions: Sequence[Instruction], code: types.CodeType) -> None:
        self._instructions = instructions
        self._code = code
        self._flow = CodeFlow(instructions, code)
        self.tests: dict[int, Leave] = {}
        self.unset: set[str] = set()

    def written(self, origin: types.CodeType) -> list[Instruction]:
        """Return the instructions with questions."""
        exits: dict[int, Exit | None] = {}
        for index, place, answer in self._leaving():
            if place not in exits:
                exits[place] = self._exit(place, origin)
            found = exits[place]
            if found is not None and self._have_values(found.names, index):
                self.tests[index] = Leave(found, answer)
        asked = {leave.exit for leave in self.tests.values()}
        places = {place: each for place, each in exits.items() if each in asked and each}
        blocks = {place: self._arrived(place, each) for place, each in places.items()}
        firsts = {self._instructions[place]: block[0] for place, block in blocks.items()}
        made: list[Instruction] = []
        for index, each in enumerate(self._instructions):
            if each.target is not None:
                each.target = firsts.get(each.target, each.target)
            made += blocks.get(index, ())
            if index in self.tests:
                asked_for = self._asked(index, self.tests[index])
                at = len(made) - (made[-1].opname == "TO_BOOL")
                made[at:at] = asked_for
            made.append(each)
        return made

    def _leaving(self) -> Iterator[tuple[int, int, bool]]:
        """Yield tests by which loops are left, where that leads to, and by which answers.

        And those ahead of a loop that lead there: CPython's compiler repeats the test of a `while`.
        """
        loops = [*self._flow.loops().values()]
        tests = [i for i, each in enumerate(self._instructions) if is_test(each.opname)]
        places: set[int] = set()
        for index in sorted(tests, key=lambda i: not any(i in inside for inside in loops)):
            if index not in self._flow.depths:
                continue
            inside = min((each for each in loops if index in each), key=len, default=frozenset())
            for after, jumps in self._flow.successors(index):
                place = None if after in inside else self._behind(after)
                if place is None or not (inside or place in places):
                    continue
                stays = next(way for way, _ in self._flow.successors(index) if way != after)
                if self._has_same_stack(stays, place):
                    places.add(place)
                    answer = self._instructions[index].opname.endswith("TRUE") == jumps
                    yield index, place, answer
                    break

    def _behind(self, index: int) -> int | None:
        """Where something leads to that does nothing but to leave a loop."""
        seen = set[int]()
        while self._instructions[index].opname in _ON_THE_WAY:
            if index in seen:
                return None
            seen.add(index)
            index = self._flow.successors(index)[0][0]
        return index

    def _has_same_stack(self, stays: int, place: int) -> bool:
        """Whether what is on the stack at a place is as it was before code that stays in a loop."""
        depth = self._flow.depths[place]
        between = self._flow.reached(stays, {place}) & self._flow.leading_to(place)
        if not between or not all(map(self._flow.depths.__contains__, between)):
            return False
        if any(self._flow.depths[i] < depth for i in between):
            return False
        moved = (i for i in between if self._instructions[i].opname == "FOR_ITER")
        return all(self._flow.depths[i] > depth for i in moved)

    def _exit(self, place: int, origin: types.CodeType) -> Exit | None:
        names = sorted(self._flow.needed_by(place))
        changed = self._flow.changed_in(self._flow.leading_to(place))
        if any(self._flow.is_cell(name) and name in changed for name in names):
            return None  # what others know of it is not what it becomes
        return Exit(tuple(names), origin) if self._have_values(names, place) else None

    def _have_values(self, names: Sequence[str], index: int) -> bool:
        missing = {*names} - self._flow.assigned_at(index, parameters_of(self._code))
        self.unset |= {name for name in missing if not self._flow.is_cell(name)}
        return not missing

    def _loaded(self, names: Sequence[str]) -> list[Instruction]:
        return [
            create_instruction(f"LOAD_{kind_of_variable(name, self._code)}", argval=name)
            for name in names
        ]

    def _asked(self, index: int, leave: Leave) -> list[Instruction]:
        names = leave.exit.names
        test = [create_instruction("STORE_FAST", argval=_ANSWERED)]
        given = [create_instruction("LOAD_FAST", argval=_ANSWERED), *self._loaded(names)]
        asked = [*test, *_called(leave, given)]
        return beside(self._instructions[index], asked)

    def _arrived(self, place: int, found: Exit) -> list[Instruction]:
        kept = {name for name in found.names if self._flow.is_cell(name)}
        stored = [
            create_instruction("POP_TOP")
            if name in kept
            else create_instruction("STORE_FAST", argval=name)
            for name in found.names
        ]
        made = [
            *_called(found, self._loaded(found.names)),
            create_instruction("UNPACK_SEQUENCE", arg=len(found.names)),
            *stored,
        ]
        return beside(self._instructions[place], made)


def _called(function: Any, given: Sequence[Instruction]) -> list[Instruction]:
    load = add_push_null(create_instruction("LOAD_CONST", argval=function))
    return [*load, *given, *create_call_function(len(given), False)]


def instructions_of_exits(instructions: Sequence[Instruction]) -> frozenset[int]:
    """Return the indices of instructions that ask, from what loads a question to its call."""
    found: set[int] = set()
    for begin, each in enumerate(instructions):
        if isinstance(each.argval, Leave | Exit):
            calls = (i for i in itertools.count(begin) if instructions[i].opname == "CALL")
            found |= {*range(begin, next(calls) + 1)}
    return frozenset(found)
