# SPDX-License-Identifier: Apache-2.0
"""Loops with lines that cannot be followed: what one pass does is a function, which is compiled.

Behind such a line in a loop there is no function for the rest, and a recording of the whole loop is
for the values that were read in it. The loop itself stays as it is.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch._dynamo.bytecode_transformation import (
    Instruction,
    add_push_null,
    cleaned_instructions,
    create_call_function,
    create_instruction,
)

from hostjit.compiling.code_flow import CodeFlow
from hostjit.compiling.split_code import (
    begin_of,
    function_of,
    is_of_gradients,
    may_be_taken_apart,
    parameters_of,
    places_between_lines,
    split_at,
    transformed,
)

__all__ = ["Outlined", "outline_loop", "with_compiled_passes"]

_ITEM = "hostjit_item"


@dataclasses.dataclass(frozen=True)
class Outlined:
    """A function or a method with a loop, and what one pass of the loop does.

    Attributes:
        body: takes the item of the pass and variables; returns the tuple of those that it changes.
    """

    body: types.FunctionType
    _target: types.FunctionType
    _head: int
    _taken: tuple[str, ...]
    _given: tuple[str, ...]

    def around(self, body: Callable[..., tuple[Any, ...]]) -> types.FunctionType:
        """Return the function, unbound, with a call of `body` in the loop."""
        code = self._target.__code__

        def transform(instructions: list[Instruction], options: dict[str, Any]) -> None:
            head = instructions[self._head]
            inside = CodeFlow(instructions, code).body(self._head)
            assert inside is not None
            call = [
                *_each("STORE_FAST", [_ITEM]),
                *add_push_null([create_instruction("LOAD_CONST", argval=body)]),
                *_each("LOAD_FAST", [_ITEM, *self._taken]),
                *create_call_function(1 + len(self._taken), False),
                create_instruction("UNPACK_SEQUENCE", arg=len(self._given)),
                *_each("STORE_FAST", self._given),
                create_instruction("JUMP_BACKWARD", target=head),
            ]
            call[0].copy_positions(instructions[self._head + 1])
            first = self._head + 1
            kept = [each for i, each in enumerate(instructions) if i > self._head]
            kept = [each for i, each in enumerate(kept, first) if i not in inside]
            instructions[first:] = [*call, *kept]
            options["co_varnames"] = (*options["co_varnames"], _ITEM)

        return function_of(self._target, transformed(code, transform))


def outline_loop(target: Callable[..., Any]) -> Outlined | None:
    """Outline the innermost loop of a function in which gradients are computed.

    Returns None where there is none, and where a pass has more to do with the code around than
    variables: it returns or leaves the loop, or a function inside knows what it changes.
    """
    if isinstance(target, types.MethodType):
        target = target.__func__
    if not isinstance(target, types.FunctionType) or not may_be_taken_apart(target.__code__):
        return None
    instructions = cleaned_instructions(target.__code__)
    passes = _passes(instructions, target.__code__)
    head = min(
        (
            head
            for head, inside in passes.items()
            if any(is_of_gradients(instructions[i]) for i in inside)
        ),
        key=lambda head: len(passes[head]),
        default=None,
    )
    return None if head is None else _outlined(target, head)


def _passes(instructions: Sequence[Instruction], code: types.CodeType) -> dict[int, set[int]]:
    """What runs in a pass of each loop that could be outlined, by where the loops begin."""
    flow = CodeFlow(instructions, code)
    heads = [i for i, found in enumerate(instructions) if found.opname == "FOR_ITER"]
    return {head: inside for head in heads if (inside := flow.body(head)) is not None}


def _outlined(target: types.FunctionType, head: int) -> Outlined | None:
    code = target.__code__
    instructions = cleaned_instructions(code)
    flow = CodeFlow(instructions, code)
    inside = flow.body(head)
    variables = None if inside is None else flow.variables_of(head, inside, parameters_of(code))
    if variables is None:
        return None
    taken, given = variables
    body = function_of(target, _body_code(code, head, taken, given))
    body.__defaults__ = body.__kwdefaults__ = None
    return Outlined(body, target, head, taken, given)


def with_compiled_passes(
    target: types.FunctionType,
    compile_pass: Callable[[types.FunctionType], Callable[..., Any]],
    part: Callable[[types.FunctionType], Callable[..., Any]],
    leave_alone: Callable[[types.FunctionType], None],
) -> Callable[..., Any] | None:
    """Return a function whose only loop has compiled passes, between two compiled parts.

    Args:
        target: the function.
        compile_pass: compiles what a pass does.
        part: compiles what is ahead of the loop, and what follows it.
        leave_alone: is given what runs the loop.

    Returns None where there is no such loop, or several next to each other.
    """
    if not may_be_taken_apart(target.__code__) or (loop := _only_loop(target.__code__)) is None:
        return None
    ahead = [place for place in places_between_lines(target.__code__) if place <= loop[0]]
    if len(ahead) < 2:  # the first line of all is one
        return _around_loop(target, compile_pass, part, leave_alone)
    split = split_at(target, ahead[-1])
    rest = _around_loop(split.rest, compile_pass, part, leave_alone)
    return None if rest is None else split.joined(part(_plain(split.first)), rest)


def _around_loop(
    target: types.FunctionType,
    compile_pass: Callable[[types.FunctionType], Callable[..., Any]],
    part: Callable[[types.FunctionType], Callable[..., Any]],
    leave_alone: Callable[[types.FunctionType], None],
) -> Callable[..., Any] | None:
    """The same for a function that begins with the loop."""

    def around(function: types.FunctionType) -> types.FunctionType | None:
        loop = _only_loop(function.__code__)
        outlined = None if loop is None else _outlined(function, loop[0])
        if outlined is None:
            return None
        run = outlined.around(compile_pass(outlined.body))
        leave_alone(run)
        return run

    loop = _only_loop(target.__code__)
    behind = [] if loop is None else places_between_lines(target.__code__)
    behind = [place for place in behind if loop is not None and place > loop[1]]
    if not behind:
        return around(target)
    split = split_at(target, behind[0])
    first = around(_plain(split.first))
    return None if first is None else split.joined(first, part(split.rest))


def _plain(function: Callable[..., Any]) -> types.FunctionType:
    assert isinstance(function, types.FunctionType)
    return function


def _only_loop(code: types.CodeType) -> tuple[int, int] | None:
    """Where the one loop of some code begins and ends that is in no other; None for none or more.

    A loop in which nothing is called computes nothing that could be compiled.
    """
    instructions = cleaned_instructions(code)
    passes = _passes(instructions, code)
    outer = [h for h in passes if not any(h in inside for inside in passes.values())]
    outer = [h for h in outer if any("CALL" in instructions[i].opname for i in passes[h])]
    return (outer[0], max(passes[outer[0]])) if len(outer) == 1 else None


def _body_code(
    code: types.CodeType, head: int, taken: Sequence[str], given: Sequence[str]
) -> types.CodeType:
    parameters = (_ITEM, *taken)

    def transform(instructions: list[Instruction], options: dict[str, Any]) -> None:
        inside = CodeFlow(instructions, code).body(head)
        assert inside is not None
        end = [
            *_each("LOAD_FAST", given),
            create_instruction("BUILD_TUPLE", arg=len(given)),
            create_instruction("RETURN_VALUE"),
        ]
        kept = [each for i, each in enumerate(instructions) if i in inside]
        for each in kept:
            if each.target is instructions[head]:  # the next pass
                each.target = end[0]
        start = create_instruction("LOAD_FAST", argval=_ITEM)
        start.copy_positions(kept[0])
        end[0].copy_positions(kept[-1])
        instructions[:] = [*instructions[: begin_of(instructions)], start, *kept, *end]
        options["co_varnames"] = (
            *parameters,
            *(name for name in options["co_varnames"] if name not in parameters),
        )
        options["co_argcount"] = len(parameters)
        options["co_posonlyargcount"] = options["co_kwonlyargcount"] = 0
        options["co_flags"] &= ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)

    return transformed(code, transform)


def _each(operation: str, names: Iterable[str]) -> list[Instruction]:
    return [create_instruction(operation, argval=name) for name in names]
