# SPDX-License-Identifier: Apache-2.0
"""What follows what in the code of a function, and which variables have values where."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterable, Iterator, Sequence

from torch._dynamo.bytecode_transformation import Instruction

__all__ = ["STORES", "CodeFlow"]

_LOADS = frozenset(
    {
        *("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "DELETE_FAST"),
        *("LOAD_DEREF", "LOAD_CLOSURE", "DELETE_DEREF"),
    }
)
STORES = frozenset({"STORE_FAST", "STORE_DEREF"})
"""Operations that give a variable a value."""
_DELETES = frozenset({"DELETE_FAST", "DELETE_DEREF"})
_CHANGES = STORES | _DELETES
_OTHERS = frozenset({"LOAD_FAST_AND_CLEAR", "MAKE_CELL"})
_ENDS = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"})
_JUMPS_ALWAYS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})


class CodeFlow:
    """Which instructions follow which, by index, and how many values each finds on the stack."""

    def __init__(self, instructions: Sequence[Instruction], code: types.CodeType) -> None:
        self._instructions = instructions
        self._cells, self._outside = frozenset(code.co_cellvars), frozenset(code.co_freevars)
        self._index = {found: i for i, found in enumerate(instructions)}
        self.depths = self._find_depths()

    def changes_outside(self, index: int) -> bool:
        """Tell whether an instruction changes a variable of a function around this one."""
        return bool(self._variables(index, STORES) & self._outside)

    def _variables(self, index: int, operations: frozenset[str]) -> frozenset[str]:
        """The variable that an instruction is about, if it is one of some."""
        found = self._instructions[index]
        return frozenset({found.argval} if found.opname in operations else ())

    def _successors(self, index: int) -> Iterator[tuple[int, bool]]:
        """Yield them, and whether they are jumped to."""
        found = self._instructions[index]
        if found.target is not None:
            yield self._index[found.target], True
        if found.opname not in _ENDS | _JUMPS_ALWAYS:
            yield index + 1, False

    def _handlers(self, index: int) -> Iterator[int]:
        entry = self._instructions[index].exn_tab_entry
        if entry is not None:
            yield self._index[entry.target]

    def _find_depths(self) -> dict[int, int]:
        depths = {0: 0}
        pending = [0]
        while pending:
            index = pending.pop()
            found = self._instructions[index]
            # Those that jump have a target instead.
            arg = (found.arg or 0) if found.opcode >= dis.HAVE_ARGUMENT else None
            for after, jumps in self._successors(index):
                effect = dis.stack_effect(found.opcode, arg, jump=jumps)
                if after not in depths:
                    depths[after] = depths[index] + effect
                    pending.append(after)
        return depths

    def _reached(self, start: int, without: int | None = None) -> set[int]:
        reached: set[int] = set()
        pending = [start]
        while pending:
            index = pending.pop()
            if index in reached or index == without:
                continue
            reached.add(index)
            pending.extend(after for after, _ in self._successors(index))
            pending.extend(self._handlers(index))
        return reached

    def parts(self, index: int) -> tuple[set[int], set[int]] | None:
        """Return what runs before an instruction, and from it on; None where they share some."""
        before, behind = self._reached(0, index), self._reached(index)
        if before & behind or not self._handles_its_own(before, behind):
            return None
        if any(self._instructions[i].opname.startswith("RETURN") for i in before):
            return None
        return before, behind

    def _handles_its_own(self, *parts: set[int]) -> bool:
        """Whether code that handles errors is in one part with all that it handles."""
        for part in parts:
            entries = (self._instructions[i].exn_tab_entry for i in part)
            for entry in filter(None, entries):
                if not {self._index[i] for i in (entry.start, entry.end, entry.target)} <= part:
                    return False
        return True

    def variables_at(self, index: int, parameters: Iterable[str]) -> dict[str, bool] | None:
        """Return the variables that the code from an instruction on needs of that before it.

        And whether each has a value there, wherever the code came from. None where the code cannot
        be split there.
        """
        parts = self.parts(index)
        if parts is None:
            return None
        before, behind = parts
        if any(not self._is_known(i) for i in before | behind):
            return None
        if any(self._variables(i, STORES) & self._cells for i in behind):  # others see that
            return None
        changed = frozenset[str]().union(*(self._variables(i, _CHANGES) for i in before))
        wanted = self._needed(index, behind) & changed - self._outside
        assigned = self._assigned(index, before, frozenset(parameters))
        for i in before:  # what has no value raises there
            if not self._variables(i, _LOADS) & wanted <= assigned.get(i, wanted):
                return None
        return {name: name in assigned[index] for name in sorted(wanted)}

    def needed_at(self, index: int) -> tuple[str, ...]:
        """Return the variables that the code from an instruction on reads, parameters too."""
        needed = self._needed(index, self._reached(index)) - self._outside
        return tuple(sorted(needed))

    def body(self, head: int) -> set[int] | None:
        """Return what runs in a pass of the loop that begins with `FOR_ITER` at `head`.

        None where a pass does not always end there: it returns, or leaves the loop.
        """
        inside = self._reached(head + 1, head)
        end = self._instructions[head].target
        leaves = end is not None and self._index[end] in inside
        returns = any(self._instructions[i].opname.startswith("RETURN") for i in inside)
        if leaves or returns or not self._handles_its_own(inside):
            return None
        return inside

    def variables_of(
        self, head: int, body: set[int], parameters: Iterable[str]
    ) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Return the variables that a pass of a loop needs, and those that it leaves to others.

        None where it is not known which have values, and where functions inside know one.
        """
        if any(not self._is_known(i) or self._variables(i, _DELETES) for i in body):
            return None
        behind = self._reached(head)
        changed = frozenset[str]().union(*(self._variables(i, STORES) for i in body))
        given = changed & self._needed(head, behind) - self._outside
        always = self._assigned(head, body, frozenset(), head + 1).get(head, frozenset())
        taken = (self._needed(head + 1, body) | (given - always)) - self._outside
        before = self._assigned(head, self._reached(0), frozenset(parameters))[head]
        if (taken | given) & self._cells or not taken <= before:
            return None
        return tuple(sorted(taken)), tuple(sorted(given))

    def _is_known(self, index: int) -> bool:
        name = self._instructions[index].opname
        is_of_variables = any(kind in name for kind in ("FAST", "DEREF", "CELL", "CLOSURE"))
        return not is_of_variables or name in _LOADS | _CHANGES | _OTHERS

    def _needed(self, start: int, behind: set[int]) -> set[str]:
        """The variables that are read, from an instruction on, before they are written."""
        needed: dict[int, set[str]] = {index: set() for index in behind}
        changed = True
        while changed:
            changed = False
            for index in sorted(behind, reverse=True):
                ways = (needed.get(after, set()) for after, _ in self._successors(index))
                now = set[str]().union(*ways)
                now -= self._variables(index, STORES)
                now |= self._variables(index, _LOADS)
                if now != needed[index]:
                    needed[index], changed = now, True
        return needed[start]

    def _assigned(
        self, end: int, before: set[int], given: frozenset[str], start: int = 0
    ) -> dict[int, frozenset[str]]:
        """The variables that have values ahead of each instruction, whatever came before that."""
        known: dict[int, frozenset[str]] = {start: given}
        pending = [start]
        while pending:
            index = pending.pop()
            now = known[index]
            behind = now | self._variables(index, STORES)
            behind -= self._variables(index, _DELETES)
            ways = [(after, behind) for after, _ in self._successors(index)]
            ways += [(handler, now) for handler in self._handlers(index)]
            for after, found_there in ways:
                merged = known.get(after, found_there) & found_there
                if after in before | {end} and merged != known.get(after):
                    known[after] = merged
                    if after != end:
                        pending.append(after)
        return known
