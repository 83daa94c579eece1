# SPDX-License-Identifier: Apache-2.0
"""Loops of a recorded call that others may leave earlier.

Where the recorded call stays in a loop, `if residual < limit: break`, nothing is compared. Behind
the loop the graph has, of all that is needed there, what it was where a call leaves: variables are
selected, and what was written since then is taken back. A replay computes all passes that the
recorded call ran; one that would run more is compared, and recorded.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from hostjit.bytecode.exits import Exit, Leave
from hostjit.bytecode.made_code import is_of_choice
from hostjit.capturing.functional.recorded_nodes import Made
from hostjit.capturing.instances import is_a, is_one_of
from hostjit.capturing.results.outputs import IMMUTABLE_TYPES
from hostjit.capturing.signal_errors import raise_of_handler
from hostjit.recording.code.deciding import DECORATING
from hostjit.recording.code.handlers import may_raise
from hostjit.recording.code.libraries import is_own
from hostjit.recording.code.seen_code import Unseen
from hostjit.recording.graph.read_numbers import TENSORS, ReadNumber
from hostjit.recording.graph.selecting import CannotSelectError, Selected, cost_of

if TYPE_CHECKING:
    from hostjit.recording.graph.recorder import Recorder

__all__ = ["Leaving"]

aten = torch.ops.aten

# What is in vain where a loop is left at once: a few hundred microseconds.
_MOST_COST = 1 << 21
# What is compared of containers that the call has made: so many items, and so deep.
_MOST_ITEMS, _DEEPEST = 256, 4
_NAMESPACES = ("aten", "prims")
_FIXED = (types.ModuleType, types.BuiltinFunctionType, type)


@dataclasses.dataclass(frozen=True)
class _Left:
    """A test at which others may leave a loop.

    Attributes:
        flag: a bool that tells at a replay whether the loop is left here, or was before.
        values: of the variables that are needed behind the loop.
        contents: what is in those that are containers, and of tensors what others do not select.
        callers: the same of the variables of functions that call the one whose loop it is.
        gradients: the `.grad` of tensors that need one, by their ids.
        state: what the call has changed by then of what was there before.
        num_memories: how much memory is in the graph.
    """

    flag: torch.Tensor
    values: tuple[Any, ...]
    contents: tuple[Any, ...]
    callers: tuple[Any, ...]
    gradients: Mapping[int, tuple[torch.Tensor, torch.Tensor | None]]
    state: Any
    num_memories: int


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
        is_refused: others cannot be what this call is, but for when they leave.
        state: returns what the call has changed so far of what was there before it, by places.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._reference = weakref.ref(recorder)  # which has this one
        self._loops: list[_Loop] = []
        self.is_refused = self.is_met = False
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
                contents = tuple(map(self._contents, values))
                callers = self._contents_of_callers(frame)
                state = self._state_now()
        except Exception as error:
            raise_of_handler(error)
            return False
        loop = known or _Loop(leave.exit, frame, recorder.last_node())
        if known is None:
            self._loops.append(loop)
        if loop.tests:
            with torch.no_grad():
                flag = torch.logical_or(loop.tests[-1].flag, flag)
        with Unseen(), torch._C.DisableTorchFunction():
            gradients = {
                id(each): (each, each.grad)
                for each in (*recorder.tensors_with_gradients(), *_tensors_in(values))
                if each.requires_grad and (each.is_leaf or each.retains_grad)
            }
            count = recorder.num_memories()
            loop.tests.append(_Left(flag, values, contents, callers, gradients, state, count))
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
        if is_costly or changes_more or "out" in kwargs or may_raise(func, args):
            self._refuse()

    def note_writes(self, tensors: Iterable[torch.Tensor]) -> None:
        """Keep what is in tensors that are about to be written."""
        recorder = self._recorder
        for loop in self._loops:
            if not loop.tests:
                continue
            last = loop.tests[-1]
            for tensor in tensors:
                if not recorder.was_there(tensor, last.num_memories):
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
        contents = tuple(map(self._contents, values))
        callers, state = self._contents_of_callers(loop.frame), self._state_now()
        for left in loop.tests:
            if not (_is_same(left.state, state) and _is_same(left.callers, callers)):
                raise CannotSelectError
            for was, now, before, behind in zip(
                left.contents, contents, left.values, values, strict=True
            ):
                if before is behind and not _is_same(was, now):
                    raise CannotSelectError
        for write in reversed(loop.writes):
            self._take_back(write.tensor, write.flag, write.before)
        for left in reversed(loop.tests):
            for owner, gradient in left.gradients.values():
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
        if (now.shape, now.dtype, now.stride()) != (
            gradient.shape,
            gradient.dtype,
            gradient.stride(),
        ):
            raise CannotSelectError
        self._recorder.choosing.note_writes([now])
        self._take_back(now, flag, self._node(gradient))

    def _loop_left_at(self, place: Exit, frame: types.FrameType) -> _Loop | None:
        found = (each for each in self._loops if each.exit is place and each.frame is frame)
        return next(found, None)

    def _contents_of_callers(self, frame: types.FrameType) -> tuple[Any, ...]:
        """What functions have in variables that call another; raises CannotSelectError."""
        found: list[Any] = []
        behind = frame.f_back
        while behind is not self._recorder.caller:
            if behind is None:
                raise CannotSelectError
            if not (is_own(behind.f_code.co_filename) or behind.f_code in DECORATING):
                found += map(self._contents, behind.f_locals.values())
            behind = behind.f_back
        return tuple(found)

    def _state_now(self) -> dict[Any, Any]:
        """What the call has changed so far; raises CannotSelectError where nothing tells that."""
        return {place: self._contents(value) for place, value in self.state().items()}

    def _contents(self, value: Any, depth: int = 0) -> Any:
        """What tells whether something is as it was; raises CannotSelectError."""
        recorder = self._recorder
        if is_one_of(type(value), TENSORS):
            return value, value.requires_grad, value.grad_fn, value.is_leaf
        if is_one_of(type(value), (*IMMUTABLE_TYPES, ReadNumber)) or is_a(value, _FIXED):
            return (value,)
        if recorder.is_object_outside(value):
            return (value,)
        look = functools.partial(self._contents, depth=depth + 1)
        if depth < _DEEPEST:
            if is_one_of(type(value), (tuple, list)) and len(value) <= _MOST_ITEMS:
                return (value, *map(look, value))
            if type(value) is dict and len(value) <= _MOST_ITEMS:
                return (value, *value, *map(look, value.values()))
            if is_a(value, types.MethodType):
                return (None, look(value.__self__))
            if is_a(value, types.FunctionType):
                cells = [each.cell_contents for each in value.__closure__ or ()]
                return (value, *map(look, (*cells, *(value.__defaults__ or ()))))
        raise CannotSelectError


def _frame_of_function() -> types.FrameType:
    """The frame of the function of users that runs now."""
    frame = sys._getframe()
    while is_own(frame.f_code.co_filename) or is_of_choice(frame.f_code):
        assert frame.f_back is not None
        frame = frame.f_back
    return frame


def _is_same(was: Any, now: Any) -> bool:
    if type(was) is dict and type(now) is dict:
        return was.keys() == now.keys() and all(_is_same(was[key], now[key]) for key in was)
    if type(was) is not tuple or type(now) is not tuple:
        return was is now
    return len(was) == len(now) and all(map(_is_same, was, now))


def _tensors_in(values: Any) -> list[torch.Tensor]:
    return [each for each in pytree.tree_leaves(values) if is_one_of(type(each), TENSORS)]


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
