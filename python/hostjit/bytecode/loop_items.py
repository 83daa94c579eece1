# SPDX-License-Identifier: Apache-2.0
"""Items of loops: passes that run several at once look them up in what they are given instead.

Of `for row in x` a pass is given `x` and the place of the row; of `for i, (row, dt) in
enumerate(zip(x, steps))` it is given `x`, a tensor of what is in `steps`, and the place.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Sequence, Set
from typing import Any

from torch._dynamo.bytecode_transformation import (
    Instruction,
    cleaned_instructions,
    create_call_method,
    create_instruction,
    create_load_method,
)

from hostjit.bytecode.appended import PUSHES, beside
from hostjit.bytecode.flow import LOADS, STORES
from hostjit.bytecode.handlers import with_handlers
from hostjit.bytecode.making import begin_of, function_of, transformed
from hostjit.bytecode.rewriting import argument_of, with_more_variables
from hostjit.bytecode.splits import may_be_taken_apart

__all__ = [
    "AtPlace",
    "Counted",
    "ItemForm",
    "Together",
    "with_items_in_variables",
    "with_items_looked_up",
]

_PLACE = "hostjit_place"


@dataclasses.dataclass(frozen=True)
class AtPlace:
    """The row of a tensor, or the number in it, that is at the place of the pass."""

    is_number: bool = False


@dataclasses.dataclass(frozen=True)
class Counted:
    """The number `place * step + ahead`."""

    step: int
    ahead: int


@dataclasses.dataclass(frozen=True)
class Together:
    """A tuple of what several iterators give."""

    items: tuple[ItemForm, ...]


ItemForm = AtPlace | Counted | Together
"""How the item of a pass is made."""


def with_items_in_variables(code: types.CodeType) -> types.CodeType:
    """Return code whose loops keep what is unpacked in a variable: `for item in ...: i, x = item`.

    So the item is what the loop gives a pass. The same code where there is none.
    """

    def rewrite(instructions: list[Instruction]) -> tuple[list[Instruction], list[str]]:
        names: list[str] = []
        kept: list[Instruction] = []
        for each, behind in zip(instructions, [*instructions[1:], None], strict=True):
            kept.append(each)
            if behind is not None and _unpacks_item(each, behind):
                names.append(f"hostjit_item_{len(names)}")
                through = ("STORE_FAST", "LOAD_FAST")
                added = [create_instruction(name, argval=names[-1]) for name in through]
                kept += beside(behind, added)
        return with_handlers(kept, {*kept}, 0), names

    found = cleaned_instructions(code)
    if not any(map(_unpacks_item, found, found[1:])):
        return code
    return with_more_variables(code, rewrite) or code


def _unpacks_item(instruction: Instruction, behind: Instruction) -> bool:
    return instruction.opname == "FOR_ITER" and behind.opname == "UNPACK_SEQUENCE"


def with_items_looked_up(
    body: types.FunctionType,
    taken: tuple[str, ...],
    given: tuple[str, ...],
    item: str,
    form: ItemForm,
) -> tuple[types.FunctionType, tuple[str, ...], str] | None:
    """Return a function that makes the item of a pass of what it is given in its place.

    It takes the tensors of a form and the place of the item behind the other variables: these, in
    order, and which of them is the place. None where code does not do so, and where it keeps a row:
    that is an object of the iterator's.

    Args:
        body: of a pass over an iterator, which takes the item.
        taken: the variables that it takes, in order.
        given: those that it returns.
        item: that with the item.
        form: of the item.
    """
    code = body.__code__
    if item in code.co_cellvars or not may_be_taken_apart(code):
        return None
    count = sum(1 for _ in _tensors(form))
    tensors = [f"hostjit_tensor_{number}" for number in range(count)]
    takes = (*(name for name in taken if name != item), *tensors, _PLACE)
    parameters = (*takes, *code.co_varnames[len(taken) : code.co_argcount])

    def transform(instructions: list[Instruction], options: dict[str, Any]) -> None:
        begin = begin_of(instructions)
        own = instructions[begin:]
        rows: set[str] = set()
        kept = _unpacked(own, item, form, iter(tensors), rows)
        if kept is None:
            rows = {item}
            made = [*_made(form, iter(tensors)), create_instruction("STORE_FAST", argval=item)]
            kept = [*beside(own[0], made), *own]
        _check_rows(own, rows, {*given})
        instructions[begin:] = kept
        others = [name for name in options["co_varnames"] if name not in parameters]
        options["co_varnames"] = (*parameters, *others)
        options["co_argcount"] = len(parameters)

    try:
        return function_of(body, transformed(code, transform)), takes, _PLACE
    except (AssertionError, LookupError, _KeepsRowError):
        return None


class _KeepsRowError(Exception):
    """A row is, as an object, more than an operand."""


def _check_rows(instructions: Sequence[Instruction], rows: Set[str], given: Set[str]) -> None:
    """Raise _KeepsRowError where one goes as it is into a container, or a variable of those given.

    `rows`: the variables that have them.
    """
    if rows & given:
        raise _KeepsRowError
    for index, each in enumerate(instructions):
        if each.opname not in LOADS or each.argval not in rows:
            continue
        behind = (other for other in instructions[index + 1 :] if other.opname != "NOP")
        takes = next(other for other in behind if other.opname not in PUSHES)
        keeps = takes.opname.startswith(("BUILD_", "LIST_APPEND", "RETURN"))
        if keeps or (takes.opname == "STORE_FAST" and takes.argval in given):
            raise _KeepsRowError


def _tensors(form: ItemForm) -> Iterator[AtPlace]:
    if isinstance(form, AtPlace):
        yield form
    elif isinstance(form, Together):
        for each in form.items:
            yield from _tensors(each)


def _unpacked(
    instructions: Sequence[Instruction],
    item: str,
    form: ItemForm,
    tensors: Iterator[str],
    rows: set[str],
) -> list[Instruction] | None:
    """Return instructions that have the parts of an item where these unpack it; None if they don't.

    So uses of its numbers are seen. Adds the variables that have rows to `rows`.
    """
    loads = [i for i, each in enumerate(instructions) if each.argval == item]
    if len(loads) != 1:
        return None
    # Ahead of it, lists are made that the pass appends to.
    kept, behind = [*instructions[: loads[0]]], iter(instructions[loads[0] + 1 :])
    parts = [form]
    while parts:
        part, each = parts.pop(), next(behind)
        if each.opname == "UNPACK_SEQUENCE":
            if not isinstance(part, Together) or len(part.items) != each.arg:
                return None
            parts += reversed(part.items)
        elif each.opname in STORES:
            kept += [*beside(each, _made(part, tensors)), each]
            if not isinstance(part, Counted) and part != AtPlace(is_number=True):
                rows.add(each.argval)
        else:
            return None
    return [*kept, *behind]


def _made(form: ItemForm, tensors: Iterator[str]) -> list[Instruction]:
    """What puts an item on the stack."""
    place = create_instruction("LOAD_FAST", argval=_PLACE)
    match form:
        case AtPlace(is_number):
            tensor = create_instruction("LOAD_FAST", argval=next(tensors))
            row = [tensor, place, create_instruction("BINARY_SUBSCR")]
            return [*row, *_read()] if is_number else row
        case Counted(step, ahead):
            return [place, *_applied("*", step, 1), *_applied("+", ahead, 0)]
        case Together(items):
            made = [each for item in items for each in _made(item, tensors)]
            return [*made, create_instruction("BUILD_TUPLE", arg=len(items))]


def _read() -> list[Instruction]:
    return [create_load_method("item"), *create_call_method(0)]


def _applied(operator: str, number: int, unless: int) -> list[Instruction]:
    """An operator on what is on the stack and a number, unless that makes no difference."""
    if number == unless:
        return []
    arg = argument_of("BINARY_OP", f"a {operator} b")
    load = create_instruction("LOAD_CONST", argval=number)
    return [load, create_instruction("BINARY_OP", arg=arg)]
