# SPDX-License-Identifier: Apache-2.0
"""Functions that a pass of a loop makes, and that somebody may have behind it.

`jobs.append(lambda: i)` in a loop makes functions that all know one variable, which has its last
value when they are called. A pass that is a function of its own would give each another variable.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Sequence, Set

from torch._dynamo.bytecode_transformation import Instruction

from hostjit.bytecode.flow import STORES, CodeFlow
from hostjit.bytecode.local_functions import MADE, loads_cell

__all__ = ["keeps_functions"]

# Methods that keep what they are given.
_KEEPING = frozenset(
    {
        *("append", "appendleft", "add", "insert", "extend", "setdefault", "update", "put", "push"),
        *("submit", "register_hook", "register_forward_hook", "register_forward_pre_hook"),
        *("register_full_backward_hook", "register_post_accumulate_grad_hook", "partial"),
    }
)
_CALLS = frozenset({"PRECALL", "CALL", "CALL_KW"})
_DROPS = frozenset({"POP_TOP", "IS_OP", "COMPARE_OP"})


def keeps_functions(
    instructions: Sequence[Instruction],
    flow: CodeFlow,
    inside: Set[int],
    changed: Set[str],
    given: Set[str],
) -> bool:
    """Tell whether a function made by some code may be kept that knows a variable it changes.

    Args:
        instructions: of all code.
        flow: of it.
        inside: what runs in a pass.
        changed: the variables that functions know, and that a pass changes.
        given: the variables that others read behind a pass.
    """
    for index in sorted(inside):
        if instructions[index].opname in MADE and instructions[index + 1].opname not in MADE:
            begin = _begin(flow, index)
            making = instructions[begin:index]
            known = {each.argval for each in making if loads_cell(each, flow)}
            if changed & known:
                found = _Function(instructions, flow, inside, given, _is_generator(making))
                if found.is_kept(index + 1, begin):
                    return True
    return False


def _begin(flow: CodeFlow, index: int) -> int:
    """Where a statement or an expression begins that makes a function."""
    base = flow.depths[index + 1] - 1
    begin = index
    while begin and flow.depths.get(begin, base) > base:
        begin -= 1
    return begin


def _is_generator(making: Sequence[Instruction]) -> bool:
    """Whether what a function returns runs its code later."""
    codes = [each.argval for each in making if isinstance(each.argval, types.CodeType)]
    kinds = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    return any(code.co_flags & kinds for code in codes)


@dataclasses.dataclass(frozen=True)
class _Function:
    """A function on its way."""

    instructions: Sequence[Instruction]
    flow: CodeFlow
    inside: Set[int]
    given: Set[str]
    is_generator: bool

    def is_kept(self, behind: int, begin: int) -> bool:
        """Tell whether what is on top of the stack ahead of an instruction may be kept.

        `begin`: where the code begins that puts it there.
        """
        depths = self.flow.depths
        place, taking = depths[behind] - 1, behind
        while taking in self.inside and depths.get(taking + 1, 0) > place:
            taking += 1
        found = self.instructions[taking]
        if taking not in self.inside or found.opname in _DROPS:
            return taking not in self.inside
        if found.opname in STORES:
            return found.argval in self.given or any(
                self.is_kept(i + 1, i)
                for i in self.inside
                if _loads(self.instructions[i], found.argval)
            )
        if found.opname not in _CALLS:
            return True
        call = depths[taking] - (found.arg or 0) - 2 - (found.opname == "CALL_KW")
        first = begin
        while first and depths.get(first, 0) > call:
            first -= 1
        if place > call + 1:
            names = {each.argval for each in self.instructions[first:begin] if _looks_up(each)}
            return not _KEEPING.isdisjoint(names)
        is_last = found.opname != "PRECALL"
        return self.is_generator and self.is_kept(taking + 2 - is_last, first)


def _looks_up(instruction: Instruction) -> bool:
    return instruction.opname in ("LOAD_METHOD", "LOAD_ATTR", "LOAD_GLOBAL")


def _loads(instruction: Instruction, name: str) -> bool:
    return instruction.argval == name and instruction.opname.startswith(("LOAD_FAST", "LOAD_DEREF"))
