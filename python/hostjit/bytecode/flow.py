# SPDX-License-Identifier: Apache-2.0
"""What follows what in the code of a function, and which variables have values where."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from torch._dynamo.bytecode_transformation import Instruction

__all__ = ["LOADS", "STORES", "CodeFlow", "is_over_range"]

LOADS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"})
"""Operations that put the value of a variable on the stack which no function inside knows."""
_READS = LOADS | {"DELETE_FAST", "LOAD_DEREF", "LOAD_CLOSURE", "DELETE_DEREF"}
STORES = frozenset({"STORE_FAST", "STORE_DEREF"})
"""Operations that give a variable a value."""
_DELETES = frozenset({"DELETE_FAST", "DELETE_DEREF"})
_CHANGES = STORES | _DELETES
_OTHERS = frozenset({"LOAD_FAST_AND_CLEAR", "MAKE_CELL"})
_ENDS = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"})
# Contexts of PyTorch's, by what makes them.
_MODES = frozenset(
    {
        *("no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "autocast", "device"),
        *("record_function", "sdpa_kernel", "detect_anomaly"),
    }
)
_JUMPS_ALWAYS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})


class CodeFlow:
    """Which instructions follow which, by index, and how many values each finds on the stack."""

    def __init__(self, instructions: Sequence[Instruction], code: types.CodeType) -> None:
        self._instructions = instructions
        self._cells, self._outside = frozenset(code.co_cellvars), frozenset(code.co_freevars)
        self._index = {found: i for i, found in enumerate(instructions)}
        self._successors = [tuple(self._find_successors(i)) for i in range(len(instructions))]
        self.depths = self._find_depths()
        self._restores, self._of_comprehensions = self._find_stores_of_comprehensions()
        self._hide_nothing = frozenset(self._find_contexts_of_modes())
        self._needed_by_all: dict[bool, dict[int, set[str]]] = {}
        self._assigned_in_all: dict[frozenset[str], dict[int, frozenset[str]]] = {}

    def changes_outside(self, index: int) -> bool:
        """Tell whether an instruction changes a variable of a function around this one."""
        return bool(self._variables(index, STORES) & self._outside)

    def _variables(self, index: int, operations: frozenset[str]) -> frozenset[str]:
        """The variable that an instruction is about, if it is one of some.

        Behind a comprehension a variable of its name has the value that it had, or none.
        """
        found = self._instructions[index]
        if index in self._restores:
            return frozenset()
        return frozenset({found.argval} if found.opname in operations else ())

    def successors(self, index: int) -> Sequence[tuple[int, bool]]:
        """Return what may run next, and whether it is jumped to."""
        return self._successors[index]

    def _find_successors(self, index: int) -> Iterator[tuple[int, bool]]:
        found = self._instructions[index]
        if found.target is not None:
            yield self._index[found.target], True
        if found.opname not in _ENDS | _JUMPS_ALWAYS:
            yield index + 1, False

    def handlers(self, index: int) -> Iterator[int]:
        """Yield what runs next where an instruction raises."""
        entry = self._instructions[index].exn_tab_entry
        if entry is not None:
            yield self._index[entry.target]

    def _find_contexts_of_modes(self) -> Iterator[int]:
        """Yield what handles errors in the `with` of contexts that never hide one."""
        for found in self._instructions:
            entry = found.exn_tab_entry
            if entry is None or not (begin := self._index[entry.start]):
                continue
            before = begin - 1
            if self._instructions[before].opname != "BEFORE_WITH" or before not in self.depths:
                continue
            below = self.depths[before] - 1
            first = next(i for i in range(before, -1, -1) if self.depths.get(i) == below)
            if any(self._names_a_mode(i) for i in range(first, before)):
                yield self._index[entry.target]

    def _names_a_mode(self, index: int) -> bool:
        found = self._instructions[index]
        names = found.opname in ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD")
        return names and found.argval in _MODES

    def _is_of_context(self, handler: int) -> bool:
        """Whether what handles errors asks the context of a `with`."""
        return self._instructions[handler + 1].opname == "WITH_EXCEPT_START"

    def _find_depths(self) -> dict[int, int]:
        depths = {0: 0}
        pending = [0]
        while pending:
            index = pending.pop()
            found = self._instructions[index]
            # Those that jump have a target instead.
            arg = (found.arg or 0) if found.opcode >= dis.HAVE_ARGUMENT else None
            ways = [
                (after, depths[index] + dis.stack_effect(found.opcode, arg, jump=jumps))
                for after, jumps in self.successors(index)
            ]
            if (entry := found.exn_tab_entry) is not None:
                ways.append((self._index[entry.target], entry.depth + entry.lasti + 1))
            for after, depth in ways:
                if after not in depths:
                    depths[after] = depth
                    pending.append(after)
        return depths

    def _find_stores_of_comprehensions(self) -> tuple[frozenset[int], frozenset[int]]:
        """Find what gives variables back what they had, and what gives those of comprehensions.

        CPython 3.12 and later run comprehensions in the code around: the variables are put on the
        stack, and taken from there behind.
        """
        restores: set[int] = set()
        stores: set[int] = set()
        for index, found in enumerate(self._instructions):
            if found.opname != "LOAD_FAST_AND_CLEAR" or index not in self.depths:
                continue
            count = 1  # of the variables that are cleared with it, and behind it
            while self._instructions[index + count].opname == "LOAD_FAST_AND_CLEAR":
                count += 1
            own = {
                i
                for i, each in enumerate(self._instructions)
                if each.opname == "STORE_FAST" and each.argval == found.argval and i in self.depths
            }
            # Within, there are a result and an iterator on the stack as well.
            back = {i for i in own if self.depths[i] <= self.depths[index] + count}
            within = self.reached(index + 1, back)
            restores |= back & {after for i in within for after, _ in self.successors(i)}
            stores |= own & within
        return frozenset(restores), frozenset(stores)

    def reached(self, start: int, without: Set[int] = frozenset()) -> set[int]:
        """Return what may run from an instruction on, and not behind some that end it."""
        reached: set[int] = set()
        pending = [start]
        while pending:
            index = pending.pop()
            if index in reached or index in without:
                continue
            reached.add(index)
            pending.extend(after for after, _ in self.successors(index))
            pending.extend(self.handlers(index))
        return reached

    def parts(self, index: int) -> tuple[set[int], set[int]] | None:
        """Return what runs before an instruction, and from it on; None where they share some."""
        before, behind = self.reached(0, {index}), self.reached(index)
        if before & behind or not self._handles_its_own(before, behind):
            return None
        if any(self._instructions[i].opname.startswith("RETURN") for i in before if i > index):
            return None  # a way out of the code is what is split off
        return before, behind

    def _handles_its_own(self, *parts: set[int]) -> bool:
        """Whether code that handles errors is in one part with all that it handles."""
        known = set[int]().union(*parts)
        for part in parts:
            entries = (self._instructions[i].exn_tab_entry for i in part)
            for entry in filter(None, entries):
                handled = range(self._index[entry.start], self._index[entry.end] + 1)
                if not {*handled, self._index[entry.target]} & known <= part:
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
        known = frozenset[str]().union(*(self._variables(i, _READS | _CHANGES) for i in before))
        if any(self._variables(i, STORES) & self._cells & known for i in behind):
            return None  # others see that
        changed = frozenset[str]().union(*(self._variables(i, _CHANGES) for i in before))
        wanted = self._needed(behind)[index] & changed - self._outside
        assigned = self._assigned(index, before, frozenset(parameters))
        for i in before:  # what has no value raises there
            if not self._variables(i, _READS) & wanted <= assigned.get(i, wanted):
                return None
        return {name: name in assigned[index] for name in sorted(wanted)}

    def loops(self) -> dict[int, frozenset[int]]:
        """Return what runs again in each loop, by where a pass begins.

        A loop that is entered elsewhere, too, is none of these. Nor is what jumps backward and
        never comes back: from CPython 3.12 on, that leads to a return which is shared.
        """
        before = self._before
        loops: dict[int, set[int]] = {}
        for index in before:
            for after, jumps in self.successors(index):
                if jumps and after <= index and index in self.reached(after):
                    loops.setdefault(after, {after}).update(self._between(after, index, before))
        return {
            head: frozenset(inside)
            for head, inside in loops.items()
            if all(before[each] <= inside for each in inside - {head})
        }

    def closed(self, entry: int, inside: Set[int]) -> frozenset[int]:
        """Return some code together with what only it runs, and what raises in the end."""
        before, found = self._before, set(inside)
        while more := {i for i in self._raising - found if before[i] and before[i] <= found}:
            found |= more
        assert entry in found
        return frozenset(found)

    def is_entered_at(self, entry: int, inside: Set[int]) -> bool:
        """Tell whether some code begins with one of its instructions wherever it begins."""
        return all(self._before[each] <= inside for each in inside - {entry})

    def follows_alone(self, index: int) -> bool:
        """Tell whether an instruction runs behind the one before it, and nothing else."""
        return self._before.get(index) == {index - 1}

    def leading_to(self, index: int) -> set[int]:
        """Return what may run ahead of an instruction, at some time."""
        found: set[int] = set()
        pending = [index]
        while pending:
            more = self._before[pending.pop()] - found
            found |= more
            pending += more
        return found

    @functools.cached_property
    def _before(self) -> dict[int, set[int]]:
        """What may run right ahead of each instruction that may run."""
        before: dict[int, set[int]] = {index: set() for index in self.reached(0)}
        for index in before:
            for after in (*(after for after, _ in self.successors(index)), *self.handlers(index)):
                before[after].add(index)
        return before

    @staticmethod
    def _between(head: int, end: int, before: Mapping[int, Set[int]]) -> set[int]:
        """What runs between the head of a loop and where it goes back there."""
        found, pending = {head}, [end]
        while pending:
            index = pending.pop()
            if index not in found:
                found.add(index)
                pending.extend(before[index])
        return found

    @functools.cached_property
    def _raising(self) -> frozenset[int]:
        """What never returns, but for what handles its errors."""
        names = ((i, self._instructions[i].opname) for i in self._before)
        pending = [i for i, name in names if name.startswith("RETURN")]
        returning: set[int] = set()
        while pending:
            index = pending.pop()
            if index not in returning:
                returning.add(index)
                ways = self._before[index]
                pending += [i for i in ways if any(to == index for to, _ in self.successors(i))]
        return frozenset(set(self._before) - returning)

    def handlers_outside(self, inside: Set[int]) -> frozenset[int]:
        """Return what handles errors of some code elsewhere, and may hide them."""
        found = {each for index in inside for each in self.handlers(index)}
        return frozenset(found - inside - self._hide_nothing)

    def num_modes_around(self, index: int) -> int:
        """Return how many contexts of PyTorch's modes are around an instruction.

        0 where some of those around it are of others.
        """
        depth, at = self.depths[index], index
        while self._instructions[at].exn_tab_entry is None and self.depths.get(at) == depth:
            at += 1  # from CPython 3.12 on, what raises none has no handler
        count, entry = 0, self._instructions[at].exn_tab_entry
        while entry is not None:
            handler = self._index[entry.target]
            if self._is_of_context(handler):
                if handler not in self._hide_nothing:
                    return 0
                count += 1
            entry = self._instructions[handler].exn_tab_entry
        return count

    def changed_in(self, inside: Set[int]) -> frozenset[str]:
        """Return the variables that some code gives values."""
        stores = inside - self._of_comprehensions
        return frozenset[str]().union(*(self._variables(i, STORES) for i in stores))

    def knows(self, inside: Set[int]) -> bool:
        """Tell whether all that is done with variables is known, and some code deletes none."""
        return self._is_all_known and not any(self._variables(i, _DELETES) for i in inside)

    @functools.cached_property
    def _is_all_known(self) -> bool:
        return all(map(self._is_known, self._before))

    def needed_by(
        self, index: int, inside: Set[int] | None = None, *, hides_errors: bool = True
    ) -> frozenset[str]:
        """Return the local variables that code reads, from an instruction on, that others set.

        Args:
            index: of the instruction.
            inside: the code; None for all that may run.
            hides_errors: what follows a `with` runs, too, behind an error that its context hides.
        """
        if inside is not None:
            needed = self._needed(set(inside), hides_errors)
        elif hides_errors in self._needed_by_all:
            needed = self._needed_by_all[hides_errors]
        else:
            needed = self._needed_by_all[hides_errors] = self._needed({*self._before}, hides_errors)
        return frozenset(needed[index]) - self._outside

    def assigned_behind(self, entry: int, inside: Set[int]) -> dict[int, frozenset[str]]:
        """Return which variables some code has surely given values behind each instruction."""
        known = self._assigned(-1, set(inside), frozenset(), entry)
        return {i: (known[i] | self._variables(i, STORES)) for i in inside if i in known}

    def assigned_at(self, index: int, parameters: Iterable[str]) -> frozenset[str]:
        """Return which variables have values ahead of an instruction, whatever came before it."""
        given = frozenset(parameters)
        if given not in self._assigned_in_all:
            self._assigned_in_all[given] = self._assigned(-1, {*self._before}, given)
        known = self._assigned_in_all[given]
        return known.get(index, frozenset())  # nothing for what runs behind hidden errors alone

    def may_have_own(self, names: Set[str], entry: int, inside: Set[int]) -> bool:
        """Tell whether some code may have variables of its own, given the values of some.

        Functions inside see what is in those that they know, later, too.

        Args:
            names: of the variables whose values it is given.
            entry: the instruction that it begins with.
            inside: its instructions.
        """
        if names & self._cells & self.changed_in(self.reached(entry)):
            return False
        changed = self.changed_in(inside) & self._cells
        others = self._before.keys() - inside
        known = _READS | _CHANGES
        return not any(self._variables(i, known) & changed for i in others)

    def is_cell(self, name: str) -> bool:
        """Tell whether functions inside know a variable."""
        return name in self._cells

    def _is_known(self, index: int) -> bool:
        name = self._instructions[index].opname
        is_of_variables = any(kind in name for kind in ("FAST", "DEREF", "CELL", "CLOSURE"))
        return not is_of_variables or name in _READS | _CHANGES | _OTHERS

    def _needed(self, behind: set[int], hides_errors: bool = True) -> dict[int, set[str]]:
        """The variables that are read, from each instruction on, before they are written."""
        needed: dict[int, set[str]] = {index: set() for index in behind}
        order, changed = sorted(behind, reverse=True), True
        while changed:
            changed = False
            for index in order:
                ways = (needed.get(after, set()) for after, _ in self.successors(index))
                raised = (
                    needed.get(after, set())
                    for after in self.handlers(index)
                    if after not in self._hide_nothing
                    and (hides_errors or not self._is_of_context(after))
                )
                now = set[str]().union(*ways)
                now -= self._variables(index, STORES)
                now |= self._variables(index, _READS).union(*raised)
                if now != needed[index]:
                    needed[index], changed = now, True
        return needed

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
            ways = [(after, behind) for after, _ in self.successors(index)]
            raised = set(self.handlers(index)) - self._hide_nothing
            ways += [(handler, now) for handler in raised]
            for after, found_there in ways:
                merged = known.get(after, found_there) & found_there
                if (after in before or after == end) and merged != known.get(after):
                    known[after] = merged
                    if after != end:
                        pending.append(after)
        return known


def is_over_range(instructions: Sequence[Instruction], flow: CodeFlow, head: int) -> bool:
    """Tell whether a loop, by where a pass begins, is over a `range`."""
    if instructions[head].opname != "FOR_ITER":
        return False
    begin = head - 1
    while flow.depths.get(begin, 0) >= flow.depths[head]:
        begin -= 1
    called = instructions[begin : begin + 2]
    return any(each.opname == "LOAD_GLOBAL" and each.argval == "range" for each in called)
