# SPDX-License-Identifier: Apache-2.0
"""Loops with lines that cannot be followed: what one pass does is a function, which is compiled.

Behind such a line in a loop there is no function for the rest, and a recording of the whole loop is
for the values that were read in it. The loop itself stays as it is.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import types
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

from torch._dynamo.bytecode_transformation import cleaned_instructions

from hostjit.bytecode.flow import CodeFlow, is_over_range
from hostjit.bytecode.known_items import with_known_items
from hostjit.bytecode.loop_items import with_items_in_variables
from hostjit.bytecode.making import begin_of, function_of
from hostjit.bytecode.regions import Region, code_of_region, find_region, with_calls_of_regions
from hostjit.bytecode.splits import is_of_gradients, may_be_taken_apart
from hostjit.bytecode.unset_variables import with_marks

__all__ = [
    "MOST_PASSES",
    "Outlined",
    "PassVariables",
    "lines_of_loops",
    "outline_loop",
    "with_compiled_passes",
]

_log = logging.getLogger(__name__)
MOST_PASSES = 1 << 12
"""How many passes a program runs at once: between calls, Python looks at signals."""
# In the names of operations that call something, or compute.
_COMPUTING = ("CALL", "BINARY", "UNARY", "COMPARE", "CONTAINS", "ITER", "FORMAT", "STORE_SUBSCR")


@dataclasses.dataclass(frozen=True)
class PassVariables:
    """The variables of a pass of a loop, as its function knows them.

    Attributes:
        taken: those that it takes, in order.
        given: those that it returns where another pass follows, in order.
        tells_where: these are behind a 0 then; a pass may lead elsewhere.
        counts: its function takes two numbers more, how many passes it may run and by how much the
            item of each differs from the one before, and tells how many it ran behind what it
            returns where another pass follows. What is called for a pass takes the iterator of the
            loop instead.
        item: of those that it takes, the one that the loop gives a value ahead of each pass; None
            if it takes no such.
        appended: those given that are lists of what a pass appends to others.
    """

    taken: tuple[str, ...]
    given: tuple[str, ...]
    tells_where: bool
    counts: bool
    item: str | None
    appended: frozenset[str] = frozenset()


# Return what is called for a region.
CompilePass = Callable[
    [types.CodeType, PassVariables | None], Callable[..., object] | types.CodeType
]
CompilePart = Callable[[types.CodeType], Callable[..., object] | types.CodeType]


@dataclasses.dataclass(frozen=True)
class Outlined:
    """A function with a loop, and what one pass of the loop does.

    Attributes:
        body: takes variables; returns the tuple of those that it changes, behind where it left
            the pass if there are several places.
        variables: those, if another pass follows by them.
        is_of_range: it counts, `for step in range(8)`: no data says how many passes there are.
    """

    body: types.FunctionType
    variables: PassVariables | None
    is_of_range: bool
    _target: types.FunctionType
    _pass: Region

    def around(self, body: Callable[..., object]) -> types.FunctionType:
        """Return the function, unbound, with a call of `body` in the loop."""
        code = with_calls_of_regions(self._target.__code__, [(self._pass, body)])
        return function_of(self._target, code)


def outline_loop(target: Callable[..., object]) -> Outlined | None:
    """Outline the innermost loop of a function in which gradients are computed.

    Returns None where there is none, and where a pass has more to do with the code around than
    variables.
    """
    if isinstance(target, types.MethodType):
        target = target.__func__
    if not isinstance(target, types.FunctionType) or not may_be_taken_apart(target.__code__):
        return None
    target = function_of(target, with_items_in_variables(target.__code__))
    known = with_known_items(target.__code__, target.__globals__)
    found = None if known is None else _outlined(function_of(target, known))
    found = found or _outlined(target)
    marked = None if found is not None else with_marks(target.__code__)
    return found if marked is None else _outlined(function_of(target, marked))


def _outlined(target: types.FunctionType) -> Outlined | None:
    loops = _Loops(target.__code__)
    of_gradients = [
        head
        for head, inside in loops.inside.items()
        if any(is_of_gradients(loops.instructions, i) for i in inside)
    ]
    head = min(of_gradients, key=lambda head: len(loops.inside[head]), default=None)
    found = None if head is None else loops.a_pass(head)
    if found is None:
        return None
    body = function_of(target, code_of_region(target.__code__, found))
    body.__defaults__ = body.__kwdefaults__ = None
    assert head is not None
    return Outlined(body, loops.variables(head, found), loops.counts(head), target, found)


@functools.lru_cache(maxsize=1024)
def lines_of_loops(code: types.CodeType) -> frozenset[int]:
    """Return the lines of all loops whose passes can be functions, if these call or compute."""
    if not may_be_taken_apart(code):
        return frozenset()
    loops = _Loops(code)
    return frozenset[int]().union(*(loops.lines_of(head) for head, _ in loops.passes()))


def with_compiled_passes(
    code: types.CodeType,
    variables: Mapping[str, Any],
    lines: Set[int],
    compile_pass: CompilePass,
    compile_part: CompilePart,
) -> types.CodeType | None:
    """Return code of which a loop has compiled passes, between two compiled parts.

    Args:
        code: of a function.
        variables: the global ones.
        lines: those that led to what cannot be followed; the loop is the outermost around one. If
            none is known, it is the only loop.
        compile_pass: compiles what a pass does; its variables are None where no other pass follows
            by these alone.
        compile_part: compiles what is ahead of the loop, and what follows it.

    Returns None where there is no such loop.
    """
    if not may_be_taken_apart(code):
        return None
    code = with_items_in_variables(code)
    ways: tuple[Callable[[types.CodeType], types.CodeType | None], ...] = (
        lambda code: with_known_items(code, variables),
        lambda code: code,
        with_marks,
    )
    for way in ways:
        try:
            each = way(code)
            made = each and _with_compiled_passes(
                _Loops(each), each, lines, compile_pass, compile_part
            )
        except (AssertionError, LookupError):
            # Dynamo's assembler refuses code; what there is does the same.
            _log.info("%s keeps its loops", code, exc_info=True)
            continue
        if made is not None:
            return made
    return None


def _with_compiled_passes(
    loops: _Loops,
    code: types.CodeType,
    lines: Set[int],
    compile_pass: CompilePass,
    compile_part: CompilePart,
) -> types.CodeType | None:
    found = loops.around(lines)
    if found is None:
        return None
    head, a_pass = found
    calls = [(a_pass, compile_pass(code_of_region(code, a_pass), loops.variables(head, a_pass)))]
    for other in (loops.ahead_of(head, a_pass.taken), loops.behind(max(a_pass.inside))):
        if other is not None and loops.computes(other.inside):
            calls.append((other, compile_part(code_of_region(code, other))))
    return with_calls_of_regions(code, calls)


class _Loops:
    """The loops of some code, as regions of it.

    Attributes:
        inside: the instructions of each, by that which begins a pass.
    """

    def __init__(self, code: types.CodeType) -> None:
        self.instructions = cleaned_instructions(code)
        self._code = code
        self._flow = CodeFlow(self.instructions, code)
        self.inside = self._flow.loops()
        for head, again in [*itertools.permutations(self.inside, 2)]:
            self._begin_behind_test(head, again)

    def _begin_behind_test(self, head: int, again: int) -> None:
        """Have the passes of a `while` with `continue` begin behind its test.

        CPython's compiler repeats that at the end of a pass: two loops, one in the other.
        """
        inside, others = self.inside.get(head, frozenset()), self.inside.get(again, frozenset())
        if again not in inside or head in others:
            return
        test = self._flow.reached(head, {again}) & inside
        ends = {i for i in others if (again, True) in self._flow.successors(i)}
        lines = {self.instructions[i].starts_line for i in test}
        if not any(after not in inside for i in test for after, _ in self._flow.successors(i)):
            return  # there is no test
        if len(lines) == 1 and lines & {self.instructions[i].starts_line for i in ends}:
            self.inside[again] = self.inside.pop(head) - test

    def passes(self) -> Iterable[tuple[int, Region]]:
        """Yield the loops whose passes can be functions, the longest first."""
        for head in sorted(self.inside, key=lambda head: -len(self.inside[head])):
            if self.computes(self.inside[head]) and (found := self.a_pass(head)) is not None:
                yield head, found

    def around(self, lines: Set[int]) -> tuple[int, Region] | None:
        """Return the outermost loop around one of some lines, or the only one if there are none."""
        if lines:
            return next((each for each in self.passes() if self.lines_of(each[0]) & lines), None)
        heads = [head for head, inside in self.inside.items() if self.computes(inside)]
        outer = [h for h in heads if not any(h in self.inside[o] for o in heads if o != h)]
        if len(outer) != 1 or (found := self.a_pass(outer[0])) is None:
            return None
        return outer[0], found

    def lines_of(self, head: int) -> frozenset[int]:
        """Return the lines of a loop."""
        lines = (self.instructions[i].starts_line for i in self.inside[head])
        return frozenset(line for line in lines if line is not None)

    def a_pass(self, head: int) -> Region | None:
        """Return what runs in a pass of a loop."""
        inside = self.inside[head]
        if self.instructions[head].opname != "FOR_ITER":
            return self._region(head, inside, again=head)
        if self.instructions[head + 1].opname == "STORE_FAST":  # it stays in the loop
            behind = inside - {head, head + 1}
            found = self._region(head + 2, behind, is_of_iterator=True, again=head)
            if found is not None and found.exits and found.exits[0][0] == head:
                return found
        return self._region(head + 1, inside - {head}, has_item=True, again=head)

    def variables(self, head: int, a_pass: Region) -> PassVariables | None:
        """Return the variables of a pass; None where another needs more, or none follows."""
        again, given = a_pass.exits[0] if a_pass.exits else (None, ())
        if again != head or a_pass.has_item:
            return None
        counts = a_pass.is_of_iterator
        item = self.instructions[head + 1].argval if counts else None
        item = item if item in a_pass.taken else None
        appended = a_pass.appended.intersection(given)
        return PassVariables(a_pass.taken, given, a_pass.tells_where, counts, item, appended)

    def counts(self, head: int) -> bool:
        """Tell whether a loop is over a `range`."""
        return is_over_range(self.instructions, self._flow, head)

    def ahead_of(self, head: int, taken: Iterable[str]) -> Region | None:
        """Return as much as possible of what runs ahead of a loop, in the same contexts.

        `taken`: the variables that passes are given.
        """
        depth = self._flow.depths[head] - (self.instructions[head].opname == "FOR_ITER")
        begins = self._begins_of_contexts() if depth else [begin_of(self.instructions)]
        begins = [i for i in begins if i < head and self._flow.depths.get(i) == depth]
        places = [head, *(i for i in reversed(self._begins_of_lines(depth)) if i < head)]
        for begin, place in itertools.product(begins, places):
            behind = self._flow.reached(place)
            inside = self._flow.reached(begin, behind)
            if head in behind and self._flow.depths[place] == depth and inside:
                found = self._region(begin, inside, wanted=frozenset(taken))
                if found is not None:
                    return found
        return None

    def behind(self, last: int) -> Region | None:
        """Return as much as possible of what runs behind an instruction, up to the end."""
        for place in self._begins_of_lines():
            inside = self._flow.reached(place)
            if place > last and last not in inside and (found := self._region(place, inside)):
                return found
        return None

    def computes(self, inside: Set[int]) -> bool:
        """Tell whether some instructions do."""
        found = (self.instructions[i].opname for i in inside)
        return any(kind in name for name in found for kind in _COMPUTING)

    def _region(self, entry: int, inside: Set[int], **kind: Any) -> Region | None:
        """A region, of a kind as `find_region` takes it."""
        return find_region(self.instructions, self._flow, self._code, entry, inside, **kind)

    def _begins_of_lines(self, depth: int = 0) -> list[int]:
        """Where lines begin with as many values on the stack as where statements begin."""
        lines = [each.starts_line for each in self.instructions]
        begins = [
            i for i, line in enumerate(lines) if i and line is not None and line != lines[i - 1]
        ]
        return [i for i in begins if self._flow.depths.get(i) == depth]

    def _begins_of_contexts(self) -> list[int]:
        """Where what is within a `with` begins, behind the instruction that takes its value."""
        found = (i for i, each in enumerate(self.instructions) if each.opname == "BEFORE_WITH")
        return [
            i + 2 for i in found if self.instructions[i + 1].opname in ("POP_TOP", "STORE_FAST")
        ]
