# SPDX-License-Identifier: Apache-2.0
"""Regions of the code of a function, each as a function of its own that the code calls.

A region is entered at one instruction. Its function takes the variables that it needs, and returns
those that it changes and others need: which these are depends on where the region is left.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import inspect
import itertools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any

from torch._dynamo.bytecode_transformation import (
    Instruction,
    InstructionExnTabEntry,
    add_push_null,
    create_call_function,
    create_instruction,
)

from hostjit.bytecode.appended import Append, appended_lists, appends_in_place, own_list
from hostjit.bytecode.flow import CodeFlow
from hostjit.bytecode.handlers import with_handlers
from hostjit.bytecode.kept_functions import keeps_functions
from hostjit.bytecode.local_functions import LocalFunction, local_functions
from hostjit.bytecode.making import JUMP_IF_NOT, begin_of, transformed
from hostjit.bytecode.splits import parameters_of

__all__ = ["Region", "code_of_region", "find_region", "with_calls_of_regions"]

_ITEM = "hostjit_item"
_MOST = "hostjit_most"
_STEP = "hostjit_step"
_LEFT_AT = "hostjit_left_at"
# What gives a function its variables of functions around it: of MAKE_FUNCTION, from CPython 3.13 on
# of an instruction of its own.
_CLOSURE = 8
_SETS_ATTRIBUTES = "SET_FUNCTION_ATTRIBUTE" in dis.opmap
_LOAD_CELL = "LOAD_FAST" if _SETS_ATTRIBUTES else "LOAD_CLOSURE"
_SAFE = frozenset({"JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_FORWARD", "NOP"})
if sys.version_info >= (3, 13):  # these are given bools alone
    _SAFE |= {name for name in dis.opmap if name.startswith("POP_JUMP_IF")}
# Operations that change or move what is below by as much as they say, and how many they take first.
_ABOVE = {
    **dict.fromkeys(("SWAP", "COPY"), 0),
    **dict.fromkeys(("LIST_APPEND", "SET_ADD", "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE"), 1),
    "MAP_ADD": 2,
    "DICT_MERGE": 3,
}


@dataclasses.dataclass(frozen=True)
class Region:
    """What the code does from one instruction on.

    Attributes:
        entry: the index of the instruction.
        inside: those of all its instructions.
        has_item: the code around leaves a value on the stack, the item of a pass of a loop.
        is_of_iterator: below that is the iterator of a loop, which is given to what is called for
            a pass, last. The function itself is given how many passes it may run there, and says
            behind the variables how many it ran, where the next follows: one.
        depth: how many values are below that item.
        taken: the variables that it needs.
        exits: where it is left, by the index of the instruction that follows, and the variables
            that it leaves there.
        returns: it may return, too.
        appends: what it appends to lists of the code around. In the place of such a list, its
            function returns what is to be appended to that.
        functions: those that it makes for itself, in the place of those of the code around.
    """

    entry: int
    inside: frozenset[int]
    has_item: bool
    is_of_iterator: bool
    depth: int
    taken: tuple[str, ...]
    exits: tuple[tuple[int, tuple[str, ...]], ...]
    returns: bool
    appends: tuple[Append, ...]
    functions: tuple[LocalFunction, ...]

    @functools.cached_property
    def appended(self) -> frozenset[str]:
        """The variables of the lists that it appends to."""
        return frozenset(each.name for each in self.appends)

    @property
    def tells_where(self) -> bool:
        """Whether what its function returns begins with where the region was left."""
        return len(self.exits) + self.returns > 1

    def counts_at(self, place: int) -> bool:
        """Tell whether what its function returns at an exit ends with how many passes it ran."""
        return self.is_of_iterator and place == 0


def find_region(
    instructions: Sequence[Instruction],
    flow: CodeFlow,
    code: types.CodeType,
    entry: int,
    inside: Set[int],
    *,
    has_item: bool = False,
    is_of_iterator: bool = False,
    again: int | None = None,
    wanted: Set[str] = frozenset(),
) -> Region | None:
    """Describe a region; None where it has more to do with the code around than variables.

    Args:
        instructions: of the code.
        flow: of the code.
        code: of the function.
        entry: the index of the instruction that the region begins with.
        inside: those of its instructions; see `CodeFlow.closed`.
        has_item: the code around leaves a value on the stack for it.
        is_of_iterator: below is the iterator of a loop.
        again: it is a pass of a loop, and the index of the instruction that the next one follows.
        wanted: variables that what follows needs, though the code there does not.
    """
    inside = flow.closed(entry, inside)
    depth = flow.depths[entry] - has_item
    if not (flow.knows(inside) and flow.is_entered_at(entry, inside)):
        return None
    if len(_handlers_around(inside, instructions)) > 1:
        return None
    changed = flow.changed_in(inside)
    if any(changed & flow.needed_by(each) for each in flow.handlers_outside(inside)):
        return None
    appends = appended_lists(instructions, flow, parameters_of(code), entry, inside)
    appended = {each.name for each in appends}
    ahead = flow.assigned_at(entry, parameters_of(code))
    behind = flow.assigned_behind(entry, inside)

    def needed(index: int, inside: Set[int] | None = None) -> frozenset[str]:
        # A context that hides an error leaves variables as they are, where they have a value.
        certain = flow.needed_by(index, inside, hides_errors=False)
        return certain | (flow.needed_by(index, inside) & ahead)

    exits: dict[int, tuple[str, ...]] = {}
    taken = needed(entry, inside)
    for index in sorted(inside):
        for after, _ in flow.successors(index):
            if after in inside and after != entry:
                continue
            given = (changed | appended) & (needed(after) | wanted)
            exits[after] = tuple(sorted(given))
            taken |= given - behind.get(index, given)
    taken -= appended
    made = local_functions(instructions, flow, parameters_of(code))
    functions: list[LocalFunction] = []
    while found := [made.pop(name) for name in taken & made.keys() & ahead - changed]:
        functions += found
        known = frozenset[str]().union(*(each.known for each in found)) - {*code.co_freevars}
        taken = (taken | known) - {each.name for each in functions}
    returns = any(instructions[i].opname.startswith("RETURN") for i in inside)
    passed = taken.union(*exits.values())
    if (
        not (exits or returns)  # it raises
        or any(flow.depths[after] != depth for after in exits)
        or any(_lowest(instructions[i], flow.depths[i]) < depth for i in inside)
        or (returns and depth)
        or not taken <= ahead
        or any(map(flow.is_cell, frozenset[str]().union(*exits.values())))
        or not flow.may_have_own(passed, entry, inside)
        or (
            any(entry in flow.reached(after) for after in exits)
            and keeps_functions(
                instructions, flow, inside, {*filter(flow.is_cell, changed)}, passed
            )
        )
    ):
        return None
    # Most often a pass of a loop is left for the next one.
    order = sorted(exits, key=lambda after: after != again)
    left = tuple((each, exits[each]) for each in order)
    return Region(
        entry,
        frozenset(inside),
        has_item,
        is_of_iterator,
        depth,
        tuple(sorted(taken)),
        left,
        returns,
        appends,
        tuple(sorted(functions, key=lambda each: each.begin)),
    )


def _lowest(instruction: Instruction, depth: int) -> int:
    """How many values on the stack an instruction leaves alone, if it is one of `_ABOVE`."""
    above = _ABOVE.get(instruction.opname)
    return depth if above is None else depth - above - (instruction.arg or 0)


def code_of_region(code: types.CodeType, region: Region) -> types.CodeType:
    """Return the code of the function of a region."""
    item = _unused(_ITEM, code)
    parameters = (*([item] if region.has_item else []), *region.taken)
    if region.is_of_iterator:
        parameters = (*parameters, _unused(_MOST, code), _unused(_STEP, code))

    def transform(instructions: list[Instruction], options: dict[str, Any]) -> None:
        ends = {
            after: _end(region, place, names) for place, (after, names) in enumerate(region.exits)
        }
        begin = begin_of(instructions)
        start = [create_instruction("LOAD_FAST", argval=item)] if region.has_item else []
        for name in sorted(region.appended):
            start.append(create_instruction("BUILD_LIST", arg=0))
            start.append(create_instruction("STORE_FAST", argval=own_list(name)))
        for function in region.functions:
            start += function.made_anew(instructions)
        start.append(create_instruction("NOP"))
        start[0].copy_positions(instructions[region.entry])
        if min(region.inside) != region.entry:
            start.append(create_instruction("JUMP_FORWARD", target=instructions[region.entry]))
        targets = {instructions[after]: end[0] for after, end in ends.items()}
        kept: list[Instruction] = []
        flow = CodeFlow(instructions, code)
        for append in region.appends:
            appends_in_place(instructions, append)
        for i in sorted(region.inside):
            now = instructions[i]
            kept += _returned(now, region)
            for after, jumps in flow.successors(i):
                if after in ends and not jumps:
                    kept.append(create_instruction("JUMP_FORWARD", target=ends[after][0]))
        for each in kept:
            if each.target is not None:
                each.target = targets.get(each.target, each.target)
        own = {instructions[i] for i in region.inside}
        code_now = [
            *instructions[:begin],
            *start,
            *kept,
            *(each for end in ends.values() for each in end),
        ]
        instructions[:] = with_handlers(code_now, own, region.depth)
        names = [name for name in options["co_varnames"] if name not in parameters]
        names += map(own_list, sorted(region.appended))
        options["co_varnames"] = (*parameters, *names)
        options["co_argcount"] = len(parameters)
        options["co_posonlyargcount"] = options["co_kwonlyargcount"] = 0
        options["co_flags"] &= ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)

    return transformed(code, transform)


def with_calls_of_regions(
    code: types.CodeType, calls: Iterable[tuple[Region, Callable[..., Any] | types.CodeType]]
) -> types.CodeType:
    """Return code that does the same, and calls these where some of its regions were.

    Code is made a function at each call, in the place of the code around.
    """
    called = {region.entry: (region, run) for region, run in calls}
    inside = frozenset[int]().union(*(region.inside for region, _ in called.values()))

    def transform(instructions: list[Instruction], options: dict[str, Any]) -> None:
        blocks = {
            entry: _call(region, run, instructions, code) for entry, (region, run) in called.items()
        }
        targets = {instructions[entry]: block[0] for entry, block in blocks.items()}
        kept: list[Instruction] = []
        reached = CodeFlow(instructions, code).reached(0)
        for i, each in enumerate(instructions):
            if i in blocks:
                kept += blocks[i]
            elif i in reached and i not in inside:
                kept.append(each)
        for each in kept:
            if each.target is not None:
                each.target = targets.get(each.target, each.target)
        instructions[:] = with_handlers(kept, {*kept}, 0)
        names = (_unused(_ITEM, code), _unused(_LEFT_AT, code))
        options["co_varnames"] = (*options["co_varnames"], *names)

    return transformed(code, transform)


def _unused(name: str, code: types.CodeType) -> str:
    while name in code.co_varnames:
        name += "_"
    return name


def _end(region: Region, place: int, names: Sequence[str]) -> list[Instruction]:
    """Leave a region."""
    told = [create_instruction("LOAD_CONST", argval=place)] if region.tells_where else []
    counted = [create_instruction("LOAD_CONST", argval=1)] if region.counts_at(place) else []
    return [
        *told,
        *(
            create_instruction(
                "LOAD_FAST", argval=own_list(name) if name in region.appended else name
            )
            for name in names
        ),
        *counted,
        create_instruction("BUILD_TUPLE", arg=len(told) + len(names) + len(counted)),
        create_instruction("RETURN_VALUE"),
    ]


def _returned(instruction: Instruction, region: Region) -> Iterator[Instruction]:
    """Return from the function of a region."""
    if not (region.tells_where and instruction.opname.startswith("RETURN")):
        yield instruction
        return
    assert instruction.opname == "RETURN_VALUE"
    tell = create_instruction("LOAD_CONST", argval=len(region.exits))
    tell.copy_positions(instruction)
    entry = instruction.exn_tab_entry
    for each in (tell, create_instruction("SWAP", arg=2), create_instruction("BUILD_TUPLE", arg=2)):
        each.exn_tab_entry = entry
        yield each
    yield instruction


def _call(
    region: Region,
    run: Callable[..., Any] | types.CodeType,
    instructions: Sequence[Instruction],
    code: types.CodeType,
) -> list[Instruction]:
    """Call the function of a region, and go on where it was left."""
    item, left_at = _unused(_ITEM, code), _unused(_LEFT_AT, code)
    keep = [create_instruction("STORE_FAST", argval=item)] if region.has_item else []
    given = [create_instruction("LOAD_FAST", argval=item)] if region.has_item else []
    given += [
        create_instruction("LOAD_DEREF" if name in code.co_cellvars else "LOAD_FAST", argval=name)
        for name in region.taken
    ]
    if region.is_of_iterator:
        if isinstance(run, types.CodeType):  # which runs one pass
            given += [create_instruction("LOAD_CONST", argval=number) for number in (1, 0)]
        else:  # the iterator is below two values for what is called, and its arguments
            given.append(create_instruction("COPY", arg=len(given) + 3))
    block = [
        *keep,
        *add_push_null(_load(run, code)),
        *given,
        *create_call_function(len(given), False),
    ]
    block[0].copy_positions(instructions[region.entry])
    if not region.tells_where:
        if region.returns:
            block.append(create_instruction("RETURN_VALUE"))
        for after, names in region.exits:
            target = block[0] if after == region.entry else instructions[after]
            block += _go_on(region, 0, names, target)
    else:
        block += [
            create_instruction("COPY", arg=1),
            create_instruction("LOAD_CONST", argval=0),
            create_instruction("BINARY_SUBSCR"),
            create_instruction("STORE_FAST", argval=left_at),
        ]
        for place, (after, names) in enumerate(region.exits):
            target = block[0] if after == region.entry else instructions[after]
            here = _go_on(region, place, names, target)
            if place + 1 < len(region.exits) + region.returns:
                other = create_instruction("NOP")
                block += [
                    create_instruction("LOAD_FAST", argval=left_at),
                    create_instruction("LOAD_CONST", argval=place),
                    create_instruction("IS_OP", arg=0),
                    create_instruction(JUMP_IF_NOT, target=other),
                    *here,
                    other,
                ]
            else:
                block += here
        if region.returns:
            block += [
                create_instruction("LOAD_CONST", argval=1),
                create_instruction("BINARY_SUBSCR"),
                create_instruction("RETURN_VALUE"),
            ]
    for outer in _handlers_around(region.inside, instructions).values():
        for each in block:
            each.exn_tab_entry = outer
    return block


def _load(run: Callable[..., Any] | types.CodeType, code: types.CodeType) -> list[Instruction]:
    """Load what is called for a region."""
    load = create_instruction("LOAD_CONST", argval=run)
    if not isinstance(run, types.CodeType):
        return [load]
    cells = [create_instruction(_LOAD_CELL, argval=name) for name in code.co_freevars]
    if not cells:
        return [load, create_instruction("MAKE_FUNCTION", arg=0)]
    closure = [*cells, create_instruction("BUILD_TUPLE", arg=len(cells))]
    if _SETS_ATTRIBUTES:
        make = [create_instruction("MAKE_FUNCTION")]
        make.append(create_instruction("SET_FUNCTION_ATTRIBUTE", arg=_CLOSURE))
    else:
        make = [create_instruction("MAKE_FUNCTION", arg=_CLOSURE)]
    return [*closure, load, *make]


def _go_on(
    region: Region, place: int, names: Sequence[str], target: Instruction
) -> list[Instruction]:
    """Give variables what the function of a region has returned where it was left."""
    is_told, is_counted = region.tells_where, region.counts_at(place)
    stored = [_appended(name) if name in region.appended else _stored(name) for name in names]
    return [
        create_instruction("UNPACK_SEQUENCE", arg=len(names) + is_told + is_counted),
        *([create_instruction("POP_TOP")] if is_told else []),
        *itertools.chain(*stored),
        *([create_instruction("POP_TOP")] if is_counted else []),
        create_instruction("JUMP_FORWARD", target=target),
    ]


def _stored(name: str) -> list[Instruction]:
    return [create_instruction("STORE_FAST", argval=name)]


def _appended(name: str) -> list[Instruction]:
    """Append what is in a list on the stack to that in a variable."""
    return [
        create_instruction("LOAD_FAST", argval=name),
        create_instruction("SWAP", arg=2),
        create_instruction("LIST_EXTEND", arg=1),
        create_instruction("POP_TOP"),
    ]


def _handlers_around(
    inside: Set[int], instructions: Sequence[Instruction]
) -> dict[Instruction | None, InstructionExnTabEntry | None]:
    """What handles the errors that some code does not handle, by its first instruction."""
    own = {instructions[i] for i in inside}
    found = {}
    # From CPython 3.12 on, nothing handles errors of what raises none.
    raising = (instructions[i] for i in sorted(inside) if instructions[i].opname not in _SAFE)
    for entry in (each.exn_tab_entry for each in raising):
        handler = None if entry is None else entry.target
        if handler not in own:
            found[handler] = entry
    return found
