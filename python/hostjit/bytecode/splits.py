# SPDX-License-Identifier: Apache-2.0
"""Functions in two: what computes, and what Python does with it afterwards.

A training step that ends with `return loss.item()`, logs its loss or counts, does what no recording
can. The code up to there is a function that gives the variables which the rest needs; the rest is
another, which takes these and the arguments of the call.
"""

from __future__ import annotations

import dataclasses
import dis
import inspect
import itertools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from torch._dynamo.bytecode_transformation import (
    Instruction,
    add_push_null,
    cleaned_instructions,
    create_call_function,
    create_instruction,
)

from hostjit.bytecode.appended import is_own_list
from hostjit.bytecode.flow import LOADS, STORES, CodeFlow
from hostjit.bytecode.halves import Returned, first_code, rest_code
from hostjit.bytecode.making import begin_of, function_of, kind_of_variable, transformed

__all__ = [
    "Split",
    "computes_gradients",
    "is_of_gradients",
    "may_be_taken_apart",
    "parameters_of",
    "places_between_lines",
    "split_ahead_of_steps",
    "split_at",
    "split_behind_gradients",
    "unread_by",
    "with_calls_between_lines",
]

# Behind the last of these names no gradient is computed, and no parameter updated.
_OF_GRADIENTS = frozenset({"grad", "autograd", "clip_grad_norm_", "clip_grad_value_"})
_METHODS_OF_GRADIENTS = frozenset({"backward", "step", "zero_grad", "unscale_"})
_COMPUTING_GRADIENTS = frozenset({"backward", "grad"})
# What reads a tensor, is given what was read, or changes what stays.
_METHODS = frozenset({"item", "tolist", "numpy", "append", "appendleft", "extend", "write", "put"})
_FUNCTIONS = frozenset({"float", "int", "bool", "round", "print", "str", "format"})
_OTHER_CALLS = frozenset(
    {
        *("len", "min", "max", "sum", "abs", "range", "zip", "enumerate", "sorted", "isinstance"),
        *("list", "dict", "tuple", "items", "keys", "values", "get", "update", "pop", "clear"),
        *("detach", "cpu", "clone", "mean", "TypeError", "ValueError", "RuntimeError"),
    }
)
_OPERATIONS = frozenset(
    {
        *("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC"),
        *("STORE_ATTR", "STORE_SUBSCR", "STORE_GLOBAL"),
    }
)
# They look at the frame that they are called in.
_OF_FRAMES = frozenset({"super", "locals", "vars", "dir", "eval", "exec", "_getframe", "__class__"})
_NAMES = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD", "LOAD_DEREF"})


@dataclasses.dataclass(frozen=True)
class Split:
    """A function or a method in two.

    Attributes:
        first: has the signature of the callable, and returns a tuple. Where the callable returns
            ahead of the rest, what it returns, and `Returned`.
        rest: takes that, the object of a method, and the arguments of the call.
        is_short: the rest calls nothing but what reads values, shows them or keeps them.
        unread: the parameters that the first part does not look at, by position and by name. It is
            given None for them: a program that is not for one value of each would do no more.
        receiver: the object of a method, in a tuple; () for a function.
    """

    first: Callable[..., tuple[Any, ...]]
    rest: types.FunctionType
    is_short: bool
    unread: frozenset[int | str]
    receiver: tuple[Any, ...] = ()

    def of_method(self, receiver: Any) -> Split:
        """Return the same of a method, by that of its function."""
        first: Any = self.first
        return dataclasses.replace(
            self, first=types.MethodType(first, receiver), receiver=(receiver,)
        )

    def joined(
        self, first: Callable[..., tuple[Any, ...]], rest: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Return the callable, with others in the places of its parts."""
        receiver, unread, skipped = self.receiver, self.unread, len(self.receiver)

        def run(*args: Any, **kwargs: Any) -> Any:
            found = first(*args, **kwargs)
            if found and found[-1] is Returned:
                return found[0]
            return rest(found, *receiver, *args, **kwargs)

        def run_with_less(*args: Any, **kwargs: Any) -> Any:
            read = [None if i in unread else value for i, value in enumerate(args, skipped)]
            read_by_name = {name: None if name in unread else kwargs[name] for name in kwargs}
            found = first(*read, **read_by_name)
            if found and found[-1] is Returned:
                return found[0]
            return rest(found, *receiver, *args, **kwargs)

        return run_with_less if unread else run


def split_behind_gradients(
    target: Callable[..., Any], followed: Set[int] = frozenset()
) -> Split | None:
    """Split a function or a method behind all that has to do with gradients.

    That is where it first reads a value, or changes what stays. Returns None where it does not, or
    where no line has nothing in common with those on the other side but variables, and for one that
    has nothing to do with gradients.

    Args:
        target: the function or method.
        followed: instructions that read values which are followed, rather.
    """
    if isinstance(target, types.MethodType):
        whole = split_behind_gradients(target.__func__, followed)
        if whole is None:
            return None
        return whole.of_method(target.__self__)
    if not isinstance(target, types.FunctionType):
        return None
    code = target.__code__
    if not may_be_taken_apart(code):
        return None
    instructions = cleaned_instructions(code)
    flow = CodeFlow(instructions, code)
    for index in _candidates(instructions, flow, followed):
        found = flow.variables_at(index, parameters_of(code))
        if found is not None:
            return _split_at(target, index, found)
    return None


def split_ahead_of_steps(target: Callable[..., Any]) -> Split | None:
    """Split a function or a method ahead of the steps of optimizers behind its last backward pass.

    Returns None where there are none, or in no place where a function can be split.
    """
    if isinstance(target, types.MethodType):
        whole = split_ahead_of_steps(target.__func__)
        return None if whole is None else whole.of_method(target.__self__)
    if not isinstance(target, types.FunctionType) or not may_be_taken_apart(target.__code__):
        return None
    instructions = cleaned_instructions(target.__code__)
    flow = CodeFlow(instructions, target.__code__)
    backward = [i for i, each in enumerate(instructions) if _names(each) & _COMPUTING_GRADIENTS]
    first = backward[-1] + 1 if backward else len(instructions)
    steps = (i for i in range(first, len(instructions)) if _is_step(instructions, i))
    for index in range(next(steps, -1), first - 1, -1):
        if instructions[index].starts_line is not None and flow.depths.get(index) == 0:
            found = flow.variables_at(index, parameters_of(target.__code__))
            return None if found is None else _split_at(target, index, found)
    return None


def _is_step(instructions: Sequence[Instruction], index: int) -> bool:
    return "step" in _names(instructions[index]) and _calls(instructions, index)


def split_at(target: types.FunctionType, index: int) -> Split:
    """Split a function ahead of an instruction, one of `places_between_lines`."""
    flow = CodeFlow(cleaned_instructions(target.__code__), target.__code__)
    found = flow.variables_at(index, parameters_of(target.__code__))
    assert found is not None
    return _split_at(target, index, found)


def _split_at(target: types.FunctionType, index: int, found: Mapping[str, bool]) -> Split:
    code = target.__code__
    anew = _made_anew(code, index, found)
    found = {name: is_set for name, is_set in found.items() if name not in anew}
    first = function_of(target, first_code(code, index, found))
    rest = function_of(target, rest_code(code, index, found, anew))
    return Split(first, rest, _is_short(rest.__code__), unread_by(first.__code__))


def places_between_lines(
    code: types.CodeType, *, ahead_of_gradients: bool = False, behind: Set[int] = frozenset()
) -> dict[int, tuple[str, ...]]:
    """Return where a function could be split, and the variables that the rest of it reads.

    All of these have values there. The places are the indices of the instructions at which lines
    begin, in the order of the code.

    Args:
        code: of the function.
        ahead_of_gradients: there are none behind an instruction that computes gradients.
        behind: lines behind the last of which they are.
    """
    if not may_be_taken_apart(code):
        return {}
    instructions = cleaned_instructions(code)
    flow = CodeFlow(instructions, code)
    parameters = parameters_of(code)
    places: dict[int, tuple[str, ...]] = {}
    lines = _lines_of(instructions)
    first = max((i + 1 for i, line in enumerate(lines) if line in behind), default=0)
    for index in range(max(first, begin_of(instructions)), len(instructions)):
        if ahead_of_gradients and _names(instructions[index]) & _COMPUTING_GRADIENTS:
            break
        if instructions[index].starts_line is None or flow.depths.get(index) != 0:
            continue
        found = flow.variables_at(index, parameters)
        if found is not None and all(found.values()):
            places[index] = tuple(sorted(flow.needed_by(index)))
    return places


def computes_gradients(code: types.CodeType, place: int = 0) -> bool:
    """Tell whether code computes gradients, in its instructions from the one at `place` on."""
    return any(_names(each) & _COMPUTING_GRADIENTS for each in cleaned_instructions(code)[place:])


def _lines_of(instructions: Sequence[Instruction]) -> list[int | None]:
    """The line that each instruction belongs to."""
    lines: list[int | None] = []
    for each in instructions:
        lines.append(each.starts_line or (lines[-1] if lines else None))
    return lines


def with_calls_between_lines(
    target: types.FunctionType,
    places: Mapping[int, Sequence[str]],
    note: Callable[[int, tuple[Any, ...]], None],
) -> types.FunctionType:
    """Return a function that does the same, and calls `note` at each of these places.

    Args:
        target: the function.
        places: some of `places_between_lines`.
        note: takes a place and the values of its variables.
    """
    code = target.__code__

    def transform(instructions: list[Instruction], options: dict[str, Any]) -> None:
        kept: list[Instruction] = []
        for index, instruction in enumerate(instructions):
            if index in places:
                names = places[index]
                call = [
                    *add_push_null([create_instruction("LOAD_CONST", argval=note)]),
                    create_instruction("LOAD_CONST", argval=index),
                    *(
                        create_instruction(f"LOAD_{kind_of_variable(name, code)}", argval=name)
                        for name in names
                    ),
                    create_instruction("BUILD_TUPLE", arg=len(names)),
                    *create_call_function(2, False),
                    create_instruction("POP_TOP"),
                ]
                call[0].copy_positions(instruction)
                for each in instructions:
                    if each.target is instruction:
                        each.target = call[0]
                kept += call
            kept.append(instruction)
        instructions[:] = kept

    return function_of(target, transformed(code, transform))


def may_be_taken_apart(code: types.CodeType) -> bool:
    """Tell whether code is a function's, and nothing in it knows of its frame."""
    others = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    if code.co_flags & others or _OF_FRAMES & {*code.co_names, *code.co_freevars}:
        return False
    return not any(map(_changes_variables, code.co_consts))


def _is_short(code: types.CodeType) -> bool:
    """Whether code calls nothing that may take long, or may compute."""
    instructions = cleaned_instructions(code)
    opnames = [found.opname for found in instructions]
    if any(
        pair[1] == "PUSH_NULL" != pair[0] != "LOAD_ATTR" for pair in itertools.pairwise(opnames)
    ):
        return False  # it calls what a variable has
    called = (_names(found) for i, found in enumerate(instructions) if _calls(instructions, i))
    return frozenset[str]().union(*called) <= _METHODS | _FUNCTIONS | _OTHER_CALLS


def parameters_of(code: types.CodeType) -> tuple[str, ...]:
    """Return the names of all parameters."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count]


def unread_by(code: types.CodeType) -> frozenset[int | str]:
    """Return the parameters that code does not look at, but for `*args` and `**kwargs`.

    By position, and by name.
    """
    known = {found.argval for found in dis.get_instructions(code) if isinstance(found.argval, str)}
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    unread = {i: name for i, name in enumerate(names) if name not in known}
    positions = {i for i in unread if i < code.co_argcount}
    by_name = {name for i, name in unread.items() if i >= code.co_posonlyargcount}
    return frozenset({*positions, *by_name})


def _changes_variables(code: Any) -> bool:
    """Whether code of a function inside changes variables of the one around it."""
    if not isinstance(code, types.CodeType):
        return False
    stored = {found.argval for found in dis.get_instructions(code) if found.opname in STORES}
    return bool(stored & set(code.co_freevars)) or any(map(_changes_variables, code.co_consts))


def _candidates(
    instructions: Sequence[Instruction], flow: CodeFlow, followed: Set[int]
) -> Iterator[int]:
    """Yield where lines begin at which the code could be split, the last first."""
    of_gradients = [i for i in range(len(instructions)) if is_of_gradients(instructions, i)]
    last = of_gradients[-1] if of_gradients else len(instructions)
    first = next(
        (
            i
            for i in range(last + 1, len(instructions))
            if (i not in followed and _is_of_python(instructions[i])) or flow.changes_outside(i)
        ),
        last,
    )
    for index in range(first, last, -1):
        if instructions[index].starts_line is not None and flow.depths.get(index) == 0:
            yield index


def is_of_gradients(instructions: Sequence[Instruction], index: int) -> bool:
    """Tell whether an instruction has to do with gradients, or the steps of optimizers."""
    names = _names(instructions[index])
    if _OF_GRADIENTS & names:
        return True
    return bool(_METHODS_OF_GRADIENTS & names) and _calls(instructions, index)


def _calls(instructions: Sequence[Instruction], index: int) -> bool:
    """Whether names are called that an instruction looks up, or may be."""
    instruction = instructions[index]
    if instruction.opname == "LOAD_ATTR":
        # Dynamo of torch 2.14 puts the null of a method behind it, from CPython 3.13 on.
        is_method = instructions[index + 1].opname == "PUSH_NULL" and sys.version_info >= (3, 13)
        return is_method or (sys.version_info >= (3, 12) and bool((instruction.arg or 0) & 1))
    if instruction.opname == "LOAD_GLOBAL":
        return bool((instruction.arg or 0) & 1)
    return True


def _is_of_python(instruction: Instruction) -> bool:
    """Whether an instruction reads a tensor, or changes what stays."""
    is_method = instruction.opname in ("LOAD_ATTR", "LOAD_METHOD")
    names = _METHODS if is_method else _METHODS | _FUNCTIONS
    return instruction.opname in _OPERATIONS or bool(names & _names(instruction))


def _names(instruction: Instruction) -> frozenset[str]:
    """The names that an instruction looks up, or the code in it does."""
    if instruction.opname in _NAMES:
        return frozenset({str(instruction.argval)})
    return _names_in(instruction.argval)


def _names_in(code: Any) -> frozenset[str]:
    if not isinstance(code, types.CodeType):
        return frozenset()
    return frozenset(code.co_names).union(*map(_names_in, code.co_consts))


def _made_anew(code: types.CodeType, index: int, found: Iterable[str]) -> list[str]:
    """The variables of lists that the rest of the code alone appends to, and returns.

    It makes them itself, rather: a list that it is given it would change.
    """
    instructions = cleaned_instructions(code)
    parts = CodeFlow(instructions, code).parts(index)
    assert parts is not None
    read = {instructions[i].argval for i in parts[0] if instructions[i].opname in LOADS}
    return [name for name in found if is_own_list(name) and name not in read]
