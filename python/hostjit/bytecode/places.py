# SPDX-License-Identifier: Apache-2.0
"""Items by numbers, `x[i]`, of which a recording may follow the number.

PyTorch makes an int of whatever it is given as an index, so recorded code asks something else.
"""

from __future__ import annotations

import dis
import types
from typing import Any

from torch._dynamo.bytecode_transformation import Instruction, create_instruction

from hostjit.bytecode.appended import become, beside
from hostjit.bytecode.rewriting import rewritten

__all__ = ["NOTHING_LEFT", "PLACES", "with_places"]

NOTHING_LEFT = object()
"""What is left of an index of which all is followed: code may ask for `x[None]`, too."""


class _Places:
    """`PLACES[container, index]` is `container[index]`.

    A number that a recording follows says in its place what part of the container that is.
    """

    def __getitem__(self, pair: tuple[Any, Any]) -> Any:
        container, index = _followed(*pair)
        return container if index is NOTHING_LEFT else container[index]

    def __setitem__(self, pair: tuple[Any, Any], value: Any) -> None:
        container, index = _followed(*pair)
        if hasattr(value, "followed_value"):
            value = value.followed_value(container)
        container[... if index is NOTHING_LEFT else index] = value


def _followed(container: Any, index: Any) -> tuple[Any, Any]:
    """Return a part of a container, and what is left of an index."""
    number = _number_in(index)
    return (container, index) if number is None else number.followed_place(container, index)


def _number_in(index: Any) -> Any:
    if type(index) in (tuple, list):
        return next((found for item in index if (found := _number_in(item)) is not None), None)
    return index if hasattr(index, "followed_place") else None


PLACES = _Places()
"""What recorded code asks for items, and has put them."""


_OF_ITEMS = ("BINARY_SUBSCR", "STORE_SUBSCR")


def with_places(function: types.FunctionType) -> types.FunctionType:
    """Return a function that does the same, and asks `PLACES` for each item."""

    def rewrite(instructions: list[Instruction]) -> list[Instruction]:
        kept: list[Instruction] = []
        for each in instructions:
            kept.append(each)
            if each.opname in _OF_ITEMS:
                kept += _asking(each)
        return kept

    if not any(each.opname in _OF_ITEMS for each in dis.get_instructions(function.__code__)):
        return function
    return rewritten(function, rewrite)


def _asking(instruction: Instruction) -> list[Instruction]:
    """Have an instruction make the pair that it takes one; return what follows it, to take that."""
    others = [
        create_instruction("LOAD_CONST", argval=PLACES),
        create_instruction("SWAP", arg=2),
        create_instruction(instruction.opname),
    ]
    become(instruction, create_instruction("BUILD_TUPLE", arg=2))
    return beside(instruction, others)
