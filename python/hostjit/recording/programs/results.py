# SPDX-License-Identifier: Apache-2.0
"""How a replay makes the result of a recorded call, and the gradients that the call assigned."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from hostjit.capturing.constants import IMMUTABLE_TYPES
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.instances import has_member, instance_dict, is_a, is_namedtuple_type
from hostjit.capturing.results.outputs import (
    AgainOutput,
    ArgumentOutput,
    ArrayOutput,
    BoundOutput,
    ConstantOutput,
    DictOutput,
    GraphOutput,
    ItemOutput,
    LeafOutput,
    ListOutput,
    NamedTupleOutput,
    ObjectOutput,
    Output,
    TupleOutput,
    join,
    map_outputs,
)
from hostjit.capturing.results.shared_results import can_be_made, is_repeated, view_of
from hostjit.capturing.traced_graph import storage_of
from hostjit.recording.calls.opened_objects import can_open, fields_of
from hostjit.recording.graph.inputs import Bound, Constant, Leaf
from hostjit.recording.graph.read_arrays import ReadArray
from hostjit.recording.graph.read_numbers import ReadNumber
from hostjit.recording.graph.recorder import Recorder
from hostjit.recording.reach.state import State

__all__ = ["Assignment", "Results", "Store", "is_new_leaf"]


@dataclasses.dataclass(frozen=True)
class Assignment:
    """`.grad` of a tensor becomes a value: what the owner and the value are at a replay."""

    owner: ArgumentOutput | BoundOutput
    value: Output


@dataclasses.dataclass(frozen=True)
class Store:
    """An attribute of an object becomes a value: what that is at a replay.

    Attributes:
        owner: the object.
        name: of the attribute.
        value: what it becomes.
        stays: whether it stays what it is; None where it never does.
    """

    owner: Any
    name: str
    value: Output
    stays: Output | None = None

    @property
    def outputs(self) -> tuple[Output, ...]:
        """What a replay needs for it."""
        return (self.value,) if self.stays is None else (self.value, self.stays)


class Results:
    """What a replay hands out.

    Attributes:
        output: how the result is rebuilt, over `nodes`.
        assignments: gradients that the call assigned, or set to None.
        stores: attributes that it assigned.
        nodes: the results of the graph.
        tensors: what they were in the recorded call.
        staying: the results of which an attribute may stay what it is instead.
        in_inference_mode: the call makes them in inference mode, which it enters and leaves.
    """

    def __init__(
        self,
        result: Any,
        recorder: Recorder,
        state: State,
        containers: dict[int, Any],
        assigned: Sequence[tuple[Any, str]] = (),
    ) -> None:
        """Raises CaptureError for what cannot be made again.

        Args:
            result: of the call.
            recorder: of the call.
            state: that the call can reach.
            containers: those of the arguments, by id.
            assigned: objects, and names of their attributes that the call has assigned.
        """
        self._recorder = recorder
        self._state = state
        self._containers = containers
        self.nodes: list[torch.fx.Node] = []
        self.tensors: list[torch.Tensor] = []
        self.staying: set[torch.fx.Node] = set()
        self._open: set[int] = set()
        self._arrays: list[ReadArray] = []
        # Containers that are made: how many of an output, which by id, and those of other outputs.
        self._num_made, self._is_joined = 0, False
        self._made: dict[int, int] = {}
        self._made_before: set[int] = set()
        self.output = self._whole(result)
        self._num_returned = len(self.nodes)
        self.stores = [self._store(*place) for place in assigned]
        self._check_arrays()
        if torch.is_grad_enabled():
            self._make_views()
        self.user_count = len(self.nodes)
        self.assignments = [*self._assignments()]
        self.in_inference_mode = self._mode()

    def _store(self, owner: Any, name: str) -> Store:
        value = _found_at(owner, name)
        count = len(self.nodes)
        described = self._whole(value)
        node = self._recorder.node_of(value) if type(value) is torch.Tensor else None
        if node is None or node not in self.nodes[max(count, self._num_returned) :]:
            return Store(owner, name, described)
        flag = self._recorder.choosing.stays_kept(node, instance_dict(owner), name)
        if flag is None:
            return Store(owner, name, described)
        self.staying.add(node)
        return Store(owner, name, described, ItemOutput((self._tensor(flag),)))

    def _mode(self) -> bool:
        """Tell whether the results are of inference mode where the caller is not in it."""
        called = torch.is_inference_mode_enabled()
        # Views are what they are views of, in any mode.
        inputs = {storage_of(source.tensor) for source in self._recorder.sources}
        made = [tensor for tensor in self.tensors if storage_of(tensor) not in inputs]
        kinds = {tensor.is_inference() for tensor in made}
        if not kinds - {called}:
            return False
        if called or len(kinds) > 1:
            raise _cannot_make("a tensor of another inference mode")
        return True

    def _check_arrays(self) -> None:
        """Refuse arrays over memory that something else has, too."""
        places = [storage_of(array.of) for array in self._arrays]
        if len({*places}) < len(places) or not {*places}.isdisjoint(map(storage_of, self.tensors)):
            raise _cannot_make("an array of memory that a tensor or another array has")

    def _make_views(self) -> None:
        """Have calls make results that are views of others: autograd knows of views it made.

        Where all of those that share memory can be made, and need no gradients.
        """
        inputs = {storage_of(source.tensor) for source in self._recorder.sources}
        count = collections.Counter(map(storage_of, self.tensors))
        bases: dict[int, tuple[torch.fx.Node, torch.Tensor]] = {}
        for index, view in enumerate(self.tensors):
            storage, base = storage_of(view), view._base
            if count[storage] < 2 or storage in inputs or base is None:
                continue
            node = self._recorder.node_of(base)
            if node is None or view.requires_grad or not can_be_made(view, base):
                return
            bases[index] = node, base
        stored = [output for store in self.stores for output in store.outputs]
        everything = TupleOutput((self.output, *stored))
        if not bases or is_repeated(everything, lambda leaf: leaf.index, bases):
            return
        kept = dict(zip(self.nodes, self.tensors, strict=True))
        for index in bases:
            del kept[self.nodes[index]]
        kept |= bases.values()
        nodes = list(kept)

        def replace(leaf: GraphOutput) -> Output:
            if leaf.index not in bases:
                return GraphOutput(nodes.index(self.nodes[leaf.index]))
            node, base = bases[leaf.index]
            return view_of(self.tensors[leaf.index], base, nodes.index(node))

        self.output = map_outputs(self.output, replace)
        self.stores = [
            dataclasses.replace(
                store,
                value=map_outputs(store.value, replace),
                stays=store.stays and map_outputs(store.stays, replace),
            )
            for store in self.stores
        ]
        self.nodes, self.tensors = nodes, list(kept.values())

    def _assignments(self) -> Iterator[Assignment]:
        for owner, before in self._state.gradients.values():
            now = owner.grad
            if now is before:
                continue
            who = self._tensor(owner)
            assert isinstance(who, (ArgumentOutput, BoundOutput))
            yield Assignment(who, ConstantOutput(None) if now is None else self._tensor(now))

    def _whole(self, value: Any) -> Output:
        """Describe what is an output for itself."""
        self._num_made, self._is_joined = 0, False
        described = self._describe(value)
        self._made_before |= self._made.keys()
        self._made.clear()
        return join(described) if self._is_joined else described

    def _describe(self, value: Any) -> Output:
        kind = type(value)
        if is_a(value, torch.Tensor):
            return self._tensor(value)
        if is_a(value, ReadNumber):
            return ItemOutput((self._tensor(value.tensor),))
        if is_a(value, ReadArray):
            self._arrays.append(value)
            return ArrayOutput((self._tensor(value.tensor),))
        if is_a(value, IMMUTABLE_TYPES):
            return ConstantOutput(value)
        if id(value) in self._containers:
            raise _cannot_make("a container that it was given")
        if id(value) in self._state.objects:
            return ConstantOutput(value)
        if id(value) in self._open:
            raise _cannot_make("a container that contains itself")
        if id(value) in self._made_before:
            raise _cannot_make("a container that is in two places")
        if id(value) in self._made:
            self._is_joined = True
            return AgainOutput(self._made[id(value)])
        self._open.add(id(value))
        try:
            output = self._container(value, kind)
        finally:
            self._open.discard(id(value))
        if not _is_constant(output):
            self._made[id(value)] = self._num_made
        self._num_made += 1
        return output

    def _container(self, value: Any, kind: type) -> Output:
        if kind is tuple:
            return TupleOutput(tuple(map(self._describe, value)))
        if kind is list:
            return ListOutput(tuple(map(self._describe, value)))
        if kind is dict or kind is collections.OrderedDict:
            if not all(is_a(key, IMMUTABLE_TYPES) for key in value):
                raise _cannot_make("a dict with keys that are objects")
            return DictOutput(kind, tuple(value), tuple(map(self._describe, value.values())))
        if is_namedtuple_type(kind):
            return NamedTupleOutput(kind, tuple(map(self._describe, value)))
        if is_a(value, tuple) and has_member(kind, "n_sequence_fields"):
            return NamedTupleOutput(kind, tuple(map(self._describe, value)), struct_sequence=True)
        if can_open(value):
            fields = fields_of(value)
            return ObjectOutput(kind, tuple(fields), tuple(map(self._describe, fields.values())))
        raise _cannot_make(f"a {kind.__module__}.{kind.__qualname__}")

    def _tensor(self, tensor: torch.Tensor) -> Output:
        node = self._recorder.node_of(tensor)
        if node is None:
            raise _cannot_make("a tensor that was made in a way which cannot be recorded")
        if node.op == "placeholder":
            position = [*self._recorder.graph.find_nodes(op="placeholder")].index(node)
            source = self._recorder.sources[position]
            if isinstance(source, Leaf):
                return ArgumentOutput(source.index)
            if isinstance(source, (Bound, Constant)):
                return BoundOutput(source.tensor)
        elif type(tensor) is not torch.Tensor:
            raise _cannot_make(f"a new {type(tensor).__qualname__}")
        elif is_new_leaf(tensor) and (tensor.grad is not None or tensor._backward_hooks):
            raise _cannot_make("a new tensor with a gradient or hooks")
        if tensor.is_conj() or tensor.is_neg():
            raise CaptureError(
                CaptureFailure.LAZY_RESULT,
                "a result is conjugated or negated lazily",
                hint="return its resolve_conj().resolve_neg()",
            )
        if node not in self.nodes:
            self.nodes.append(node)
            self.tensors.append(tensor)
        output = GraphOutput(self.nodes.index(node))
        return LeafOutput((output,)) if is_new_leaf(tensor) else output


def _is_constant(output: Output) -> bool:
    """Tell whether an output is immutable, so that it is all the same how many of it there are."""
    if isinstance(output, TupleOutput):
        return all(map(_is_constant, output.items))
    return isinstance(output, ConstantOutput)


def _found_at(owner: Any, name: str) -> Any:
    attributes = instance_dict(owner) or {}
    if name not in attributes:
        raise CaptureError(CaptureFailure.UNSUPPORTED_PROGRAM, f"it deletes '.{name}' of an object")
    return attributes[name]


def is_new_leaf(tensor: torch.Tensor) -> bool:
    """Tell whether gradients are to be collected in a tensor that a call has made."""
    return tensor.requires_grad and tensor.is_leaf


def _cannot_make(what: str) -> CaptureError:
    return CaptureError(CaptureFailure.UNSUPPORTED_PROGRAM, f"it returns {what}")
