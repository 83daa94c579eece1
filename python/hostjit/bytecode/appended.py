# SPDX-License-Identifier: Apache-2.0
"""Lists that a region of code only appends to, and that nobody sees before it is left.

Its function makes lists of its own, and returns them: what is in these is then appended to the
lists of the code around. A pass of a loop that does `losses.append(loss.item())` changes nothing
that way, and no list that grows is among its arguments.
"""

from __future__ import annotations

import dataclasses
import dis
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any

from torch._dynamo.bytecode_transformation import Instruction, create_instruction

from hostjit.bytecode.flow import LOADS, STORES, CodeFlow

__all__ = [
    "PUSHES",
    "Append",
    "ItemsOf",
    "append_at",
    "appended_lists",
    "appends_in_place",
    "appends_to_new_lists",
    "become",
    "beside",
    "is_own_list",
    "own_list",
    "stores_new_list",
]

_OWN = "hostjit_appended_"
# What takes the arguments of a call from the stack.
_CALLS = "PRECALL" if "PRECALL" in dis.opmap else "CALL"
PUSHES = frozenset({"LOAD_CONST", "LOAD_DEREF", "LOAD_SMALL_INT"}) | LOADS
"""Operations that put values on the stack and do nothing else."""


@dataclasses.dataclass(frozen=True)
class ItemsOf:
    """`ItemsOf(first, last)[items]` is what is in a list: how many items, and some of them.

    Those are the first ones, then from the last one on, None for each that is not there.
    """

    first: int
    last: int

    def __getitem__(self, items: list[Any]) -> tuple[Any, ...]:
        ahead = [items[i] if i < len(items) else None for i in range(self.first)]
        behind = [items[~i] if i < len(items) else None for i in range(self.last)]
        return (len(items), *ahead, *behind)


@dataclasses.dataclass(frozen=True)
class Append:
    """A statement that appends to a list in a variable.

    Attributes:
        name: of the variable.
        begin: the index of the instruction that loads it.
        takes: that of the one that takes the value from the stack.
        end: that of the last one but for what drops a result.
        looks_up: those that look up a method and call it, but for the last one.
    """

    name: str
    begin: int
    takes: int
    end: int
    looks_up: tuple[int, ...]


def appended_lists(
    instructions: Sequence[Instruction],
    flow: CodeFlow,
    parameters: Sequence[str],
    entry: int,
    inside: Set[int],
) -> tuple[Append, ...]:
    """Return what appends to lists in a region, of those that are for nothing else before its end.

    Args:
        instructions: of the code.
        flow: of the code.
        parameters: of the function.
        entry: the index of the instruction that the region begins with.
        inside: those of its instructions.
    """
    found = {i: each for i in inside if (each := append_at(instructions, flow, i))}
    names = {each.name for each in found.values()} & flow.assigned_at(entry, parameters)
    kept = names.difference(parameters, *map(flow.needed_by, flow.handlers_outside(inside)))
    kept = {name for name in kept if not flow.is_cell(name)}
    if kept:
        kept -= {*_seen_before(instructions, flow, entry, inside)}
    return tuple(found[i] for i in sorted(found) if found[i].name in kept)


def appends_to_new_lists(
    instructions: Sequence[Instruction], flow: CodeFlow, parameters: Sequence[str]
) -> tuple[Append, ...]:
    """Return what appends to lists that the code has made, and nobody else has seen by then.

    Args:
        instructions: of the code.
        flow: of the code.
        parameters: of the function.
    """
    found = filter(None, (append_at(instructions, flow, i) for i in range(len(instructions))))
    return tuple(
        each
        for append in found
        for each in appended_lists(
            instructions, flow, parameters, append.begin, {*range(append.begin, append.end + 1)}
        )
        if each == append
    )


def _seen_before(
    instructions: Sequence[Instruction], flow: CodeFlow, entry: int, inside: Set[int]
) -> Iterator[str]:
    """Yield variables that may have something else than a list of which nobody knows."""
    for i in flow.leading_to(entry) | inside:
        now = instructions[i]
        if "FAST" not in now.opname:
            continue
        if now.opname in STORES and i not in inside and stores_new_list(instructions, flow, i):
            continue
        if i and isinstance(instructions[i - 1].argval, ItemsOf):
            continue
        append = append_at(instructions, flow, i)
        if append is None or (i in inside and append.end not in inside):
            yield now.argval


def append_at(instructions: Sequence[Instruction], flow: CodeFlow, index: int) -> Append | None:
    """The statement that begins at an instruction."""
    load, after = instructions[index], instructions[index + 1 : index + 2]
    if load.opname not in LOADS or not after or index not in flow.depths:
        return None
    is_method = after[0].opname in ("LOAD_METHOD", "LOAD_ATTR") and after[0].argval == "append"
    end, most = ("CALL", 3) if is_method else ("LIST_APPEND", 2)
    depth = flow.depths[index]
    for i in range(index + 1 + is_method, len(instructions) - 1):
        now = instructions[i]
        here = flow.depths.get(i, 0)
        if here <= depth:
            return None
        if here == depth + most and now.opname == (_CALLS if is_method else end) and now.arg == 1:
            end_at = i + (now.opname == "PRECALL")
            is_statement = instructions[end_at + 1].opname == "POP_TOP"
            if not is_statement or instructions[i - 1].opname == "KW_NAMES":
                return None
            looks_up = [index + 1] if is_method else []
            if is_method and flow.depths[index + 2] == depth + 1:
                looks_up.append(index + 2)  # a null, which Dynamo has put there
            looks_up += range(i, end_at)
            return Append(load.argval, index, i, end_at, tuple(looks_up))
    return None


def stores_new_list(instructions: Sequence[Instruction], flow: CodeFlow, index: int) -> bool:
    """Tell whether an instruction gives a variable a list that the statement makes."""
    if index and instructions[index - 1].opname == "BUILD_LIST" and flow.follows_alone(index):
        return True
    begin = index
    while begin and _is_simple(instructions[begin - 1]) and flow.follows_alone(begin):
        begin -= 1
    stack: list[bool] = []  # whether a value is a new list
    for now in instructions[begin:index]:
        argument = now.arg or 0
        if now.opname in PUSHES:
            stack.append(False)
        elif now.opname == "BUILD_LIST":
            del stack[len(stack) - min(argument, len(stack)) :]
            stack.append(True)
        elif now.opname == "SWAP":
            if argument > len(stack):
                return False
            stack[-1], stack[-argument] = stack[-argument], stack[-1]
        elif now.opname in ("STORE_FAST", "LIST_EXTEND"):
            del stack[-1:]
    return bool(stack) and stack[-1]


def _is_simple(instruction: Instruction) -> bool:
    others = ("BUILD_LIST", "LIST_EXTEND", "SWAP", "STORE_FAST", "NOP")
    return instruction.opname in PUSHES or instruction.opname in others


def is_own_list(name: str) -> bool:
    """Tell whether this is such a variable."""
    return name.startswith(_OWN)


def own_list(name: str) -> str:
    """Return the variable of the list that the function of a region has in place of another."""
    return _OWN + name


def appends_in_place(instructions: Sequence[Instruction], append: Append) -> None:
    """Have a statement append to the list of the function of a region."""
    instructions[append.begin].argval = own_list(append.name)
    last = instructions[append.end]
    if last.opname == "LIST_APPEND":
        return
    for index in append.looks_up:
        become(instructions[index], create_instruction("NOP"))
    become(last, create_instruction("LIST_APPEND", arg=1))


def become(instruction: Instruction, other: Instruction) -> None:
    """Have an instruction do something else in the same place."""
    instruction.opcode, instruction.opname = other.opcode, other.opname
    instruction.arg, instruction.argval = other.arg, other.argval


def beside(instruction: Instruction, others: Iterable[Instruction]) -> list[Instruction]:
    """Return others as of the place of one, and with what handles its errors."""
    added = [*others]
    for each in added:
        each.copy_positions(instruction)
        each.exn_tab_entry = instruction.exn_tab_entry
    return added
