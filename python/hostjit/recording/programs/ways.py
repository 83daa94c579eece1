# SPDX-License-Identifier: Apache-2.0
"""Recorded ways through a pass of a loop to the next pass, and two of them as one.

Of `if residual < last: x, step = trial, step * 2` and `else: step = step / 2`, a pass may take
either. One graph computes both, and selects what is kept by what the code would decide.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence, Set
from typing import Any

import torch
from torch.fx import Graph, Node

from hostjit.capturing.constants import same_constant
from hostjit.capturing.functional.trace import FunctionalGraph
from hostjit.capturing.graph_module import graph_module
from hostjit.capturing.results.outputs import (
    ArgumentOutput,
    BoundOutput,
    ConstantOutput,
    DictOutput,
    GraphOutput,
    ItemOutput,
    ListOutput,
    Output,
    TupleOutput,
)
from hostjit.capturing.traced_graph import remove_dead_nodes
from hostjit.recording.graph.inputs import Bound, Constant, Leaf, OpenArgument, Source
from hostjit.recording.graph.recorder import Recorder
from hostjit.recording.programs.carried import CannotCarryError
from hostjit.recording.programs.fake_calls import FakeCalls, decided, is_like
from hostjit.recording.programs.may_repeat import may_raise_ahead
from hostjit.recording.programs.results import Results

__all__ = ["Way", "merged"]

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class Way:
    """A recorded way through a pass of a loop.

    Attributes:
        graph: functional, but for `aten.copy_` to what it writes at its end; with values of fake
            tensors. Its results are those of `output`, then what the code read.
        sources: what its placeholders are, in order.
        expected: what was read.
        where: the lines that read them.
        output: the tuple of what the pass returns.
        tensors: what the results looked like.
        joined: the ways that it is made of, none if it was recorded: the result that tells whether
            it is this one, and the output of this one.
    """

    graph: Graph
    sources: tuple[Source, ...]
    expected: tuple[torch.Tensor, ...]
    where: tuple[str, ...]
    output: TupleOutput
    tensors: tuple[torch.Tensor, ...]
    joined: tuple[tuple[int, TupleOutput], ...] = ()

    @classmethod
    def of(cls, functional: FunctionalGraph, recorder: Recorder, results: Results) -> Way:
        """Return that of a recorded pass."""
        assert isinstance(results.output, TupleOutput)
        sources = recorder.sources
        constants = [Constant(tensor) for tensor in functional.inputs[len(sources) :]]
        return cls(
            _copied(functional.graph_module.graph),
            (*sources, *constants),
            tuple(read.expected for read in recorder.reads),
            tuple(read.where for read in recorder.reads),
            results.output,
            tuple(results.tensors),
        )

    @property
    def recorded(self) -> list[TupleOutput]:
        """What the recorded ways return that it is made of, or is."""
        return [output for _, output in self.joined] or [self.output]

    def results(self) -> list[Node]:
        """Return the results of the graph."""
        ended: Any = self.graph.output_node().args[0]
        return [*ended]

    def without_arguments(self) -> Way:
        """Return the same for later: it keeps no argument alive."""
        nothing = torch.empty(0)
        sources = tuple(
            Leaf(source.index, nothing) if isinstance(source, Leaf) else source
            for source in self.sources
        )
        return dataclasses.replace(self, sources=sources, tensors=())

    def placeholders(self) -> list[Node]:
        """Return the placeholders of the graph."""
        return [*self.graph.find_nodes(op="placeholder")]

    def copied(self) -> Graph:
        """Return a copy of the graph."""
        return _copied(self.graph)

    def functional(self, of: FunctionalGraph) -> FunctionalGraph:
        """Return the graph as what was traced `of` one of its ways."""
        graph = _copied(self.graph)
        placeholders = [*graph.find_nodes(op="placeholder")]
        written = [node.args[0] for node in graph.nodes if node.target is aten.copy_.default]
        return dataclasses.replace(
            of,
            graph_module=graph_module(torch.nn.Module(), graph),
            inputs=[source.tensor for source in self.sources],
            mutated=tuple(i for i, node in enumerate(placeholders) if node in written),
        )


def merged(
    first: Way,
    second: Way,
    recorder: Recorder,
    leaves: Sequence[torch.Tensor],
    changing: Set[int],
) -> Way:
    """Return a way that is taken where one of two is.

    Args:
        first: of an earlier call.
        second: of the call that was recorded just now.
        recorder: of that.
        leaves: the tensors among its arguments.
        changing: which of these are others in the next pass, by one of the ways.

    Raises CannotCarryError where what they return cannot be selected.
    """
    return _Merged(first, second, recorder, leaves, changing).made()


class _Merged:
    """The graph of two ways."""

    def __init__(
        self,
        first: Way,
        second: Way,
        recorder: Recorder,
        leaves: Sequence[torch.Tensor],
        changing: Set[int],
    ) -> None:
        self._ways = (first, second)
        self._changing = changing
        self._call = FakeCalls(second.graph)
        self._graph = Graph()
        self._sources = [*second.sources]
        self._placeholders = [self._graph.node_copy(node) for node in second.placeholders()]
        self._of_first = [
            self._placeholder(source, node, recorder, leaves)
            for source, node in zip(first.sources, first.placeholders(), strict=True)
        ]
        # What the graph computes already, by what it is of.
        self._known: dict[str, Node] = {}
        self._results: list[Node] = []
        self._tensors: list[torch.Tensor] = []

    def _placeholder(
        self, source: Source, node: Node, recorder: Recorder, leaves: Sequence[torch.Tensor]
    ) -> Node:
        """What is for an input of the first way."""
        now = _now(source, recorder, leaves)
        places = [i for i, other in enumerate(self._sources) if _is_same(now, other)]
        if places:
            known = self._placeholders[places[0]]
        else:
            known = self._graph.node_copy(node)
            known.meta["val"] = self._call.like(node.meta["val"])
            self._sources.append(now)
            self._placeholders.append(known)
        if not is_like(known.meta["val"], node.meta["val"]):
            raise CannotCarryError
        return known

    def made(self) -> Way:
        """Return the way."""
        first, second = self._ways
        count = len(second.sources)
        # By the nodes of both: what they are here, and what each way writes, by placeholder.
        second_nodes, second_writes = self._computed(second, self._placeholders[:count])
        first_nodes, first_writes = self._computed(first, self._of_first)
        self._written = {*first_writes, *second_writes}
        taken = []
        for way, nodes in ((first, first_nodes), (second, second_nodes)):
            results = way.results()
            reads = [nodes[node] for node in results[len(results) - len(way.expected) :]]
            taken.append(decided(self._call, self._graph, reads, way.expected))
        self._takes_first = taken[0]
        self._of_ways = [
            [nodes[node] for node in way.results()]
            for way, nodes in ((first, first_nodes), (second, second_nodes))
        ]
        for recorded in (*first.recorded, second.output):
            _check_containers(recorded)
        pairs = zip(first.output.items, second.output.items, strict=True)
        output = TupleOutput(tuple(self._variable(*pair) for pair in pairs))
        joined = [(self._result(flag).index, each) for flag, each in self._flags()]
        is_taken = self._call(self._graph, aten.logical_or.default, *taken)
        # At the end: what is ahead of it, a graph without effects may compute.
        for node in {**first_writes, **second_writes}:
            pair = first_writes.get(node, node), second_writes.get(node, node)
            self._call(self._graph, aten.copy_.default, node, self._selected(*pair))
        self._graph.output((*self._results, is_taken))
        remove_dead_nodes(self._graph)
        if any(node.target is aten.copy_.default for node in self._graph.nodes):
            if may_raise_ahead(self._graph):
                raise CannotCarryError
        return Way(
            self._graph,
            tuple(self._sources),
            (torch.tensor(True),),
            (" or ".join({*first.where[-1:], *second.where[-1:]}),),
            output,
            tuple(self._tensors),
            tuple(joined),
        )

    def _computed(
        self, way: Way, placeholders: Sequence[Node]
    ) -> tuple[dict[Node, Node], dict[Node, Node]]:
        """Compute a way; return what its nodes are here, and what it writes, by placeholder."""
        nodes = dict(zip(way.placeholders(), placeholders, strict=True))
        writes: dict[Node, Node] = {}
        for node in way.graph.nodes:
            if node.op != "call_function":
                continue
            if node.target is aten.copy_.default:
                written, value = node.all_input_nodes
                writes[nodes[written]] = nodes[value]
                continue
            args, kwargs = torch.fx.node.map_arg(
                (node.args, node.kwargs), lambda operand: nodes[operand]
            )
            key = f"{node.target} {args} {kwargs}"
            if key not in self._known:
                copy = self._graph.node_copy(node, lambda old: nodes[old])
                if way is self._ways[0]:
                    copy.meta["val"] = self._call.value_of(copy, node.meta["val"])
                self._known[key] = copy
            nodes[node] = self._known[key]
        return nodes, writes

    def _add(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """Add a call, once."""
        key = f"{target} {args} {kwargs}"
        if key not in self._known:
            self._known[key] = self._call(self._graph, target, *args, **kwargs)
        return self._known[key]

    def _selected(self, of_first: Node, of_second: Node) -> Node:
        """What one of the ways makes."""
        if of_first is of_second:
            return of_first
        if not is_like(of_first.meta["val"], of_second.meta["val"]):
            raise CannotCarryError
        made = self._add(aten.where.self, self._takes_first, of_first, of_second)
        if made.meta["val"].stride() != of_first.meta["val"].stride():
            raise CannotCarryError
        return made

    def _result(self, node: Node) -> GraphOutput:
        if node not in self._results:
            value = node.meta["val"]
            self._results.append(node)
            self._tensors.append(
                torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
            )
        return GraphOutput(self._results.index(node))

    def _flags(self) -> Iterator[tuple[Node, TupleOutput]]:
        """What tells of each recorded way whether it is taken, if one is, and its output."""
        first, second = self._ways
        for index, output in first.joined:
            found = self._of_ways[0][index]
            yield self._add(aten.logical_and.default, self._takes_first, found), output
        if not first.joined:
            yield self._takes_first, first.output
        yield self._add(aten.logical_not.default, self._takes_first), second.output

    def _variable(self, first: Output, second: Output) -> Output:
        """What a variable has by either way."""
        kinds = (GraphOutput, ArgumentOutput)
        if not isinstance(first, kinds) or not isinstance(second, kinds):
            return self._part(first, second)
        if isinstance(first, ArgumentOutput) and first.leaf not in self._changing:
            if first == second:
                return first
        nodes = [self._tensor(way, output) for way, output in enumerate((first, second))]
        return self._result(self._selected(*nodes))

    def _tensor(self, way: int, output: Output) -> Node:
        if isinstance(output, GraphOutput):
            return self._of_ways[way][output.index]
        assert isinstance(output, ArgumentOutput)
        for source, node in zip(self._sources, self._placeholders, strict=True):
            if isinstance(source, Leaf) and source.index == output.leaf:
                if node in self._written:
                    break
                return node
        raise CannotCarryError

    def _part(self, first: Output, second: Output) -> Output:
        """What a variable, or an item of its containers, has by either way.

        No tensors that may be one object by one of them.
        """
        if _is_number(first) or _is_number(second):
            return self._number(first, second)
        match first, second:
            case GraphOutput(index), GraphOutput(other):
                return self._result(
                    self._selected(self._of_ways[0][index], self._of_ways[1][other])
                )
            case ArgumentOutput(leaf), ArgumentOutput(same) if leaf == same:
                if leaf in self._changing:
                    raise CannotCarryError
                return first
        if type(first) is type(second) and isinstance(first, TupleOutput | ListOutput | DictOutput):
            return self._container(first, second)
        if _is_same_output(first, second):
            return first
        raise CannotCarryError

    def _container(self, first: Any, second: Any) -> Output:
        if dataclasses.replace(first, items=()) != dataclasses.replace(second, items=()):
            raise CannotCarryError
        if len(first.items) != len(second.items):
            raise CannotCarryError
        made: Output = dataclasses.replace(
            first, items=tuple(map(self._part, first.items, second.items))
        )
        return made

    def _number(self, first: Output, second: Output) -> Output:
        """A number that the ways leave in a variable."""
        if _is_same_output(first, second):
            return first
        found = [self._number_of(way, output) for way, output in enumerate((first, second))]
        return ItemOutput((self._result(self._selected(*found)),))

    def _number_of(self, way: int, output: Output) -> Node:
        match output:
            case ItemOutput((GraphOutput(index),)):
                return self._of_ways[way][index]
            case ConstantOutput(value) if type(value) in (int, float):
                dtype = torch.float64 if type(value) is float else torch.int64
                return self._add(aten.full.default, [], value, dtype=dtype)
        raise CannotCarryError


def _is_same_output(first: Output, second: Output) -> bool:
    """Whether two outputs, of graphs that need not be the same, are one object."""
    match first, second:
        case ConstantOutput(value), ConstantOutput(other):
            return value is other or same_constant(value, other)
        case BoundOutput(tensor), BoundOutput(bound):
            return tensor is bound
    return False


def _is_number(output: Output) -> bool:
    if isinstance(output, ConstantOutput):
        return type(output.value) in (int, float)
    return isinstance(output, ItemOutput)


def _now(source: Source, recorder: Recorder, leaves: Sequence[torch.Tensor]) -> Source:
    """What an input of an earlier call is at a call."""
    if isinstance(source, Leaf):
        if source.index >= len(leaves):
            raise CannotCarryError
        return Leaf(source.index, leaves[source.index])
    if isinstance(source, OpenArgument):
        for each in recorder.opened:
            if each.argument == source.argument and each.type is source.type:
                return each
        raise CannotCarryError
    if isinstance(source, Bound | Constant):
        return source
    raise CannotCarryError


def _is_same(source: Source, other: Source) -> bool:
    """Whether two inputs of one call are the same."""
    match source, other:
        case Leaf(index), Leaf(same):
            return index == same
        case OpenArgument(), OpenArgument():
            return source.argument == other.argument
        case (Bound(), Bound()) | (Constant(), Constant()):
            return source.tensor is other.tensor
    return False


def _check_containers(output: TupleOutput) -> None:
    """Refuse new tensors in containers that are elsewhere, too: by the other way they need not be.

    Raises CannotCarryError.
    """
    found: collections.Counter[int] = collections.Counter()
    in_containers: list[int] = []

    def look(part: Output, depth: int) -> None:
        match part:
            case GraphOutput(index):
                found[index] += 1
                in_containers.extend([index] * (depth > 1))
            case TupleOutput(items) | ListOutput(items) | DictOutput(_, _, items):
                for item in items:
                    look(item, depth + 1)

    look(output, 0)
    if any(found[index] > 1 for index in in_containers):
        raise CannotCarryError


def _copied(graph: Graph) -> Graph:
    made = Graph()
    nodes: dict[Node, Node] = {}
    made.output(made.graph_copy(graph, nodes))
    return made
