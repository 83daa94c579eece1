# SPDX-License-Identifier: Apache-2.0
"""Statements that choose by a value, `if cost < best: best, plan = cost, trial`, as functions.

The function of such an `if` takes the answer to its test, and returns the variables that it
changes. Both ways through it do nothing but compute, so that a recording may take both and select
what each of the variables becomes: its replays do for either answer.
"""

from __future__ import annotations

import collections
import dataclasses
import dis
import functools
import itertools
import operator
import types
import weakref
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any

import torch
from torch._dynamo.bytecode_transformation import (
    Instruction,
    cleaned_instructions,
    create_instruction,
)

from hostjit.bytecode.appended import become, beside
from hostjit.bytecode.chooser import current_chooser
from hostjit.bytecode.exits import instructions_of_exits, is_test, with_exits
from hostjit.bytecode.flow import LOADS, CodeFlow
from hostjit.bytecode.making import function_of
from hostjit.bytecode.regions import Region, code_of_region, find_region, with_calls_of_regions
from hostjit.bytecode.rewriting import rewritten
from hostjit.bytecode.splits import may_be_taken_apart

__all__ = [
    "Chain",
    "Choice",
    "is_of_choice",
    "is_of_tensors",
    "with_choices",
    "written_as",
]

aten = torch.ops.aten

# An `if` with more instructions than this costs too much where its answer is the other one.
_MOST_INSTRUCTIONS = 400
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
# What computes, and changes nothing but variables of the function, given tensors and numbers.
_COMPUTING = LOADS | {
    *("LOAD_CONST", "LOAD_SMALL_INT", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_ATTR", "LOAD_METHOD"),
    *("STORE_FAST", "PUSH_NULL", "PRECALL", "CALL", "KW_NAMES", "CALL_KW", "COPY", "SWAP"),
    *("POP_TOP", "NOP", "NOT_TAKEN", "BINARY_OP", "BINARY_SUBSCR", "BINARY_SLICE", "COMPARE_OP"),
    *("UNARY_NEGATIVE", "UNARY_NOT", "UNARY_INVERT", "TO_BOOL", "BUILD_TUPLE", "BUILD_LIST"),
    *("BUILD_SLICE", "UNPACK_SEQUENCE"),
    *("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"),
    *("JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP", "IS_OP"),
}
# Of calls, by their names: with these, what computes does more.
_NOT_COMPUTING = frozenset({"out", "inplace", "generator"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
# Of tensors and numbers, besides operators: what they are, and what operators do by other names.
_OF_TENSORS = frozenset(
    {
        *("shape", "ndim", "dtype", "device", "T", "mT", "H", "mH", "real", "imag"),
        *("item", "size", "dim", "numel", "float", "double", "half", "bfloat16", "long", "int"),
        *("bool", "type_as"),
    }
)
# Operators that do more have these names, and attributes.
_EXCLUDED = frozenset(
    {"data", "grad", "pin_memory", "set_data", "backward", "retain_grad", "resize", "is_leaf"}
)
# Of BINARY_OP.
_FIRST_IN_PLACE = 13
_LAST_OF_NUMBERS = 25


# Code that was made of other code, and that. A dict would keep all of it.
_origins: weakref.WeakKeyDictionary[types.CodeType, types.CodeType] = weakref.WeakKeyDictionary()
_of_choices: weakref.WeakSet[types.CodeType] = weakref.WeakSet()


def is_of_choice(code: types.CodeType) -> bool:
    """Tell whether code is that of an `if` statement of other code."""
    return code in _of_choices


def written_as(code: types.CodeType, offset: int) -> tuple[types.CodeType, list[int]]:
    """Return the code of which `with_choices` has made other code, and where something is in it.

    The code itself and the offset, for other code. `offset`: in bytes, as in `f_lasti`.
    """
    origin = _origins.get(code)
    if origin is None:
        return code, [offset]
    found = next(each for each in _reversed(code) if each.offset <= offset)
    if found.positions is None or None in found.positions:
        return origin, []
    name, place = found.opname, found.positions
    same = [each for each in dis.get_instructions(origin) if each.positions == place]
    return origin, [each.offset for each in same if each.opname == name]


def _reversed(code: types.CodeType) -> list[dis.Instruction]:
    return [*dis.get_instructions(code)][::-1]


@dataclasses.dataclass(frozen=True)
class Chain:
    """What code asks for by names, from a variable on: `self.limits.step`.

    Attributes:
        is_global: the variable is one of the module.
        name: of the variable.
        attributes: those that follow.
    """

    is_global: bool
    name: str
    attributes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Choice:
    """An `if` statement.

    Attributes:
        ways: its functions, if its test does not hold and if it does. Each takes that, and then the
            variables `region.taken`.
        region: where it was in the code.
        join: which of the exits of the region leads behind the statement.
        code: of the function whose it is, as it was written.
        chains: what it asks for.
        in_place: variables of which it makes others by `+=` and the like.
    """

    ways: tuple[types.FunctionType, types.FunctionType]
    region: Region
    join: int
    code: types.CodeType
    chains: frozenset[Chain]
    in_place: frozenset[str]

    def __call__(self, test: Any, *taken: Any) -> Any:
        chooser = current_chooser()
        return self.run(bool(test), taken) if chooser is None else chooser.choose(self, test, taken)

    def run(self, answer: bool, taken: Sequence[Any]) -> Any:
        """Return what its function returns for an answer to its test."""
        return self.ways[answer](answer, *taken)

    def names_at(self, place: int) -> tuple[str, ...]:
        """Return the variables that the body returns where it leaves the region at an exit."""
        return self.region.exits[place][1]


@functools.cache
def is_of_tensors(name: str) -> bool:
    """Tell whether what tensors have by a name, or PyTorch, computes and changes nothing."""
    if name in _OF_TENSORS:
        return True
    if name.startswith("_") or name.endswith("_") or name in _EXCLUDED:
        return False
    packet = getattr(aten, name, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return False
    overloads = [getattr(packet, each)._schema for each in packet.overloads()]
    return all(
        not each.is_mutable or any(argument.is_out for argument in each.arguments)
        for each in overloads
    )


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

    `leaves`: it asks for each test by which loops are left early, too; see `with_exits`.
    """
    origin = function.__code__
    if not _has_choices(origin):
        return function
    compared = rewritten(function, _with_comparisons)
    asking = with_exits(compared.__code__, origin) if leaves else None
    if asking is None:
        return _with_choices(compared, origin) or function
    _origins[asking] = origin
    made = function_of(compared, asking)
    return _with_choices(made, origin) or made


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
        for region, join, chains, in_place in statements.found():
            if region.inside & taken:
                continue
            body = function_of(function, code_of_region(code, region))
            body.__defaults__ = body.__kwdefaults__ = None
            ways = _way(body, False, origin), _way(body, True, origin)
            calls.append((region, Choice(ways, region, join, origin, chains, in_place)))
            taken |= region.inside
        if not calls:
            return None
        made = function_of(function, with_calls_of_regions(code, calls))
    except (AssertionError, LookupError):
        return None  # Dynamo's assembler refuses code
    _origins[made.__code__] = origin
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
    _origins[way.__code__] = origin
    _of_choices.add(way.__code__)
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
        self._of_exits = instructions_of_exits(instructions)

    def found(self) -> Iterator[tuple[Region, int, frozenset[Chain], frozenset[str]]]:
        """Yield their regions, from the largest on, and what is known of each; see `Choice`."""
        found = [
            statement
            for index, each in enumerate(self._instructions)
            if is_test(each.opname) and index in self._flow.depths
            if (statement := self._statement(index)) is not None
        ]
        yield from sorted(found, key=lambda each: -len(each[0].inside))

    def _statement(self, jump: int) -> tuple[Region, int, frozenset[Chain], frozenset[str]] | None:
        base = self._flow.depths[jump] - 1
        entry = jump - (self._instructions[jump - 1].opname == "TO_BOOL")
        ways = [after for after, _ in self._flow.successors(jump)]
        first, second = ([*itertools.chain(*self._grown(way, base, None))] for way in ways)
        both = {*first} & {*second}
        places = [i for i in (*first, *second) if i in both and self._flow.depths.get(i) == base]
        found: list[tuple[int, int, set[int]]] = []
        for place in [*dict.fromkeys(places)][:_MOST_PLACES]:
            grown = [self._grown(way, base, place) for way in ways]
            inside = {entry, jump}.union(*(each for each, _ in grown))
            if all(place in exits for _, exits in grown):
                if not any(jump in each for each, _ in grown):
                    found.append((len(grown[0][1] | grown[1][1]), place, inside))
        if not found:
            return None
        # Best where it leads to no other place.
        _, place, inside = min(found, key=lambda each: (each[0], len(each[2])))
        if len(inside) > _MOST_INSTRUCTIONS or self._has_loop(inside):
            return None
        facts = self._facts(inside - {entry, jump})
        if facts is None or not self._flow.changed_in(inside):
            return None
        region = find_region(
            self._instructions, self._flow, self._code, entry, inside, has_item=True
        )
        if region is None or region.returns or region.appends or region.functions:
            return None
        joins = [index for index, (after, _) in enumerate(region.exits) if after == place]
        return (region, joins[0], *facts) if joins else None

    def _has_loop(self, inside: Set[int]) -> bool:
        ways = ((i, after) for i in inside for after, _ in self._flow.successors(i))
        return any(after in inside and after <= i for i, after in ways)

    def _grown(
        self, start: int, base: int, join: int | None
    ) -> tuple[dict[int, None], dict[int, None]]:
        """Statements that compute, from one on, and where others follow, or `join`; in order.

        Where they are too many, others follow, too.
        """
        inside, exits, pending = dict[int, None](), dict[int, None](), collections.deque([start])
        while pending:
            index = pending.popleft()
            if index in inside or index in exits:
                continue
            ends = index == join or len(inside) > _MOST_INSTRUCTIONS
            statement = None if ends else self._computed(index, base)
            if statement is None:
                exits[index] = None
                continue
            inside |= dict.fromkeys(sorted(statement[0]))
            pending += sorted(statement[1])
        return inside, exits

    def _computed(self, index: int, base: int) -> tuple[set[int], set[int]] | None:
        """The instructions of a statement that computes, and those that follow; None for others."""
        inside, behind, pending = set[int](), set[int](), [index]
        while pending:
            at = pending.pop()
            if at in inside:
                continue
            each = self._instructions[at]
            if not (each.opname in _COMPUTING or is_test(each.opname)):
                return None
            if each.opname == "POP_TOP" and self._flow.depths[at] <= base:
                return None
            inside.add(at)
            for after, _ in self._flow.successors(at):
                depth = self._flow.depths[after]
                if depth < base:
                    return None
                if depth == base:
                    behind.add(after)
                else:
                    pending.append(after)
        return inside, behind

    def _stores(self, index: int) -> bool:
        return self._instructions[index].opname == "STORE_FAST"

    def _facts(self, inside: Set[int]) -> tuple[frozenset[Chain], frozenset[str]] | None:
        """What some code asks for, and makes others of in place; None where it may do more."""
        chains: set[Chain] = set()
        in_place: set[str] = set()
        seen: set[int] = set()
        for index in sorted(inside - self._of_exits):
            each = self._instructions[index]
            if each.opname in LOADS or each.opname in ("LOAD_GLOBAL", "LOAD_DEREF"):
                if each.opname == "LOAD_DEREF":
                    return None
                names: list[str] = []
                at = index + 1
                while at in inside and self._instructions[at].opname in _ATTRIBUTES:
                    names.append(self._instructions[at].argval)
                    seen.add(at)
                    at += 1
                is_global = each.opname == "LOAD_GLOBAL"
                chains.add(Chain(is_global, each.argval, tuple(names)))
            elif each.opname in _ATTRIBUTES and index not in seen:
                if not is_of_tensors(each.argval):
                    return None
            elif each.opname in ("KW_NAMES", "CALL_KW"):
                if not _NOT_COMPUTING.isdisjoint(_keywords(self._instructions, index)):
                    return None
            elif each.opname == "BINARY_OP":
                if (each.arg or 0) > _LAST_OF_NUMBERS:
                    continue  # it looks up an item
                if (each.arg or 0) >= _FIRST_IN_PLACE:
                    store = self._instructions[index + 1]
                    if store.opname != "STORE_FAST":
                        return None
                    in_place.add(store.argval)
        made = {self._instructions[i].argval for i in inside if self._stores(i)}
        for chain in chains:
            if chain.name in made and not all(map(is_of_tensors, chain.attributes)):
                return None
        return frozenset(chains), frozenset(in_place)


def _keywords(instructions: Sequence[Instruction], index: int) -> Iterable[str]:
    """The names of the keyword arguments of a call, which an instruction tells."""
    found = instructions[index - (instructions[index].opname == "CALL_KW")].argval
    return found if isinstance(found, tuple) else ("out",)
