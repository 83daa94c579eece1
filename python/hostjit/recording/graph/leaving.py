# SPDX-License-Identifier: Apache-2.0
"""Loops of a recorded call that others may leave earlier.

Where the recorded call stays in a loop, `if residual < limit: break`, nothing is compared. Behind
the loop the graph has, of all that is needed there, what it was where a call leaves: variables are
selected, and what was written since then is taken back. A replay computes all passes that the
recorded call ran; one that would run more is compared, and recorded.
"""

from __future__ import annotations

import dataclasses
import operator
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from hostjit.bytecode.exits import Exit, Leave, calls_alone
from hostjit.bytecode.made_code import is_of_choice, written_as
from hostjit.capturing.functional.recorded_nodes import Made
from hostjit.capturing.signal_errors import raise_of_handler
from hostjit.recording.code.deciding import DECORATING
from hostjit.recording.code.handlers import may_raise
from hostjit.recording.code.libraries import is_own
from hostjit.recording.code.seen_code import Unseen
from hostjit.recording.graph.contents import Contents, is_same
from hostjit.recording.graph.selecting import CannotSelectError, Selected, cost_of

if TYPE_CHECKING:
    from hostjit.recording.graph.recorder import Recorder

__all__ = ["Leaving"]

aten = torch.ops.aten

# What is in vain where a loop is left at once: a few hundred microseconds.
_MOST_COST = 1 << 21
_NAMESPACES = ("aten", "prims")


@dataclasses.dataclass(frozen=True)
class _Facts:
    """What there is at some time in the call.

    Attributes:
        contents: of the variables that are needed behind a loop.
        callers: of those of functions that call the one whose loop it is.
        state: of what the call has changed by then of what was there before, by places.
        gradients: the `.grad` of tensors that need one, by their ids.
        has_graphs: some of the tensors have a graph for a backward pass.
        num_backward: how many backward passes ran.
        num_memories: how much memory is in the graph.
    """

    contents: tuple[Any, ...]
    callers: tuple[Any, ...]
    state: dict[Any, Any]
    gradients: Mapping[int, tuple[torch.Tensor, torch.Tensor | None]]
    has_graphs: bool
    num_backward: int
    num_memories: int


@dataclasses.dataclass(frozen=True)
class _Left:
    """A test at which others may leave a loop.

    Attributes:
        flag: a bool that tells at a replay whether the loop is left here, or was before.
        values: of the variables that are needed behind the loop.
        facts: what there is then.
    """

    flag: torch.Tensor
    values: tuple[Any, ...]
    facts: _Facts


@dataclasses.dataclass(frozen=True)
class _Write:
    """A write behind such a test. What was there before is a node."""

    flag: torch.Tensor
    tensor: torch.Tensor
    before: torch.fx.Node


class _Loop:
    """A loop that others may have left.

    Attributes:
        exit: where that leads to.
        frame: of the function whose loop it is.
        begin: the last node ahead of it.
        tests: at which they may have.
        writes: since the first.
    """

    def __init__(self, place: Exit, frame: types.FrameType, begin: torch.fx.Node) -> None:
        self.exit = place
        self.frame = frame
        self.begin = begin
        self.tests: list[_Left] = []
        self.writes: list[_Write] = []


class Leaving:
    """The loops of a recorded call that others may leave earlier.

    Attributes:
        is_met: there are some.
        gradient_is_assigned: the code has assigned a tensor to the `.grad` of one.
        is_refused: others cannot be what this call is, but for when they leave.
        state: returns what the call has changed so far of what was there before it, by places.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._reference = weakref.ref(recorder)  # which has this one
        self._loops: list[_Loop] = []
        self.is_refused = self.is_met = self.gradient_is_assigned = False
        self._cost = 0
        self.state: Callable[[], dict[Any, Any]] = dict

    @property
    def _recorder(self) -> Recorder:
        found = self._reference()
        assert found is not None
        return found

    def flags(self) -> list[torch.Tensor]:
        """Return bools that tell at a replay whether what runs now is behind what it returns."""
        return [loop.tests[-1].flag for loop in self._loops if loop.tests]

    def mark(self) -> list[tuple[_Loop, int]]:
        """Return what `put_back` takes."""
        return [(loop, len(loop.tests)) for loop in self._loops]

    def put_back(self, mark: Sequence[tuple[_Loop, int]]) -> None:
        """Forget the tests behind a mark, where nothing was written since."""
        for loop, count in mark:
            del loop.tests[count:]
        self._loops = [loop for loop, _ in mark]

    def stay(self, leave: Leave, decision: torch.Tensor, taken: Sequence[Any]) -> bool:
        """Stay in a loop, where others leave it; tells whether that may be.

        Args:
            leave: the test.
            decision: a bool, whether it holds.
            taken: of the variables `leave.taken`.
        """
        recorder, self.is_met = self._recorder, True
        frame = _frame_of_function()
        known = self._loop_left_at(leave.exit, frame)
        with torch.no_grad():
            flag = decision if leave.answer else torch.logical_not(decision)
            others = [way.others for way in recorder.choosing.ways]
            # Behind a test by which a loop is left, others say nothing.
            others += (each.tests[-1].flag for each in self._loops if each is not known)
            for each in others:
                flag = torch.logical_and(flag, torch.logical_not(each))
        try:
            values = self._values_behind(leave, flag, taken)
            with Unseen(), torch._C.DisableTorchFunction():
                facts = self._facts(frame, values)
        except Exception as error:
            raise_of_handler(error)
            return False
        loop = known or _Loop(leave.exit, frame, recorder.last_node())
        if known is None:
            self._loops.append(loop)
        if loop.tests:
            with torch.no_grad():
                flag = torch.logical_or(loop.tests[-1].flag, flag)
        loop.tests.append(_Left(flag, values, facts))
        return True

    def _values_behind(
        self, leave: Leave, flag: torch.Tensor, taken: Sequence[Any]
    ) -> tuple[Any, ...]:
        """What variables have behind a loop that is left by a flag; raises what that raises."""
        known = dict(zip(leave.taken, taken, strict=True))
        last, choosing = leave.last, self._recorder.choosing
        if last is not None:
            given = [known[name] for name in last.taken]
            count = len(self._recorder.reads)
            with torch.no_grad():
                others = torch.logical_not(flag)
            try:
                found = choosing.speculated(lambda: last.function(*given), others)
            except BaseException:
                self._recorder.problem = ""
                del self._recorder.reads[count:]
                raise
            known.update(zip(last.given, found, strict=True))
        return tuple(known[name] for name in leave.exit.names)

    def arrive(self, place: Exit, values: Sequence[Any]) -> Sequence[Any]:
        """Return what the variables become that are needed behind a loop, which is left."""
        found = self._loop_left_at(place, _frame_of_function())
        if found is None:
            return values
        is_last = self._loops[-1] is found
        self._loops.remove(found)
        if self._recorder.problem or not found.tests:
            return values
        with Unseen(), torch._C.DisableTorchFunction():
            try:
                if not is_last:
                    raise CannotSelectError
                return self._merged(found, values)
            except Exception as error:
                raise_of_handler(error)
                self._refuse()
                return values

    def note_end(self) -> None:
        """Note that the call has ended."""
        if any(loop.tests for loop in self._loops):
            self._refuse()  # it has left a loop in another way
        self._loops = []  # and the frames

    def note_operator(self, func: Any, args: Any, kwargs: Any) -> None:
        """Look at an operator that is about to run, which others may not run."""
        if not self.flags() or self._recorder.problem:
            return
        changes_more = torch.Tag.inplace_view in func.tags or _writes_unsaid(func, args)
        self._cost += cost_of(func, args)
        is_costly = self._cost > _MOST_COST
        if is_costly or changes_more or "out" in kwargs or may_raise(func, args, kwargs):
            self._refuse()

    def note_more(self) -> None:
        """Note that the call does what others may not do, and what cannot be taken back."""
        if self.flags():
            self._refuse()

    def note_writes(self, tensors: Iterable[torch.Tensor]) -> None:
        """Keep what is in tensors that are about to be written."""
        recorder = self._recorder
        for loop in self._loops:
            if not loop.tests:
                continue
            last = loop.tests[-1]
            for tensor in tensors:
                if not recorder.was_there(tensor, last.facts.num_memories):
                    continue
                if any(each.flag is last.flag and each.tensor is tensor for each in loop.writes):
                    continue
                node = recorder.node_of(tensor)
                if node is None or not tensor.is_cpu:
                    self._refuse()
                    return
                with torch.no_grad():
                    before = self._call(aten.clone.default, (node,), tensor)
                loop.writes.append(_Write(last.flag, tensor, before))

    def _refuse(self) -> None:
        self.is_refused = True
        self._recorder.refuse("it leaves a loop early in a way which cannot be selected")

    def _call(self, target: Any, args: Any, like: torch.Tensor) -> torch.fx.Node:
        """Add a call to the graph that makes a tensor like another."""
        node = self._recorder.call(target, args, {})
        if like.is_contiguous() and (made := Made.of(like)) is not None:
            others = self._recorder.made
            others[node] = dataclasses.replace(made, storage=-len(others) - 1, offset=0)
        return node

    def _node(self, tensor: torch.Tensor) -> torch.fx.Node:
        node = self._recorder.node_of(tensor)
        if node is None:
            raise CannotSelectError
        return node

    def _merged(self, loop: _Loop, values: Sequence[Any]) -> Sequence[Any]:
        """What variables are by any of the tests; raises CannotSelectError."""
        if any(map(_does_more, self._recorder.nodes_behind(loop.begin))):
            raise CannotSelectError
        now = self._facts(loop.frame, values)
        for left in loop.tests:
            self._compare(left, now, values)
        for write in reversed(loop.writes):
            self._take_back(write.tensor, write.flag, write.before)
        for left in reversed(loop.tests):
            for owner, gradient in left.facts.gradients.values():
                self._merge_gradients(owner, gradient, left.flag)
        found = [*values]
        for left in reversed(loop.tests):
            selected = Selected(self._recorder, loop.exit.code, left.flag, answer=False)
            pairs = zip(loop.exit.names, found, left.values, strict=True)
            found = [selected.variable(*each) for each in pairs]
            self._recorder.choosing.note_selected(selected)
        return found

    def _take_back(self, tensor: torch.Tensor, flag: torch.Tensor, before: torch.fx.Node) -> None:
        """Have a tensor be what it was, by a flag."""
        node = self._node(tensor)
        with torch.no_grad():
            now = self._call(aten.where.self, (self._node(flag), before, node), tensor)
            self._recorder.call(aten.copy_.default, (node, now), {})

    def _merge_gradients(
        self, owner: torch.Tensor, gradient: torch.Tensor | None, flag: torch.Tensor
    ) -> None:
        """Have the gradient of a tensor be another, by a flag."""
        now = owner.grad
        if now is gradient:
            return
        if now is None or gradient is None or not (_is_plain(now) and _is_plain(gradient)):
            raise CannotSelectError
        if (now.shape, now.dtype) != (gradient.shape, gradient.dtype):
            raise CannotSelectError
        # Others may have one that was there before, or that the code has assigned.
        if self.gradient_is_assigned or self._recorder.is_gradient_outside(gradient):
            raise CannotSelectError
        self._recorder.choosing.note_writes([now])
        self._take_back(now, flag, self._node(gradient))

    def _loop_left_at(self, place: Exit, frame: types.FrameType) -> _Loop | None:
        found = (each for each in self._loops if each.exit is place and each.frame is frame)
        return next(found, None)

    def _facts(self, frame: types.FrameType, values: Sequence[Any]) -> _Facts:
        """What there is now; raises CannotSelectError where nothing tells that.

        Args:
            frame: of the function whose loop it is.
            values: of the variables that are needed behind that.
        """
        recorder = self._recorder
        if recorder.has_hooks:
            raise CannotSelectError
        found = Contents(recorder)
        contents = tuple(map(found.of, values))
        callers: list[Any] = []
        behind = frame.f_back
        while behind is not recorder.caller:
            if behind is None:
                raise CannotSelectError
            if not (is_own(behind.f_code.co_filename) or behind.f_code in DECORATING):
                code, offsets = written_as(behind.f_code, behind.f_lasti)
                if not (offsets and all(calls_alone(code, each) for each in offsets)):
                    raise CannotSelectError
                callers += map(found.of, behind.f_locals.values())
            behind = behind.f_back
        state = {place: found.of(value) for place, value in self.state().items()}
        tensors = [*found.tensors, *recorder.tensors_with_gradients()]
        gradients = {
            id(each): (each, each.grad)
            for each in tensors
            if each.requires_grad and (each.is_leaf or each.retains_grad)
        }
        has_graphs = any(each.grad_fn is not None for each in found.tensors)
        counts = recorder.num_backward(), recorder.num_memories()
        return _Facts(contents, tuple(callers), state, gradients, has_graphs, *counts)

    def _compare(self, left: _Left, now: _Facts, values: Sequence[Any]) -> None:
        """Refuse what is not as it was at a test, and cannot be selected.

        Raises CannotSelectError.
        """
        was = left.facts
        if not (is_same(was.state, now.state) and is_same(was.callers, now.callers)):
            raise CannotSelectError
        if was.has_graphs and was.num_backward != now.num_backward:
            raise CannotSelectError  # a graph may be used up
        for each in zip(was.contents, left.values, now.contents, values, strict=True):
            _check(*each)
        for owner, gradient in now.gradients.values():
            if id(owner) not in was.gradients and not self._recorder.has_gradient_of_begin(owner):
                if gradient is not None:
                    raise CannotSelectError


def _frame_of_function() -> types.FrameType:
    """The frame of the function of users that runs now."""
    frame = sys._getframe()
    while is_own(frame.f_code.co_filename) or is_of_choice(frame.f_code):
        assert frame.f_back is not None
        frame = frame.f_back
    return frame


def _check(was: Any, before: Any, now: Any, behind: Any) -> None:
    """Refuse what is not as it was, and cannot be selected; raises CannotSelectError.

    Args:
        was: contents of something.
        before: that.
        now: contents of what it became.
        behind: that.
    """
    if before is behind:
        if not is_same(was, now):
            raise CannotSelectError
    elif type(before) is type(behind) is tuple and len(before) == len(behind):
        for each in zip(was[1:], before, now[1:], behind, strict=True):
            _check(*each)


def _is_plain(tensor: torch.Tensor) -> bool:
    is_known = type(tensor) is torch.Tensor and tensor.layout is torch.strided
    return is_known and not tensor.requires_grad and tensor.is_contiguous() and tensor.is_cpu


def _does_more(node: torch.fx.Node) -> bool:
    """Whether a node does more than to compute, and to write its operands."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return node.op == "call_function" and node.target is not operator.getitem
    draws = torch.Tag.nondeterministic_seeded in node.target.tags
    return draws or node.target.namespace not in _NAMESPACES


def _writes_unsaid(func: Any, args: Any) -> bool:
    """Whether an operator writes the statistics of a batch norm, which its schema does not say."""
    return "batch_norm" in func._schema.name and any(each is True for each in args)
