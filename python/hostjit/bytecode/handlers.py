# SPDX-License-Identifier: Apache-2.0
"""What handles the errors of instructions that are put together anew."""

from __future__ import annotations

import itertools
from collections.abc import Sequence, Set

from torch._dynamo.bytecode_transformation import (
    Instruction,
    InstructionExnTabEntry,
    create_instruction,
)

__all__ = ["with_handlers"]


def with_handlers(
    instructions: Sequence[Instruction], known: Set[Instruction], depth: int
) -> list[Instruction]:
    """Return instructions of which runs know what handles their errors, if that is known itself.

    Args:
        instructions: in order, which name what handled their errors.
        known: those that may handle errors.
        depth: how many values fewer are on the stack now.
    """

    def handler_of(instruction: Instruction) -> tuple[Instruction, int, bool] | None:
        entry = instruction.exn_tab_entry
        if entry is None or entry.target not in known:
            return None
        return entry.target, entry.depth - depth, entry.lasti

    found: list[Instruction] = []
    for handler, each in itertools.groupby(instructions, key=handler_of):
        run = list(each)
        if handler is not None:
            # Dynamo gives no place to what it puts ahead of the first one, if its argument is long.
            run.insert(0, create_instruction("NOP"))
        for instruction in run:
            instruction.exn_tab_entry = handler and InstructionExnTabEntry(
                run[0], run[-1], *handler
            )
        found += run
    return found
