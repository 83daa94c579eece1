# SPDX-License-Identifier: Apache-2.0
"""The graph of a recorded call: its operators so far, and what each tensor is in it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from hostjit.capturing.errors import CaptureFailure
from hostjit.capturing.functional.recorded_nodes import Made
from hostjit.recording.code.libraries import user_line
from hostjit.recording.graph.inputs import Bound, Gradient, Kept, Leaf, Number, OpenArgument, Source
from hostjit.recording.reach.state import State

__all__ = ["RecordedGraph", "memory_of"]

aten = torch.ops.aten


class RecordedGraph:
    """A graph that grows while a call runs.

    Attributes:
        graph: one placeholder for each of `sources`, in order; no output yet.
        sources: what the placeholders stand for.
        problem: why a replay would not do the same, in words; "" while it would.
        failure: the kind of the problem.
        kept: tensors that attributes have when the call begins, by their ids.
        opened: the numbers among the arguments that calls may bring any of.
        storages: the memory of what operators have returned, by their nodes.
        made: what that is, but for its elements.
        is_ambiguous: the code has a tensor that may be either of two nodes.
    """

    def __init__(self, leaves: Sequence[torch.Tensor], state: State) -> None:
        self.graph = torch.fx.Graph()
        self.sources: list[Source] = []
        self.problem = ""
        self.failure = CaptureFailure.UNSUPPORTED_PROGRAM
        self._state = state
        self._given = [*leaves]
        self._leaves = {id(leaf): index for index, leaf in reversed([*enumerate(leaves)])}
        self.opened: list[OpenArgument] = []
        self.kept: dict[int, Kept] = {}
        self.storages: dict[torch.fx.Node, int] = {}
        self.made: dict[torch.fx.Node, Made] = {}
        self._nodes: dict[int, torch.fx.Node] = {}
        self._alive: list[torch.Tensor] = []
        self._of_storage: dict[int, list[torch.Tensor]] = {}
        # Memory, in the order in which it came into the graph; that of inputs is older than all.
        self._memories: dict[int, int] = {}
        self._of_several: set[int] = set()
        self.is_ambiguous = False
        self._with_gradients = torch.is_grad_enabled()
        self._last_placeholder: torch.fx.Node | None = None

    def refuse(
        self, problem: str, failure: CaptureFailure = CaptureFailure.UNSUPPORTED_PROGRAM
    ) -> None:
        """Say that a replay would not do the same."""
        if not self.problem:
            where = user_line(sys._getframe(1))
            self.problem = f"{problem} ({where})" if where else problem
            self.failure = failure

    def node_of(self, tensor: torch.Tensor) -> torch.fx.Node | None:
        """Return what a tensor is in the graph; None for one that nothing here knows."""
        known = self._nodes.get(id(tensor))
        if known is not None:
            return known
        source = self._source_of(tensor)
        if source is not None:
            return self.add_input(tensor, source)
        if memory_of(tensor) in self._of_several:
            self.is_ambiguous = True
            return None
        for other in self._of_storage.get(memory_of(tensor), ()):
            if _geometry(other) == _geometry(tensor):
                node = self.graph.call_function(aten.detach.default, (self._nodes[id(other)],))
                self.note(tensor, node)
                return node
        return None

    def add_input(self, tensor: torch.Tensor, source: Source) -> torch.fx.Node:
        """Make a tensor an input of the graph."""
        before = self._last_placeholder
        first = before or next(iter(self.graph.nodes), None)
        place = self.graph.inserting_after if before else self.graph.inserting_before
        with place(first):
            node = self.graph.placeholder(f"input_{len(self.sources)}")
        self._last_placeholder = node
        self._memories[memory_of(tensor)] = -1
        self.sources.append(source)
        self.note(tensor, node)
        return node

    def note(self, tensor: torch.Tensor, node: torch.fx.Node) -> None:
        """Remember what a tensor is in the graph."""
        if id(tensor) in self._nodes:
            return
        self._nodes[id(tensor)] = node
        self._alive.append(tensor)
        if (made := Made.of(tensor)) is not None:
            self.made[node] = made
        self.storages[node] = memory_of(tensor)
        self._memories.setdefault(self.storages[node], len(self._memories))
        self._of_storage.setdefault(self.storages[node], []).append(tensor)

    def note_as(self, tensor: torch.Tensor, node: torch.fx.Node) -> None:
        """Remember that a tensor is what a node is that another tensor was noted for.

        Their memory is not the same: the tensor has that of something else in the graph, too.
        """
        self._nodes[id(tensor)] = node
        self._alive.append(tensor)
        self._of_several.add(memory_of(tensor))

    def num_memories(self) -> int:
        """Return what tells `was_there` the memory of now from that of later tensors."""
        return len(self._memories)

    def was_there(self, tensor: torch.Tensor, num_memories: int) -> bool:
        """Tell whether the memory of a tensor was there at some time."""
        return self._memories.get(memory_of(tensor), -1) < num_memories

    def last_node(self) -> torch.fx.Node:
        """Return the node that was added last."""
        last: torch.fx.Node = next(iter(reversed(self.graph.nodes)))
        return last

    def nodes_behind(self, node: torch.fx.Node) -> Iterator[torch.fx.Node]:
        """Yield the nodes that were added later than one, and inputs apart."""
        behind = node.next
        while behind.op != "root":
            yield behind
            behind = behind.next

    def tensors_with_gradients(self) -> list[torch.Tensor]:
        """Return the tensors that need gradients, of those that existed before the call."""
        found = [*self._given, *(tensor for tensor, _ in self._state.tensors.values())]
        return [each for each in found if each.requires_grad]

    def is_gradient_outside(self, gradient: torch.Tensor) -> bool:
        """Tell whether a gradient existed before the call."""
        known = (found for _, found in self._state.gradients.values())
        return self.is_outside(gradient) or any(gradient is each for each in known)

    def has_gradient_of_begin(self, owner: torch.Tensor) -> bool:
        """Tell whether a tensor that existed before the call has the gradient that it had."""
        _, found = self._state.gradients.get(id(owner), (None, owner))
        return owner.grad is found

    def is_object_outside(self, value: object) -> bool:
        """Tell whether an object existed before the call, and is compared."""
        return self._state.compares(value)

    def source_of(self, node: torch.fx.Node) -> Source:
        """Return which input a placeholder is."""
        inputs = zip(self.graph.find_nodes(op="placeholder"), self.sources, strict=True)
        return next(source for each, source in inputs if each is node)

    def knows(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor is in the graph."""
        return id(tensor) in self._nodes

    def leaf_of(self, tensor: torch.Tensor) -> int | None:
        """Return which tensor leaf of the arguments a tensor is; None if it is none."""
        return self._leaves.get(id(tensor))

    def is_argument(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor is an argument of the call."""
        return id(tensor) in self._leaves

    def is_outside(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor existed before the call."""
        known = (self._leaves, self.kept, self._state.tensors)
        return any(id(tensor) in each for each in known)

    def call(self, target: Callable[..., Any], args: Any, kwargs: Any) -> torch.fx.Node:
        """Add a call of an operator to the graph."""
        node = self.graph.call_function(target, args, kwargs)
        where = user_line(sys._getframe(1))
        if where:
            file, _, line = where.rpartition(":")
            node.meta["stack_trace"] = f'  File "{file}", line {line}, in recorded'
        if self._with_gradients and not torch.is_grad_enabled():
            node.meta["without_gradient"] = True
        return node

    def _source_of(self, tensor: torch.Tensor) -> Source | None:
        if id(tensor) in self._leaves:
            return Leaf(self._leaves[id(tensor)], tensor)
        if id(tensor) in self.kept:
            return self.kept[id(tensor)]
        owner = self._gradient_owner(tensor)
        if owner is not None:
            return Gradient(owner, tensor)
        found = self._state.tensors.get(id(tensor))
        return None if found is None else Bound(tensor, found[1])

    def _gradient_owner(self, tensor: torch.Tensor) -> torch.Tensor | None:
        for owner, gradient in self._state.gradients.values():
            if gradient is tensor and id(owner) not in self._leaves:
                return owner
        return None

    def add_open(self, number: OpenArgument) -> None:
        """Make a number among the arguments an input."""
        self.opened.append(number)
        self.add_input(number.tensor, number)

    def add_number(self, tensor: torch.Tensor, description: tuple[Any, ...]) -> None:
        """Make a tensor an input that is read from a dict at each call."""
        self.add_input(tensor, Number(tensor, description))


def memory_of(tensor: torch.Tensor) -> int:
    """Return what tells the memory of a tensor from that of others, while both live."""
    if tensor.layout is not torch.strided:
        return id(tensor)
    return int(tensor.untyped_storage()._cdata)


def _geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.layout is not torch.strided:
        return (id(tensor),)
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()
