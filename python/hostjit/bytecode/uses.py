# SPDX-License-Identifier: Apache-2.0
"""What code does with a value that a call gives it: whether it only computes with it and compares.

Follows the value through the stack and the variables of one function, wherever its code may go on.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch._dynamo.bytecode_transformation import Instruction, cleaned_instructions

from hostjit.bytecode.appended import appends_to_new_lists
from hostjit.bytecode.code_places import place_of_call, place_of_result
from hostjit.bytecode.flow import LOADS, CodeFlow
from hostjit.bytecode.followed_calls import FOLLOWED
from hostjit.bytecode.places import PLACES
from hostjit.bytecode.splits import may_be_taken_apart, parameters_of
from hostjit.bytecode.stack import CALL, num_taken

__all__ = [
    "Uses",
    "followed_reads",
    "uses_of_attribute",
    "uses_of_call",
    "uses_of_parameter",
    "uses_of_result",
    "uses_of_variable",
]

_log = logging.getLogger(__name__)
# The last way of BINARY_OP that computes, `^=`. From Python 3.14 on it looks up items, too.
_LAST_OF_NUMBERS = 25
# What asks a number to compare itself, to say what it is, or for what it makes with another.
_ASKS = frozenset(
    {
        *("COMPARE_OP", "UNARY_NOT", "TO_BOOL", "BINARY_OP", "IS_OP"),
        *("FORMAT_SIMPLE", "FORMAT_VALUE", "FORMAT_WITH_SPEC"),
    }
)
_DECIDES = frozenset({"COMPARE_OP", "UNARY_NOT", "TO_BOOL"})
_CONTAINERS = frozenset({"BUILD_TUPLE", "BUILD_LIST", "BUILD_CONST_KEY_MAP"})
# Functions that ask in the same way. The first return one of the numbers, or make a number of it.
_OF_NUMBERS = frozenset({"abs", "min", "max"})
_DECIDING = frozenset({"min", "max", "bool", "int", "round"})
_ASKING = frozenset({"print", "round", "str", "repr", "float", "int", "bool", "format"})


@dataclasses.dataclass(frozen=True)
class Uses:
    """What is done with a value, where it goes no further than the function.

    Attributes:
        builtins: names of functions that it is given to, if these are Python's.
        is_returned: the function returns it, by itself or in new containers.
        places: where it is in what is returned: in which items of a tuple, or -1 for that itself;
            None if it is not known.
        is_asked: the function compares it, or decides by it.
        is_identified: the function asks whether it is the very True, or False.
        passed: functions of users that it is given to, if these are such, and which of the
            positional arguments it is: by the names of global variables, or of methods of the first
            parameter behind a point. What they return is something else.
        assigned: attributes of the first parameter that it becomes.
    """

    builtins: frozenset[str]
    is_returned: bool
    is_asked: bool
    is_identified: bool
    passed: frozenset[tuple[str, int]]
    places: frozenset[int] | None
    assigned: frozenset[str]


@functools.lru_cache(maxsize=1024)
def uses_of_result(
    code: types.CodeType, offset: int, *, is_float: bool = False, is_attribute: bool = False
) -> Uses | None:
    """Return what is done with the number that `tensor.item()` or an operator of Python gives.

    Only comparing it, formatting it and computing with it is allowed, giving it to functions that
    do, and returning it. What operators make of it is another value.

    Args:
        code: of a function.
        offset: of the call or the operator, in bytes, as in `f_lasti` of a frame.
        is_float: it is the call of `float_of`.
        is_attribute: it is the read of an attribute.

    Returns None where others may see the number, and where something else is at `offset`.
    """
    if not may_be_taken_apart(code):
        return None
    instructions = cleaned_instructions(code)
    place = place_of_result(
        instructions, code, offset, is_any_call=is_float, is_attribute=is_attribute
    )
    return None if place is None else _uses(code, instructions, functools.partial(_behind, place))


@functools.lru_cache(maxsize=1024)
def uses_of_call(code: types.CodeType, offset: int, places: frozenset[int]) -> Uses | None:
    """Return what is done with numbers that a call of a function returns, as `uses_of_result` does.

    Args:
        code: of a function.
        offset: of the call, in bytes, as in `f_lasti` of a frame.
        places: where they are in what is returned, as `Uses.places`.
    """
    if not may_be_taken_apart(code):
        return None
    instructions = cleaned_instructions(code)
    place = place_of_call(instructions, code, offset)
    given = _VALUE if places == {-1} else _Items(places)
    if place is None or (given is not _VALUE and -1 in places):
        return None
    return _uses(code, instructions, lambda value: value.behind(place, given))


@functools.lru_cache(maxsize=1024)
def uses_of_parameter(code: types.CodeType, name: str) -> Uses | None:
    """Return what is done with a number that a function is given, as `uses_of_result` does."""
    if not may_be_taken_apart(code) or name in code.co_cellvars:
        return None
    instructions = cleaned_instructions(code)
    return _uses(code, instructions, lambda value: value.of_variable(name))


@functools.lru_cache(maxsize=1024)
def uses_of_variable(code: types.CodeType, name: str) -> Uses | None:
    """Return what is done with a number that a variable has at some time.

    As `uses_of_result` does, for whatever the code stores in the variable.
    """
    if not may_be_taken_apart(code) or name in code.co_cellvars:
        return None
    instructions = cleaned_instructions(code)
    return _uses(code, instructions, lambda value: value.of_stores(name))


@functools.lru_cache(maxsize=1024)
def uses_of_attribute(code: types.CodeType, name: str) -> Uses | None:
    """Return what is done with a number that is an attribute of some object.

    As `uses_of_result` does, for whatever the code reads by that name.
    """
    if not may_be_taken_apart(code):
        return None
    instructions = cleaned_instructions(code)
    return _uses(code, instructions, lambda value: value.of_loads(name))


@functools.lru_cache(maxsize=1024)
def followed_reads(code: types.CodeType, *, asked: bool = True) -> frozenset[int]:
    """Return which instructions look up an `item` whose result nothing else is done with.

    `asked`: also those by which the code decides.
    """
    if not may_be_taken_apart(code):
        return frozenset()
    instructions = cleaned_instructions(code)
    found = {}
    for index, each in enumerate(instructions):
        if each.opname in ("LOAD_METHOD", "LOAD_ATTR") and each.argval == "item":
            place = next(i for i in range(index, len(instructions)) if _calls(instructions[i]))
            found[index] = place
    uses = {
        index: _uses(code, instructions, functools.partial(_behind, place))
        for index, place in found.items()
    }
    return frozenset(
        index for index, each in uses.items() if each is not None and (asked or not each.is_asked)
    )


def _calls(instruction: Instruction) -> bool:
    return instruction.opname == "CALL"


def _behind(place: int, value: _Value) -> Uses:
    return value.behind(place)


def _uses(
    code: types.CodeType,
    instructions: Sequence[Instruction],
    find: Callable[[_Value], Uses],
) -> Uses | None:
    try:
        return find(_Value(instructions, CodeFlow(instructions, code), code))
    except _SeenElsewhereError:
        return None
    except (AssertionError, LookupError):
        # Code of a form that is not known here: others may see the number.
        _log.info("what %s does with a number is not known", code, exc_info=True)
        return None


class _SeenElsewhereError(Exception):
    """Something else than the function may see the value, or nothing is known of that."""


# What is where on the stack, and in variables: the value, or one that a function of numbers makes
# of it; a new container with it; one with such a container, or either of these. On the stack also
# the name of a global variable, a function among `FOLLOWED`, a container and an index for `PLACES`,
# a new container with the value and an index, the first parameter, and None for anything else.
_VALUE, _CONTAINER, _NESTED, _PLACE, _ITEM, _OWNER = (object() for _ in range(6))
_KINDS = (_VALUE, _CONTAINER, _NESTED)


@dataclasses.dataclass(frozen=True)
class _Items:
    """A new tuple that has values in some places: a container of which more is known."""

    places: frozenset[int]


_Stack = tuple[object, ...]
_Names = frozenset[tuple[str, object]]
_State = tuple[_Stack, _Names]


class _Value:
    """A value on its way."""

    def __init__(
        self, instructions: Sequence[Instruction], flow: CodeFlow, code: types.CodeType
    ) -> None:
        self._instructions = instructions
        self._flow = flow
        appends = appends_to_new_lists(instructions, flow, parameters_of(code))
        self._loads_list = {append.begin for append in appends}
        self._appends = {append.takes: append.name for append in appends}
        self._builtins: set[str] = set()
        self._passed: set[tuple[str, int]] = set()
        self._assigned: set[str] = set()
        self._is_returned = False
        self._places: frozenset[int] | None = frozenset()
        self._is_asked = self._is_identified = False
        stored = {each.argval for each in instructions if each.opname == "STORE_FAST"}
        first = code.co_varnames[0] if code.co_argcount else ""
        self._owner = "" if first in stored else first
        self._methods = {
            i + 1
            for i, each in enumerate(instructions[:-1])
            if each.opname in LOADS and self._owner and each.argval == self._owner
            if instructions[i + 1].opname in ("LOAD_METHOD", "LOAD_ATTR")
        }

    def behind(self, place: int, given: object = _VALUE) -> Uses:
        """Follow what is on top of the stack behind an instruction. `given`: what that is.

        Raises _SeenElsewhereError.
        """
        ahead = self._follow(0, ((), frozenset()))
        stack, _ = ahead[place + 1]
        self._follow(place + 1, ((*stack[:-1], given), frozenset()))
        return self._found()

    def of_variable(self, name: str) -> Uses:
        """Follow what a variable has where the code begins. Raises _SeenElsewhereError."""
        self._follow(0, ((), frozenset({(name, _VALUE)})))
        return self._found()

    def of_stores(self, name: str) -> Uses:
        """Follow what a variable is given, wherever it is. Raises _SeenElsewhereError."""
        ahead = self._follow(0, ((), frozenset()))
        for index, each in enumerate(self._instructions):
            if each.opname == "STORE_FAST" and each.argval == name and index in ahead:
                stack, _ = ahead[index]
                self._follow(index + 1, (stack[:-1], frozenset({(name, _VALUE)})))
        return self._found()

    def of_loads(self, name: str) -> Uses:
        """Follow what an attribute of some object is. Raises _SeenElsewhereError."""
        for index, each in enumerate(self._instructions):
            if each.opname == "LOAD_ATTR" and each.argval == name and index in self._flow.depths:
                self.behind(index)
        return self._found()

    def _found(self) -> Uses:
        passed = frozenset(self._passed)
        builtins = frozenset(self._builtins)
        asked = self._is_asked, self._is_identified
        assigned = frozenset(self._assigned)
        return Uses(builtins, self._is_returned, *asked, passed, self._places, assigned)

    def _follow(self, index: int, state: _State) -> dict[int, _State]:
        """What is where ahead of each instruction that may run from one on."""
        known: dict[int, _State] = {}
        pending = [(index, state)]
        while pending:
            index, state = pending.pop()
            merged = _merged(known.get(index), state)
            if merged != known.get(index):
                known[index] = merged
                pending.extend(self._behind(index, *merged))
        return known

    def _behind(self, index: int, stack: _Stack, names: _Names) -> Iterator[tuple[int, _State]]:
        """What is where behind an instruction, by what runs next."""
        found = self._instructions[index]
        if index in self._appends and _has(stack[-1:]):
            stack = (*stack[:-1], None)
            names |= {(self._appends[index], _NESTED)}
        if found.opname == "IS_OP" and _has(stack[-2:]):
            if not self._is_constant(index - 1):
                raise _SeenElsewhereError
            self._is_identified |= self._instructions[index - 1].argval is not None
        if found.opname == CALL and self._instructions[index - 1].opname == "KW_NAMES":
            if _has(stack[-2 - (found.arg or 0) :]):
                raise _SeenElsewhereError
        for handler in self._flow.handlers(index):
            entry = found.exn_tab_entry
            assert entry is not None
            yield handler, ((*stack[: entry.depth], *[None] * (1 + entry.lasti)), names)
        if index in self._loads_list:
            now: _Stack = (*stack, None)
        elif self._asks_for_item(index):
            if stack[-2] in (_VALUE, _NESTED):
                raise _SeenElsewhereError
            is_item = stack[-2] is _CONTAINER or isinstance(stack[-2], _Items)
            now = (*stack[:-2], _ITEM if is_item else _PLACE)
        elif index in self._methods and not _has(stack[-1:]):
            now = (*stack[:-1], f".{found.argval}")
        else:
            now, names = self._after(found, stack, names)
        for after, _ in self._flow.successors(index):
            depth = self._flow.depths[after]
            yield after, ((*now, *[None] * depth)[:depth], names)

    def _is_constant(self, index: int) -> bool:
        """Whether an instruction gives what no number is."""
        found = self._instructions[index]
        return found.opname == "LOAD_CONST" and found.argval in (None, True, False)

    def _asks_for_item(self, index: int) -> bool:
        behind = self._instructions[index + 1 : index + 2]
        return bool(behind) and behind[0].opname == "LOAD_CONST" and behind[0].argval is PLACES

    def _after(self, found: Instruction, stack: _Stack, names: _Names) -> _State:
        """What is where behind an instruction; values at the end that are not there are None."""
        name, argument = found.opname, found.arg or 0
        if name == "COPY":
            return (*stack, stack[-argument]), names
        if name == "SWAP":
            items = [*stack]
            items[-1], items[-argument] = items[-argument], items[-1]
            return tuple(items), names
        if name.startswith("JUMP_IF_") and name.endswith("_OR_POP"):
            return stack, names
        if name in LOADS:
            value = _in_variable(found.argval, names)
            is_owner = value is None and self._owner and found.argval == self._owner
            return (*stack, _OWNER if is_owner else value), names
        if name == "DELETE_FAST":
            return stack, _with_variable(found.argval, None, names)
        if name == "LOAD_CONST" and any(found.argval is each for each in FOLLOWED):
            return (*stack, found.argval), names
        if name == "LOAD_GLOBAL":
            is_called = (argument & 1) * (None,)
            return (*stack, *is_called, found.argval), names
        if name == "UNPACK_SEQUENCE" and isinstance(stack[-1], _Items):
            places = stack[-1].places
            unpacked = (_VALUE if i in places else None for i in reversed(range(argument)))
            return (*stack[:-1], *unpacked), names
        takes = num_taken(found)
        if takes is None:
            if _has(stack) or "FAST" in name:
                raise _SeenElsewhereError
            return (), names
        taken, stack = stack[len(stack) - takes :], stack[: len(stack) - takes]
        if name == "STORE_FAST":
            return stack, _with_variable(found.argval, taken[0], names)
        if not _has(taken):
            return stack, names
        return (*stack, *self._made_of(found, taken)), names

    def _note_places(self, returned: object) -> None:
        """Note where the value is in something that is returned."""
        if self._places is None:
            return
        if returned is _VALUE:
            self._places |= {-1}
        else:
            self._places = self._places | returned.places if isinstance(returned, _Items) else None

    def _made_of(self, found: Instruction, taken: _Stack) -> _Stack:
        """What an instruction makes of the value; raises _SeenElsewhereError."""
        name = found.opname
        if name == "RETURN_VALUE":
            self._is_returned = True
            self._note_places(taken[0])
            return ()
        if name == "BUILD_TUPLE" and not (_ITEM in taken or _has_container(taken)):
            return (_Items(frozenset(i for i, each in enumerate(taken) if each is _VALUE)),)
        if name in _CONTAINERS or (name == "BUILD_MAP" and not _has(taken[::2])):
            return (_NESTED if _has_container(taken) else _CONTAINER,)
        if name == "POP_TOP":
            return ()
        if name == CALL and _has_container(taken[2:]) and "len" in taken[:2]:
            self._builtins.add("len")
            return ()
        if _has_container(taken):
            raise _SeenElsewhereError
        if name == "STORE_SUBSCR" and taken[2] is _PLACE:
            return ()
        if name == "STORE_ATTR" and taken == (_VALUE, _OWNER):
            self._assigned.add(found.argval)
            return ()
        if name == "BINARY_SUBSCR" and taken[1] is _ITEM:
            return (_VALUE,)
        if name == "UNARY_NEGATIVE":
            return (_VALUE,)
        if name == "BINARY_OP" and (found.arg or 0) > _LAST_OF_NUMBERS:
            raise _SeenElsewhereError
        if name in _ASKS or name.startswith("POP_JUMP"):
            self._is_asked = self._is_asked or name in _DECIDES or name.startswith("POP_JUMP")
            return ()
        if name == "CALL" != CALL:
            return (_VALUE,)
        if name == CALL and len(taken) == 4:
            followed: Any = next((each for each in taken[:2] if each in FOLLOWED), None)
            if followed is not None and taken[2] == FOLLOWED[followed]:
                self._builtins.add(FOLLOWED[followed])
                return (_VALUE,)
        if name == CALL:
            called = [each for each in taken[:2] if isinstance(each, str)]
            if len(called) == 1 and called[0] in _OF_NUMBERS | _ASKING:
                self._builtins.add(called[0])
                self._is_asked = self._is_asked or called[0] in _DECIDING
                return (_VALUE,) if called[0] in _OF_NUMBERS else ()
            if len(called) == 1:
                given = {i for i, each in enumerate(taken[2:]) if each is _VALUE}
                self._passed |= {(called[0], i) for i in given}
                self._is_asked = True
                return ()
        raise _SeenElsewhereError


def _in_variable(name: str, names: _Names) -> object:
    found = [kind for known, kind in names if known == name]
    return found[0] if len(found) == 1 else (_NESTED if found else None)


def _with_variable(name: str, value: object, names: _Names) -> _Names:
    names = frozenset(pair for pair in names if pair[0] != name)
    return names | {(name, value)} if _has((value,)) else names


def _has(values: _Stack) -> bool:
    return _VALUE in values or _ITEM in values or _has_container(values)


def _has_container(values: _Stack) -> bool:
    return any(x is _CONTAINER or x is _NESTED or isinstance(x, _Items) for x in values)


def _merged(known: _State | None, state: _State) -> _State:
    if known is None:
        return state
    assert len(known[0]) == len(state[0])
    stack = tuple(map(_either, known[0], state[0]))
    return stack, known[1] | state[1]


def _either(first: object, second: object) -> object:
    """What is in a place that one of two things is in."""
    if first == second:
        return first
    found = [x for x in (first, second) if x in _KINDS or isinstance(x, _Items)]
    return found[0] if len(found) == 1 else (_NESTED if found else None)
