# SPDX-License-Identifier: Apache-2.0
"""Functions that do the same by other instructions."""

from __future__ import annotations

import dis
import logging
import types
from collections.abc import Callable
from typing import Any

from torch._dynamo.bytecode_transformation import Instruction

from hostjit.bytecode.handlers import with_handlers
from hostjit.bytecode.making import function_of, transformed
from hostjit.bytecode.splits import may_be_taken_apart

__all__ = ["argument_of", "rewritten", "with_more_variables"]

_log = logging.getLogger(__name__)


def rewritten(
    function: types.FunctionType, rewrite: Callable[[list[Instruction]], list[Instruction]]
) -> types.FunctionType:
    """Return a function with what `rewrite` makes of the instructions; the same if it can't.

    What is added is `beside` another instruction.
    """
    code = function.__code__
    if not may_be_taken_apart(code):
        return function

    def transform(instructions: list[Instruction], _: dict[str, Any]) -> None:
        made = rewrite(instructions)
        instructions[:] = with_handlers(made, {*made}, 0)

    try:
        return function_of(function, transformed(code, transform))
    except (AssertionError, LookupError):
        # Dynamo's assembler refuses code; what there is does the same.
        _log.info("%s is recorded as it is", code, exc_info=True)
        return function


def with_more_variables(
    code: types.CodeType,
    rewrite: Callable[[list[Instruction]], tuple[list[Instruction], list[str]]],
) -> types.CodeType | None:
    """Return code with what `rewrite` makes of the instructions; None if it can't.

    `rewrite`: returns the variables that it adds as well.
    """

    def transform(instructions: list[Instruction], options: dict[str, Any]) -> None:
        instructions[:], added = rewrite(instructions)
        options["co_varnames"] = (*options["co_varnames"], *added)

    try:
        return transformed(code, transform)
    except (AssertionError, LookupError):
        # Dynamo's assembler refuses code; what there is does the same.
        _log.info("%s stays as it is", code, exc_info=True)
        return None


def argument_of(operation: str, text: str) -> int:
    """The argument of an operation, as CPython's compiler writes it."""
    found = dis.get_instructions(compile(text, "", "eval"))
    return next(each.arg or 0 for each in found if each.opname == operation)
