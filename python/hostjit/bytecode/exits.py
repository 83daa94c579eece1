# SPDX-License-Identifier: Apache-2.0
"""Tests by which loops are left early, `if residual < limit: break`, as questions.

At such a test a recording is asked for the answer, and is told what the variables have that are
needed behind the loop; there, it is asked what these become. Where the call that is recorded stays,
others may leave: its replays select what was there at the test.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import itertools
import types
from collections.abc import Sequence
from typing import Any

from torch._dynamo.bytecode_transformation import (
    Instruction,
    add_push_null,
    cleaned_instructions,
    create_call_function,
    create_instruction,
)

from hostjit.bytecode.appended import beside
from hostjit.bytecode.chooser import current_chooser
from hostjit.bytecode.code_places import place_of_call
from hostjit.bytecode.computing import Facts, Statements, is_test
from hostjit.bytecode.flow import CodeFlow, is_over_range
from hostjit.bytecode.handlers import with_handlers
from hostjit.bytecode.made_code import note_way
from hostjit.bytecode.making import function_of, kind_of_variable, transformed
from hostjit.bytecode.regions import code_of_region, find_region
from hostjit.bytecode.splits import parameters_of
from hostjit.bytecode.unset_variables import marked

__all__ = [
    "Exit",
    "LastStatements",
    "Leave",
    "calls_alone",
    "instructions_of_exits",
    "with_exits",
]

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
class LastStatements:
    """What a loop does where it is left, `if residual < limit: found = x; break`.

    Attributes:
        function: takes variables; returns the tuple of those that it changes.
        taken: the variables that it takes.
        given: those that it changes, and that are needed behind the loop.
        facts: of its statements.
    """

    function: types.FunctionType
    taken: tuple[str, ...]
    given: tuple[str, ...]
    facts: Facts


@dataclasses.dataclass(frozen=True, eq=False)
class Leave:
    """A test by which a loop is left.

    Attributes:
        exit: where that leads to.
        answer: the one by which it is left.
        last: what is done then; None where that is nothing.
    """

    exit: Exit
    answer: bool
    last: LastStatements | None

    @property
    def taken(self) -> tuple[str, ...]:
        """The variables that it is given besides what the test has found."""
        taken, given = ((), ()) if self.last is None else (self.last.taken, self.last.given)
        return (*taken, *(name for name in self.exit.names if name not in given))

    def __call__(self, test: Any, *taken: Any) -> bool:
        chooser = current_chooser()
        return bool(test) if chooser is None else chooser.leave(self, test, taken)


def with_exits(function: types.FunctionType, origin: types.CodeType) -> types.FunctionType | None:
    """Return a function that asks for each test by which loops are left early; None if none is.

    `origin`: its code as it was written.
    """
    code = function.__code__
    try:
        exits = _Exits(function, code, origin)
        made = function_of(function, exits.made_code())
    except (AssertionError, LookupError):
        return None  # Dynamo's assembler refuses code
    if exits.unset and (with_marks := marked(code, exits.unset)) is not None:
        return with_exits(function_of(function, with_marks), origin)
    return made if exits.tests else None


class _Exits:
    """The tests by which the loops of some code are left.

    Attributes:
        tests: what each of them is, by index.
        unset: variables that are needed behind some, and may have no value there.
    """

    def __init__(
        self, function: types.FunctionType, code: types.CodeType, origin: types.CodeType
    ) -> None:
        """Find them. `function`: whose code it is; `origin`: as it was written."""
        self._function, self._code, self._origin = function, code, origin
        self._instructions = cleaned_instructions(code)
        self._flow = CodeFlow(self._instructions, code)
        self._statements = Statements(self._instructions, self._flow)
        self._loops = [*self._flow.loops().values()]
        self._exits: dict[int, Exit | None] = {}
        self.tests: dict[int, Leave] = {}
        self.unset: set[str] = set()
        for index in self._tests():
            if (found := self._leave(index)) is not None:
                self.tests[index] = found

    def made_code(self) -> types.CodeType:
        """Return code that asks."""
        asked = {id(leave.exit) for leave in self.tests.values()}
        places = {place: each for place, each in self._exits.items() if id(each) in asked}

        def rewrite(instructions: list[Instruction], options: dict[str, Any]) -> None:
            blocks = {
                place: self._arrived(instructions[place], each)
                for place, each in places.items()
                if each is not None
            }
            firsts = {instructions[place]: block[0] for place, block in blocks.items()}
            made: list[Instruction] = []
            for index, each in enumerate(instructions):
                if each.target is not None:
                    each.target = firsts.get(each.target, each.target)
                made += blocks.get(index, ())
                if index in self.tests:
                    at = len(made) - (made[-1].opname == "TO_BOOL")
                    made[at:at] = self._asked(each, self.tests[index])
                made.append(each)
            instructions[:] = with_handlers(made, {*made}, 0)
            options["co_varnames"] = (*options["co_varnames"], _ANSWERED)

        return transformed(self._code, rewrite)

    def _tests(self) -> list[int]:
        """The tests of the code, those in loops first.

        Ahead of a `while`, CPython's compiler repeats its test: that leads behind the loop, too.
        """
        tests = (i for i, each in enumerate(self._instructions) if is_test(each.opname))
        known = [i for i in tests if i in self._flow.depths]
        return sorted(known, key=lambda i: self._loop_around(i) is None)

    def _loop_around(self, index: int) -> frozenset[int] | None:
        around = (inside for inside in self._loops if index in inside)
        return min(around, key=len, default=None)

    def _leave(self, index: int) -> Leave | None:
        """What a test is, if a loop is left by it."""
        inside = self._loop_around(index)
        ways = self._flow.successors(index)
        for after, jumps in ways:
            if inside is not None and after in inside:
                continue
            stays = next(way for way, _ in ways if way != after)
            answer = self._instructions[index].opname.endswith("TRUE") == jumps
            place = self._behind(after)
            is_known = inside is not None or place in self._exits
            if place is not None and is_known and self._has_same_stack(stays, place):
                found = self._exit(place)
                if found is not None and self._have_values(found.names, index):
                    return Leave(found, answer, None)
            elif inside is not None and (last := self._left_behind(after, stays)) is not None:
                leave = Leave(last[0], answer, last[1])
                if self._have_values(leave.taken, index):
                    return leave
        return None

    def _behind(self, index: int) -> int | None:
        """Where something leads to that does nothing but to leave a loop."""
        seen = set[int]()
        while self._instructions[index].opname in _ON_THE_WAY:
            if index in seen:
                return None
            seen.add(index)
            index = self._flow.successors(index)[0][0]
        return index

    def _left_behind(self, after: int, stays: int) -> tuple[Exit, LastStatements] | None:
        """Where a loop is left behind statements that compute, and what these are."""
        base = self._flow.depths[after]
        # What stays in the loop may come to the same statements in another pass of a loop around.
        inside, exits = self._statements.grown(after, base, self._flow.reached(stays, {after}))
        places = {self._behind(each) for each in exits}
        place = next(iter(places), None)
        if not inside or len(places) != 1 or place is None:
            return None
        facts = self._statements.facts({*inside})
        if facts is None or not self._has_same_stack(stays, place):
            return None
        region = find_region(self._instructions, self._flow, self._code, after, {*inside})
        found = self._exit(place)
        if region is None or found is None or region.returns or len(region.exits) != 1:
            return None
        if region.appends or region.functions:
            return None
        body = function_of(self._function, code_of_region(self._code, region))
        body.__defaults__ = body.__kwdefaults__ = None
        note_way(body.__code__, self._origin)
        return found, LastStatements(body, region.taken, region.exits[0][1], facts)

    def _has_same_stack(self, stays: int, place: int) -> bool:
        """Whether what is on the stack at a place is as it was before code that stays in a loop."""
        depth = self._flow.depths[place]
        between = self._flow.reached(stays, {place}) & self._flow.leading_to(place)
        if not between or not all(map(self._flow.depths.__contains__, between)):
            return False
        if any(self._flow.depths[i] < depth for i in between):
            return False
        moved = (i for i in between if self._instructions[i].opname == "FOR_ITER")
        if not all(self._flow.depths[i] > depth for i in moved):
            return False
        return depth == _num_unchanging(self._instructions, self._flow, place)

    def _exit(self, place: int) -> Exit | None:
        if place not in self._exits:
            names = tuple(sorted(self._flow.needed_by(place)))
            changed = self._flow.changed_in(self._flow.leading_to(place))
            # What others know of a variable is not what it becomes.
            is_known = any(self._flow.is_cell(name) and name in changed for name in names)
            found = None if is_known else Exit(names, self._origin)
            self._exits[place] = found if self._have_values(names, place) else None
        return self._exits[place]

    def _have_values(self, names: Sequence[str], index: int) -> bool:
        missing = {*names} - self._flow.assigned_at(index, parameters_of(self._code))
        self.unset |= {name for name in missing if not self._flow.is_cell(name)}
        return not missing

    def _loaded(self, names: Sequence[str]) -> list[Instruction]:
        return [
            create_instruction(f"LOAD_{kind_of_variable(name, self._code)}", argval=name)
            for name in names
        ]

    def _asked(self, test: Instruction, leave: Leave) -> list[Instruction]:
        kept = [create_instruction("STORE_FAST", argval=_ANSWERED)]
        given = [create_instruction("LOAD_FAST", argval=_ANSWERED), *self._loaded(leave.taken)]
        return beside(test, [*kept, *_called(leave, given)])

    def _arrived(self, first: Instruction, found: Exit) -> list[Instruction]:
        stored = [
            create_instruction("POP_TOP")
            if self._flow.is_cell(name)
            else create_instruction("STORE_FAST", argval=name)
            for name in found.names
        ]
        made = [
            *_called(found, self._loaded(found.names)),
            create_instruction("UNPACK_SEQUENCE", arg=len(found.names)),
            *stored,
        ]
        return beside(first, made)


@functools.lru_cache(maxsize=1024)
def calls_alone(code: types.CodeType, offset: int) -> bool:
    """Tell whether code has nothing on the stack that may change while it calls a function.

    Args:
        code: of a function.
        offset: of the call, in bytes, as in `f_lasti` of a frame.
    """
    instructions = cleaned_instructions(code)
    place = place_of_call(instructions, code, offset)
    if place is None:
        return False
    flow = CodeFlow(instructions, code)
    given = 0 if "PRECALL" in dis.opmap else instructions[place].arg or 0
    return flow.depths[place] - 2 - given == _num_unchanging(instructions, flow, place)


def _num_unchanging(instructions: Sequence[Instruction], flow: CodeFlow, place: int) -> int:
    """How many values on the stack no pass can change: contexts, and iterators over ranges."""
    heads = [head for head, inside in flow.loops().items() if place in inside]
    ranges = sum(is_over_range(instructions, flow, head) for head in heads)
    return ranges + flow.num_modes_around(place)


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
