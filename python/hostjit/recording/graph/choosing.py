# SPDX-License-Identifier: Apache-2.0
"""Both ways through a statement of a recorded call that chooses by a value.

Of `if cost < best: best, plan = cost, trial` the recorded call goes the way that eager would. The
other one is computed as well, and the graph has what each variable becomes by either answer: a
replay compares nothing. What the code itself has stays the very tensor that it would have, under
another name: whatever it goes on to do with that, the recorded call is right, and the recording is
not used where a selected copy would not be.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Sequence, Set
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from hostjit.bytecode.choices import Choice
from hostjit.bytecode.exits import Exit, Leave
from hostjit.capturing.instances import is_one_of
from hostjit.capturing.signal_errors import raise_of_handler
from hostjit.recording.code.handlers import may_raise
from hostjit.recording.code.seen_code import Unseen
from hostjit.recording.graph.assigned import Assigned
from hostjit.recording.graph.inputs import Kept
from hostjit.recording.graph.only_computes import only_computes
from hostjit.recording.graph.read_numbers import TENSORS, ReadNumber
from hostjit.recording.graph.recorded_graph import memory_of
from hostjit.recording.graph.references import replace_everywhere
from hostjit.recording.graph.selecting import (
    CannotSelectError,
    Selected,
    cost_of,
    root_of,
)

if TYPE_CHECKING:
    from hostjit.recording.graph.recorder import Recorder

__all__ = ["Choosing"]

aten = torch.ops.aten

# Where both ways are computed, one of them is in vain: a few microseconds.
_MOST_COST = 1 << 15


class _Way:
    """One of the ways through a statement, while it runs.

    Attributes:
        is_taken: eager would go it.
        others: a bool that tells at a replay whether it is not gone.
        does_more: it has done more than compute.
        cost: of what it has computed, see `cost_of`.
    """

    def __init__(self, others: torch.Tensor, *, is_taken: bool) -> None:
        self.is_taken = is_taken
        self.others = others
        self.does_more = False
        self.cost = 0


class Choosing:
    """The statements of a recorded call that choose, as a `Chooser`.

    Attributes:
        deciding: returns what is called in place of a function, so that it is known what decides.
        ways: those that run now, from the outermost on.
        is_refused: others may tell what was selected from a copy.
        outside: of what may be there before the call, whether it is, by nodes.
        origins: and the inputs that it may be.
        originals: what the code would have in place of tensors that it has, by the ids of these.
        aliases: those tensors.
        wanted: attributes that would be one of two numbers, by their objects and names.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._reference = weakref.ref(recorder)  # which has this one
        self.deciding: Callable[[Any], Any] = lambda function: function
        self.ways: list[_Way] = []
        # Of each variable that was selected: what it is in the graph, and the memory of what it
        # may be.
        self._selected: list[tuple[torch.fx.Node, set[int]]] = []
        self.is_refused = False
        self.outside: dict[torch.fx.Node, torch.Tensor] = {}
        self.origins: dict[torch.fx.Node, set[torch.fx.Node]] = {}
        self.originals: dict[int, torch.Tensor] = {}
        self.aliases: list[torch.Tensor] = []
        self.wanted: list[tuple[Any, str]] = []
        # What a read compares, and what of that is about the number alone.
        self.answered: list[tuple[torch.fx.Node | None, torch.fx.Node | None]] = []

    @property
    def _recorder(self) -> Recorder:
        found = self._reference()
        assert found is not None
        return found

    def choose(self, choice: Choice, test: Any, taken: Sequence[Any]) -> Any:
        """Return what the function of a choice returns, given what its test has found."""
        recorder = self._recorder
        if isinstance(test, ReadNumber):
            test = test.tensor
        with Unseen():
            may_choose = not recorder.problem and self._may_choose(choice, test, taken)
        if not may_choose:
            return choice.run(bool(test), taken)
        with torch.no_grad():
            decision = test.detach().reshape(()).to(torch.bool, copy=True)
            denied = torch.logical_not(decision)
        with _disable_current_modes():
            answer = bool(decision)
        others = {True: denied, False: decision}  # where the other way is gone
        way = _Way(others[answer], is_taken=True)
        assigned = Assigned(recorder, choice, taken)
        try:
            values = self._run(lambda: choice.compute(answer, taken, assigned.before), way)
        except Exception as error:
            if choice.facts.stores and not way.does_more:
                recorder.refuse("a way that it has chosen raises")
                return choice.run(answer, taken)  # which assigns what there is ahead of that
            assigned.assign_ahead(error)
            raise
        count, mark = len(recorder.reads), recorder.leaving.mark()
        if not (way.does_more or recorder.problem):
            try:
                other = self.speculated(
                    lambda: choice.compute(not answer, taken, assigned.before), others[not answer]
                )
                pair = assigned.completed(values, other), assigned.completed(other, values)
                with Unseen():
                    found = self._combined(choice, decision, answer, assigned, *pair)
                return assigned.assign(found)
            except Exception as error:
                raise_of_handler(error)
                # What eager computes is known: whatever goes wrong with the rest, it is compared.
                recorder.problem = ""
                del recorder.reads[count:]
                recorder.leaving.put_back(mark)
        count = len(recorder.reads)
        bool(decision)  # which a replay compares
        for read in recorder.reads[count:]:
            read.is_of_choice = read.is_of_choice or self._leads_elsewhere(choice, values)
        return assigned.assign(values)

    def _leads_elsewhere(self, choice: Choice, values: Any) -> bool:
        """Whether a way leads out of a loop, say."""
        return choice.region.tells_where and values[0] != choice.join

    def _may_choose(self, choice: Choice, test: Any, taken: Sequence[Any]) -> bool:
        if not _is_answer(test):
            return False
        local = dict(zip(choice.region.taken, taken, strict=True))
        return only_computes(choice.ways[0], local, choice.facts)

    def leave(self, leave: Leave, test: Any, taken: Sequence[Any]) -> bool:
        """Return the answer to the test of a loop. `taken`: of the variables `leave.taken`."""
        recorder = self._recorder
        if isinstance(test, ReadNumber):
            test = test.tensor
        with Unseen():
            is_followed = not recorder.problem and _is_answer(test) and _may_leave(leave, taken)
        if not is_followed:
            return bool(test)
        with torch.no_grad():
            decision = test.detach().reshape(()).to(torch.bool, copy=True)
        with _disable_current_modes():
            answer = bool(decision)
        if answer != leave.answer or not all(way.is_taken for way in self.ways):
            if recorder.leaving.stay(leave, decision, taken):
                return not leave.answer
        if answer == leave.answer and not all(way.is_taken for way in self.ways):
            raise CannotSelectError  # another way is compared
        count = len(recorder.reads)
        bool(decision)  # which a replay compares
        for read in recorder.reads[count:]:  # else its passes may be programs
            read.is_of_choice = read.is_of_choice or recorder.ran_backward
        return answer

    def called(self, function: Any) -> Any:
        """Return what is called in place of a function, or of whatever is called."""
        if self._recorder.problem:
            return function
        with Unseen():
            return self.deciding(function)

    def arrive(self, place: Exit, values: Sequence[Any]) -> Sequence[Any]:
        """Return what the variables become that are needed behind a loop, which is left."""
        return self._recorder.leaving.arrive(place, values)

    def _run(self, run: Callable[[], Any], way: _Way) -> Any:
        """Return what a way through a statement returns."""
        self.ways.append(way)
        try:
            return run()
        finally:
            self.ways.pop()

    def speculated(self, run: Callable[[], Any], others: torch.Tensor) -> Any:
        """Return what a way returns that eager does not go; raises whatever that raises.

        `others`: a bool that tells at a replay whether it is not gone.
        """
        recorder = self._recorder
        handled, has_hooks = recorder.handled, recorder.has_hooks
        try:
            values = self._run(run, _Way(others, is_taken=False))
            if recorder.problem:
                raise CannotSelectError
        finally:
            recorder.handled, recorder.has_hooks = handled, has_hooks
        return values

    def note_more(self) -> None:
        """Note that the ways which run now do more than compute."""
        for way in self.ways:
            way.does_more = True
        if not all(way.is_taken for way in self.ways):
            raise CannotSelectError

    def note_operator(self, func: Any, args: Any, kwargs: Any) -> None:
        """Look at an operator that is about to run in some ways."""
        draws = torch.Tag.nondeterministic_seeded in func.tags
        for way in self.ways:
            way.cost += cost_of(func, args)
        is_costly = any(way.cost > _MOST_COST for way in self.ways)
        if func._schema.is_mutable or draws or is_costly or may_raise(func, args, kwargs):
            self.note_more()

    def is_conditional(self) -> bool:
        """Tell whether some calls like this one do not come to what runs now."""
        return bool(self.ways or self._recorder.leaving.flags())

    def _flags(self) -> list[torch.Tensor]:
        """Bools of which one tells at a replay that others do not come to what runs now."""
        return [*self._recorder.leaving.flags(), *(way.others for way in self.ways)]

    def where_run(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return what a tensor is, or zeros where others do not come here."""
        with self._recorder:
            zeros = aten.zeros_like.default(tensor)
            for flag in reversed(self._flags()):
                tensor = aten.where.self(flag, zeros, tensor)
        return tensor

    def as_answered(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return whether a number is what it is now, or others do not come here."""
        with _disable_current_modes():
            value = tensor.item()
        with self._recorder:
            same = found = _has_value(tensor, value)
            for flag in reversed(self._flags()):
                found = aten.logical_or.default(found, flag)
        self.answered.append((self._recorder.node_of(found), self._recorder.node_of(same)))
        return found

    def _combined(
        self,
        choice: Choice,
        decision: torch.Tensor,
        answer: bool,
        assigned: Assigned,
        values: Any,
        other: Any,
    ) -> Any:
        """Return what the function returns by either answer; raises CannotSelectError."""
        place = choice.join
        told: tuple[Any, ...] = ()
        if choice.region.tells_where:
            (place, *values), (other_place, *other) = values, other
            told = (place,)
            if place != other_place:
                raise CannotSelectError
        selected = Selected(self._recorder, choice.code, decision, answer)
        names = choice.names_at(place)
        made = [selected.variable(*each) for each in zip(names, values, other, strict=False)]
        rest = zip(assigned.places, values[len(names) :], other[len(names) :], strict=True)
        made += [selected.attribute(*place, *each) for place, *each in rest]
        self.note_selected(selected)
        return (*told, *made)

    def note_selected(self, selected: Selected) -> None:
        """Note what was selected, and what of."""
        self._selected += selected.tensors

    def note_writes(self, tensors: Iterable[torch.Tensor]) -> None:
        """Note that tensors are written: what was selected would be another by then."""
        written = set(map(memory_of, tensors))
        if any(not memory.isdisjoint(written) for _, memory in self._selected):
            self.is_refused = True

    def put_back(self) -> None:
        """Give whoever has an alias the tensor that the code would have, and its attributes."""
        for alias in self.aliases:
            vars(self.originals[id(alias)]).update(vars(alias))
        if self.aliases:
            aliases, self.aliases = self.aliases, []
            replace_everywhere(aliases, self.originals)

    def stays_kept(
        self, node: torch.fx.Node, attributes: dict[Any, Any] | None, name: str
    ) -> torch.Tensor | None:
        """Return whether what was selected is what an attribute had before the call, by a bool.

        None where it may be something else that was there.

        Args:
            node: of what was selected.
            attributes: of the object.
            name: of the attribute.
        """
        if node not in self.outside:
            return None
        (first, *others) = self.origins[node]
        source = self._recorder.source_of(first)
        if others or not isinstance(source, Kept):
            return None
        is_same = source.attributes is attributes and source.name == name
        return self.outside[node] if is_same else None

    def note_results(
        self,
        nodes: Sequence[torch.fx.Node],
        tensors: Sequence[torch.Tensor],
        staying: Set[torch.fx.Node],
    ) -> None:
        """Look at what others have of the tensors of a call, which has ended.

        Of what is selected, and what it is selected from, they may have one. A replay compares that
        this is not what was there before the call.

        Args:
            nodes: the results of the graph.
            tensors: what they are.
            staying: those of which an attribute may stay what it is instead.
        """
        if any(map(vars, self.aliases)):
            self.is_refused = True  # a replay gives no attributes to tensors
        outside = {memory_of(source.tensor) for source in self._recorder.sources}
        for memory in _groups(memory for _, memory in self._selected):
            own = {node for node, found in self._selected if not memory.isdisjoint(found)}
            pairs = zip(nodes, tensors, strict=True)
            found = [node for node, tensor in pairs if memory_of(tensor) in memory]
            roots = {*map(root_of, found)}
            if not roots & own or (len(found) == 1 and found[0] in staying):
                continue
            flag = self.outside.get(next(iter(roots)))
            is_outside = not memory.isdisjoint(outside) if flag is None else bool(flag)
            if len(roots) > 1 or is_outside:
                self.is_refused = True
            elif flag is not None:
                self._recorder.expect_choice(flag)


def _is_answer(test: Any) -> bool:
    """Whether something is a tensor whose truth decides."""
    if not is_one_of(type(test), TENSORS) or test.numel() != 1:
        return False
    return test.layout is torch.strided and test.is_cpu


def _may_leave(leave: Leave, taken: Sequence[Any]) -> bool:
    """Whether it can be computed, too, what is done where a loop is left."""
    if leave.last is None:
        return True
    local = dict(zip(leave.taken, taken, strict=True))
    return only_computes(leave.last.function, local, leave.last.facts)


def _has_value(tensor: torch.Tensor, value: Any) -> torch.Tensor:
    """Whether a tensor has a value, which tells zeros and NaN from others."""
    if value != value:
        return aten.isnan.default(tensor)  # type: ignore[no-any-return]
    same: torch.Tensor = aten.eq.Scalar(tensor, value)
    if type(value) is float and value == 0:
        is_negative = math.copysign(1.0, value) < 0
        sign = aten.eq.Scalar(aten.signbit.default(tensor), is_negative)
        same = aten.logical_and.default(same, sign)
    return same


def _groups(memories: Iterable[set[int]]) -> list[set[int]]:
    """Sets that have something in common, together."""
    found: list[set[int]] = []
    for memory in memories:
        joined = memory.union(*(each for each in found if not each.isdisjoint(memory)))
        found = [*(each for each in found if each.isdisjoint(memory)), joined]
    return found
