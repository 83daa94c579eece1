# SPDX-License-Identifier: Apache-2.0
"""Loops of training steps: what one pass does is a function of its own, which is compiled.

Behind a line in a loop that Dynamo cannot follow there is no function for the rest, and a recording
of the whole loop is for the values that were read in it. The loop itself stays as it is.
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
    transformed,
)

__all__ = ["Outlined", "outline_loop"]

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
    code = target.__code__
    instructions = cleaned_instructions(code)
    flow = CodeFlow(instructions, code)
    heads = [i for i, found in enumerate(instructions) if found.opname == "FOR_ITER"]
    passes = {head: inside for head in heads if (inside := flow.body(head)) is not None}
    head = min(
        (
            head
            for head, inside in passes.items()
            if any(is_of_gradients(instructions[i]) for i in inside)
        ),
        key=lambda head: len(passes[head]),
        default=None,
    )
    if head is None:
        return None
    variables = flow.variables_of(head, passes[head], parameters_of(code))
    if variables is None:
        return None
    taken, given = variables
    body = function_of(target, _body_code(code, head, taken, given))
    body.__defaults__ = body.__kwdefaults__ = None
    return Outlined(body, target, head, taken, given)


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
