# SPDX-License-Identifier: Apache-2.0
"""Statements that choose by a value, `if cost < best: best, plan = cost, trial`, as functions.

The function of such an `if` takes the answer to its test, and returns the variables that it
changes. Both ways through it do nothing but compute, so that a recording may take both and select
what each of the variables becomes: its replays do for either answer.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import itertools
import operator
import types
from collections.abc import Iterator, Sequence, Set
from typing import Any

from torch._dynamo.bytecode_transformation import (
    Instruction,
    cleaned_instructions,
    create_instruction,
)

from hostjit.bytecode.appended import become, beside
from hostjit.bytecode.called_functions import copy_of, with_called_functions
from hostjit.bytecode.chooser import current_chooser
from hostjit.bytecode.computing import MOST_INSTRUCTIONS, Facts, Statements, is_test
from hostjit.bytecode.exits import instructions_of_exits, with_exits
from hostjit.bytecode.flow import LOADS, CodeFlow
from hostjit.bytecode.made_code import note_made, note_way
from hostjit.bytecode.making import function_of
from hostjit.bytecode.regions import Region, code_of_region, find_region, with_calls_of_regions
from hostjit.bytecode.returns import with_one_return
from hostjit.bytecode.rewriting import rewritten
from hostjit.bytecode.splits import may_be_taken_apart
from hostjit.bytecode.stored_attributes import with_variables

__all__ = ["Choice", "has_choices", "with_choices"]


# Of code with more than this, looking at it takes seconds.
_MOST_TESTS, _MOST_OF_CODE = 64, 4000
# So many places are looked at, from the nearest on, where its sides may come together.
_MOST_PLACES = 12
_COMPARED = {
    "<": (operator.lt, operator.gt),
    "<=": (operator.le, operator.ge),
    "==": (operator.eq, operator.eq),
    "!=": (operator.ne, operator.ne),
    ">": (operator.gt, operator.lt),
    ">=": (operator.ge, operator.le),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Choice:
    """An `if` statement.

    Attributes:
        ways: its functions, if its test does not hold and if it does. Each takes that, and then the
            variables `region.taken`.
        computing: the same, which assign no attributes: they take what `facts.stores` are, too,
            and return what these become, behind the rest.
        region: where it was in the code.
        join: which of the exits of the region leads behind the statement.
        code: of the function whose it is, as it was written.
        facts: of what it does.
    """

    ways: tuple[types.FunctionType, types.FunctionType]
    computing: tuple[types.FunctionType, types.FunctionType]
    region: Region
    join: int
    code: types.CodeType
    facts: Facts

    def __call__(self, test: Any, *taken: Any) -> Any:
        chooser = current_chooser()
        return self.run(bool(test), taken) if chooser is None else chooser.choose(self, test, taken)

    def run(self, answer: bool, taken: Sequence[Any]) -> Any:
        """Return what its function returns for an answer to its test."""
        return self.ways[answer](answer, *taken)

    def compute(self, answer: bool, taken: Sequence[Any], attributes: Sequence[Any]) -> Any:
        """Return the same, and what attributes become, of which it assigns none.

        `attributes`: what `facts.stores` are.
        """
        return self.computing[answer](answer, *taken, *attributes)

    def names_at(self, place: int) -> tuple[str, ...]:
        """Return the variables that the body returns where it leaves the region at an exit."""
        return self.region.exits[place][1]


class _Comparison:
    """`comparison[first, second]` compares, and leaves the answer to the statement that asks."""

    def __init__(self, compare: Any, swapped: Any) -> None:
        self._compare = compare
        self._swapped = swapped

    def __getitem__(self, pair: tuple[Any, Any]) -> Any:
        first, second = pair
        if hasattr(type(first), "followed_comparison"):
            return first.followed_comparison(second, self._compare)
        if hasattr(type(second), "followed_comparison"):
            return second.followed_comparison(first, self._swapped)
        return self._compare(first, second)


_COMPARISONS = {sign: _Comparison(*pair) for sign, pair in _COMPARED.items()}


@functools.lru_cache(maxsize=1024)
def _has_choices(code: types.CodeType) -> bool:
    """Whether code may have such statements, and nothing that tells one tensor from another."""
    if not may_be_taken_apart(code) or "id" in code.co_names:
        return False
    before = ""
    count = 0
    instructions = [*dis.get_instructions(code)]
    for each in instructions:
        if each.opname == "CONTAINS_OP":
            return False
        if each.opname == "IS_OP" and before not in ("None", "True", "False"):
            return False
        before = each.argrepr if each.opname == "LOAD_CONST" else ""
        count += is_test(each.opname)
    return 0 < count <= _MOST_TESTS and len(instructions) <= _MOST_OF_CODE


def with_choices(function: types.FunctionType, *, leaves: bool = True) -> types.FunctionType:
    """Return a function that does the same, and asks a `Choice` for each `if` that computes.

    And what is called in place of the functions that it calls. `leaves`: it asks for each test by
    which loops are left early, too; see `with_exits`.
    """
    called = with_called_functions(function)
    made = _deciding(called, function.__code__, leaves=leaves) or called
    if made is function:
        made = copy_of(function)
    note_made(made.__code__, function.__code__)
    return made


def has_choices(function: types.FunctionType) -> bool:
    """Tell whether there is an `if` that computes, or a test by which a loop is left early."""
    return _deciding(function, function.__code__, leaves=True) is not None


def _deciding(
    function: types.FunctionType, origin: types.CodeType, *, leaves: bool
) -> types.FunctionType | None:
    if not _has_choices(origin):
        return None
    compared = with_one_return(rewritten(function, _with_comparisons))
    asking = with_exits(compared, origin) if leaves else None
    if asking is None:
        return _with_choices(compared, origin)
    note_made(asking.__code__, origin)
    return _with_choices(asking, origin) or asking


def _with_comparisons(instructions: list[Instruction]) -> list[Instruction]:
    """Have tests compare by `_COMPARISONS`."""
    kept: list[Instruction] = []
    for index, each in enumerate(instructions):
        kept.append(each)
        behind = instructions[index + 1 : index + 2]
        if each.opname != "COMPARE_OP" or not behind or not is_test(behind[0].opname):
            continue
        comparison = _COMPARISONS.get(str(each.argval).removeprefix("bool(").removesuffix(")"))
        if comparison is None:
            continue
        others = [
            create_instruction("LOAD_CONST", argval=comparison),
            create_instruction("SWAP", arg=2),
            create_instruction("BINARY_SUBSCR"),
            *([create_instruction("TO_BOOL")] if "TO_BOOL" in dis.opmap else []),
        ]
        become(each, create_instruction("BUILD_TUPLE", arg=2))
        kept += beside(each, others)
    return kept


def _with_choices(
    function: types.FunctionType, origin: types.CodeType
) -> types.FunctionType | None:
    """Return a function with its statements made choices; None if it has none."""
    code = function.__code__
    instructions = cleaned_instructions(code)
    statements = _Statements(instructions, code)
    calls: list[tuple[Region, Choice]] = []
    taken: set[int] = set()
    try:
        for region, join, facts in statements.found():
            if region.inside & taken:
                continue
            body = function_of(function, code_of_region(code, region))
            body.__defaults__ = body.__kwdefaults__ = None
            ways = computing = _way(body, False, origin), _way(body, True, origin)
            if facts.stores:
                body = function_of(body, with_variables(body.__code__, facts.stores))
                computing = _way(body, False, origin), _way(body, True, origin)
            choice = Choice(ways, computing, region, join, origin, facts)
            calls.append((region, choice))
            taken |= region.inside
        if not calls:
            return None
        made = function_of(function, with_calls_of_regions(code, calls))
    except (AssertionError, LookupError):
        return None  # Dynamo's assembler refuses code
    note_made(made.__code__, origin)
    return made


def _way(body: types.FunctionType, answer: bool, origin: types.CodeType) -> types.FunctionType:
    """Return what the function of a statement does for an answer, which it is given first."""

    def rewrite(instructions: list[Instruction]) -> list[Instruction]:
        index = next(i for i in range(len(instructions)) if _is_answered(instructions, i))
        jump = instructions[index]
        behind = []
        if jump.opname.endswith("TRUE") == answer:
            behind.append(create_instruction("JUMP_FORWARD", target=jump.target))
        become(jump, create_instruction("POP_TOP"))
        jump.target = None
        others = beside(jump, behind)
        return [*instructions[: index + 1], *others, *instructions[index + 1 :]]

    way = rewritten(body, rewrite)
    way = _with_choices(way, origin) or way
    note_way(way.__code__, origin)
    return way


def _is_answered(instructions: Sequence[Instruction], index: int) -> bool:
    """Whether a jump is that of the statement whose function the code is."""
    if not is_test(instructions[index].opname):
        return False
    index -= 1
    while instructions[index].opname in ("NOP", "JUMP_FORWARD", "TO_BOOL"):
        index -= 1
    before = instructions[index]
    return before.opname in LOADS and str(before.argval).startswith("hostjit_item")


class _Statements:
    """The `if` statements of some code that do nothing but compute."""

    def __init__(self, instructions: Sequence[Instruction], code: types.CodeType) -> None:
        self._instructions = instructions
        self._code = code
        self._flow = CodeFlow(instructions, code)
        asking = instructions_of_exits(instructions)
        self._statements = Statements(instructions, self._flow, asking, store=True)

    def found(self) -> Iterator[tuple[Region, int, Facts]]:
        """Yield their regions, from the largest on, and what is known of each; see `Choice`."""
        found = [
            statement
            for index, each in enumerate(self._instructions)
            if is_test(each.opname) and index in self._flow.depths
            if (statement := self._statement(index)) is not None
        ]
        yield from sorted(found, key=lambda each: -len(each[0].inside))

    def _statement(self, jump: int) -> tuple[Region, int, Facts] | None:
        base = self._flow.depths[jump] - 1
        entry = jump - (self._instructions[jump - 1].opname == "TO_BOOL")
        ways = [after for after, _ in self._flow.successors(jump)]
        first, second = ([*itertools.chain(*self._statements.grown(way, base))] for way in ways)
        both = {*first} & {*second}
        places = [i for i in (*first, *second) if i in both and self._flow.depths.get(i) == base]
        found: list[tuple[int, int, set[int]]] = []
        for place in [*dict.fromkeys(places)][:_MOST_PLACES]:
            grown = [self._statements.grown(way, base, {place}) for way in ways]
            inside = {entry, jump}.union(*(each for each, _ in grown))
            if all(place in exits for _, exits in grown):
                if not any(jump in each for each, _ in grown):
                    found.append((len(grown[0][1] | grown[1][1]), place, inside))
        if not found:
            return None
        # Best where it leads to no other place.
        _, place, inside = min(found, key=lambda each: (each[0], len(each[2])))
        if len(inside) > MOST_INSTRUCTIONS or self._has_loop(inside):
            return None
        facts = self._statements.facts(inside - {entry, jump})
        if facts is None or not (facts.stores or self._flow.changed_in(inside)):
            return None
        region = find_region(
            self._instructions, self._flow, self._code, entry, inside, has_item=True
        )
        if region is None or region.returns or region.appends or region.functions:
            return None
        joins = [index for index, (after, _) in enumerate(region.exits) if after == place]
        return (region, joins[0], facts) if joins else None

    def _has_loop(self, inside: Set[int]) -> bool:
        ways = ((i, after) for i in inside for after, _ in self._flow.successors(i))
        return any(after in inside and after <= i for i, after in ways)
