# SPDX-License-Identifier: Apache-2.0
"""A recorded pass of a loop as a program that runs pass after pass.

It goes on as long as the code would decide as it did in the recorded pass, and so another pass
follows. The first one of which that is not so is computed as well, up to where nothing is kept of
it: Python runs it again, by another recording. What a pass hands to the next is what the loop
carries.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from hostjit.bytecode.loops import MOST_PASSES, PassVariables
from hostjit.capturing.graph_module import graph_module
from hostjit.capturing.results.outputs import (
    AgainOutput,
    ArgumentOutput,
    BoundOutput,
    CollectedOutput,
    Column,
    ConstantOutput,
    DictOutput,
    GraphOutput,
    HandedOnOutput,
    ItemOutput,
    JoinedOutput,
    LeafOutput,
    ListOutput,
    NumberOutput,
    Output,
    TupleOutput,
    ViewOutput,
)
from hostjit.capturing.traced_graph import remove_dead_nodes
from hostjit.recording.graph.inputs import Leaf
from hostjit.recording.graph.places import is_in_range
from hostjit.recording.graph.recorder import Recorder
from hostjit.recording.programs.carried import (
    CannotCarryError,
    OtherKindError,
    carried,
    changed_leaves,
    fits,
)
from hostjit.recording.programs.fake_calls import FakeCalls, decided
from hostjit.recording.programs.shared_objects import SharedObjects, shared_objects
from hostjit.recording.programs.ways import Way

__all__ = ["RepeatedPass", "leads_to_next", "repeat"]

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class RepeatedPass:
    """The program of several passes.

    Attributes:
        graph_module: a functional graph with the placeholders of that of a pass.
        output: what the last pass returns.
    """

    graph_module: torch.fx.GraphModule
    output: Output


def repeat(
    way: Way, recorder: Recorder, variables: PassVariables, args: Sequence[Any]
) -> RepeatedPass | None:
    """Return the program of a pass and those that follow; None for one that runs by itself.

    Args:
        way: that leads from the pass to the next.
        recorder: of the recorded call.
        variables: of the loop.
        args: of the recorded call.

    Raises OtherKindError where the next pass is for what another one is given.
    """
    if not (way.expected or variables.counts):
        return None
    try:
        pairs = carried(variables, recorder, args, way.output)
        return _Loop(way, recorder, variables, args, pairs).made()
    except OtherKindError:
        raise
    except CannotCarryError:
        return None


# A program runs so many passes at once that append to lists: as long a column is copied for each.
_MOST_ROWS = 256
_COLUMN_BYTES = 1 << 14
_FEWEST_ROWS = 8
# The first result of the graph is how many passes ran; what the loop carried follows.
_COUNT = GraphOutput(0)


def leads_to_next(output: Output, variables: PassVariables) -> bool:
    """Tell whether another pass follows one that returns this."""
    if not isinstance(output, TupleOutput):
        return False
    first = output.items[0] if variables.tells_where else ConstantOutput(0)
    return isinstance(first, ConstantOutput) and first.value == 0


def _writes_to_places(node: Node, base: Node | None) -> list[Node]:
    """The writes of items that a tensor is made by of another, from the last; [] if others are."""
    found = []
    while node is not base:
        if not (node.target is aten.index_put.default and is_in_range(node)):
            return []
        found.append(node)
        node = node.args[0]  # type: ignore[assignment]
    return found


@dataclasses.dataclass(frozen=True)
class _Slot:
    """A value that the loop carries.

    Attributes:
        begin: the input that it is ahead of the first pass, by its placeholder; None for what only
            the code behind the loop wants.
        source: what it is behind a pass: a result of the pass, or what that has for an input.
        is_column: the loop carries the values that it had behind all passes.
    """

    begin: Node | None
    source: Node
    is_column: bool = False


class _Loop:
    """The graph of a loop, made of that of a pass."""

    def __init__(
        self,
        way: Way,
        recorder: Recorder,
        variables: PassVariables,
        args: Sequence[Any],
        pairs: Sequence[tuple[torch.Tensor, Output]],
    ) -> None:
        """Raises CannotCarryError."""
        self._pass = way.copied()
        self._expected = way.expected
        self._placeholders = [*self._pass.find_nodes(op="placeholder")]
        ended: Any = self._pass.output_node().args[0]
        count = len(way.tensors)
        self._results: list[Node] = [*ended[:count]]
        self._reads: list[Node] = [*ended[count:]]
        inputs = {
            id(source.tensor): node
            for source, node in zip(way.sources, self._placeholders, strict=True)
        }
        self._leaves: dict[int, Node] = {
            source.index: inputs[id(source.tensor)]
            for source in way.sources
            if isinstance(source, Leaf)
        }
        self._call = FakeCalls(self._pass)
        self._note_items(recorder, variables, inputs)
        writes = [node for node in self._pass.nodes if node.target is aten.copy_.default]
        # The values of inputs that a pass writes, by their placeholders.
        self._written: dict[Any, Any] = dict(node.args for node in writes)
        self._slots = [_Slot(begin, source) for begin, source in self._written.items()]
        self._objects: SharedObjects | None = None
        if way.joined:
            self._objects = shared_objects(
                way, recorder, variables, args, changed_leaves(recorder, pairs)
            )
        for tensor, after in pairs:
            leaf = recorder.leaf_of(tensor)
            if leaf is not None and after == ArgumentOutput(leaf):
                continue
            is_leaf = isinstance(after, LeafOutput)
            if is_leaf != tensor.requires_grad or not tensor.is_leaf:
                raise CannotCarryError
            begin = inputs.get(id(tensor))
            is_number = any(tensor is number.tensor for number in recorder.opened)
            source = self._source(after.items[0] if isinstance(after, LeafOutput) else after)
            is_written = begin in self._written or source in self._written
            if is_number and source.meta["val"].dtype != tensor.dtype:
                raise OtherKindError
            if is_written or not fits(tensor, source.meta["val"]):
                raise CannotCarryError
            if begin is not None and begin is not source:
                self._slots.append(_Slot(begin, source))
        self._next = {slot.begin: slot.source for slot in self._slots}
        self._numbers = {inputs[id(number.tensor)] for number in recorder.opened}
        self._tensors = way.tensors
        # What makes the tensors that passes append to lists.
        self._appended: list[Node] = []
        self._output = self._returned(way.output, variables)
        self._rows = self._count_rows()

    def _note_items(
        self, recorder: Recorder, variables: PassVariables, inputs: Mapping[int, Node]
    ) -> None:
        """Find the inputs that tell how many passes may run, and what their items are."""
        self._most: Node | None = None
        self._step: Node | None = None
        self._item: Node | None = None
        if not variables.counts:
            return
        opened = {number.argument: inputs[id(number.tensor)] for number in recorder.opened}
        count = len(variables.taken)
        self._most, self._step = opened[count], opened[count + 1]
        if variables.item is not None:
            self._item = opened.get(variables.taken.index(variables.item))
            if self._item is None:
                raise CannotCarryError

    def _source(self, output: Output) -> Node:
        """What a variable has behind a pass."""
        match output:
            case GraphOutput(index):
                return self._results[index]
            case ArgumentOutput(leaf):
                return self._leaves[leaf]
            case ConstantOutput(value):
                with self._pass.inserting_before(self._pass.output_node()):
                    dtype = torch.float64 if type(value) is float else torch.int64
                    return self._call(self._pass, aten.full.default, [], value, dtype=dtype)
        raise CannotCarryError

    def _given(self, output: Output) -> Output:
        """What the last pass returns, over the values that the loop carries, and the count."""
        match output:
            case GraphOutput(index):
                return self._carried(self._results[index])
            case ArgumentOutput(leaf):
                node = self._leaves[leaf]
                is_handed_on = node in self._next and node not in self._written
                return self._handed_on(node) if is_handed_on else output
            case BoundOutput() | ConstantOutput():
                return output
            case NumberOutput() | HandedOnOutput() | ViewOutput() | JoinedOutput() | AgainOutput():
                raise CannotCarryError
        return dataclasses.replace(output, items=tuple(map(self._given, output.items)))

    def _carried(self, source: Node, *, is_column: bool = False) -> GraphOutput:
        """What has a value behind each pass, or the values behind all passes."""
        known = [(slot.source, slot.is_column) for slot in self._slots]
        if (source, is_column) not in known:
            self._slots.append(_Slot(None, source, is_column))
            known.append((source, is_column))
        first = 1 + (self._objects is not None)
        return GraphOutput(first + known.index((source, is_column)))

    def _handed_on(self, node: Node) -> Output:
        """What has the value that an argument has ahead of each pass."""
        arguments = {other: ArgumentOutput(leaf) for leaf, other in self._leaves.items()}
        value, found = self._carried(node), [arguments[node]]
        while (node := self._next.get(node, node)) in self._next:
            if arguments[node] in found:
                raise CannotCarryError
            found.append(arguments[node])
        return HandedOnOutput((_COUNT, value, *found))

    def _returned(self, output: Output, variables: PassVariables) -> Output:
        """What the last pass returns, with what all of them append and how many they are."""
        assert isinstance(output, TupleOutput)
        begin = len(output.items) - len(variables.given) - variables.counts
        lists = [begin + i for i, name in enumerate(variables.given) if name in variables.appended]
        count = len(output.items) - variables.counts
        items: list[Any] = [
            None if i in lists else self._given(output.items[i]) for i in range(count)
        ]
        for i in lists:
            items[i] = self._collected(output.items[i])
        self._check_objects()
        made = TupleOutput((*items, *variables.counts * [ItemOutput((_COUNT,))]))
        return made if self._objects is None else self._objects.shared(made)

    def _collected(self, output: Output) -> Output:
        """What all passes append to a list."""
        if not isinstance(output, ListOutput):
            raise CannotCarryError
        columns: list[tuple[Column, tuple[Output, ...]]] = []
        form = ListOutput(tuple(self._over_columns(item, columns) for item in output.items))
        if not output.items:
            return form
        kinds, found = zip(*columns, strict=True)
        return CollectedOutput((_COUNT, *itertools.chain(*found)), kinds, form)

    def _over_columns(
        self, output: Output, columns: list[tuple[Column, tuple[Output, ...]]]
    ) -> Output:
        """What a pass appends, over values of all passes, which are added to some."""
        match output:
            case TupleOutput(items) | ListOutput(items) | DictOutput(_, _, items):
                made = tuple(self._over_columns(item, columns) for item in items)
                return dataclasses.replace(output, items=made)
            case ItemOutput((GraphOutput(index),)):
                column = self._carried(self._results[index], is_column=True)
                columns.append((Column.NUMBERS, (column,)))
            case GraphOutput(index):
                source = self._results[index]
                self._check_row(self._tensors[index], source)
                self._appended.append(source)
                column = self._carried(source, is_column=True)
                columns.append((Column.MADE, (column, self._given(output))))
            case ArgumentOutput(leaf) if (node := self._leaves[leaf]) in self._next:
                if node in self._written:
                    columns.append((Column.SAME, (output,)))
                else:
                    self._appended.append(self._next[node])
                    column = self._carried(self._next[node], is_column=True)
                    columns.append((Column.TAKEN, (output, column)))
            case ArgumentOutput() | BoundOutput() | ConstantOutput():
                columns.append((Column.SAME, (output,)))
            case _:
                raise CannotCarryError
        return GraphOutput(len(columns) - 1)

    def _check_row(self, tensor: torch.Tensor, source: Node) -> None:
        """Refuse what is no row of a tensor."""
        made = source.meta["val"]
        if tensor.requires_grad or not (fits(tensor, made) and made.is_contiguous()):
            raise CannotCarryError

    def _check_objects(self) -> None:
        """Refuse tensors in lists that are, as objects, elsewhere, too: but for the last one."""
        handed_on = {slot.source for slot in self._slots if not slot.is_column} & {*self._next}
        is_twice = len(set(self._appended)) < len(self._appended)
        if is_twice or (self._appended and handed_on - self._numbers):
            raise CannotCarryError

    def _count_rows(self) -> int:
        """For how many passes there is room in columns."""
        most = MOST_PASSES
        for slot in self._slots:
            if slot.is_column:
                value = slot.source.meta["val"]
                most = min(most, _MOST_ROWS, _COLUMN_BYTES // (value.numel() * value.itemsize or 1))
        if most < _FEWEST_ROWS:
            raise CannotCarryError
        return most

    def _value(self, slot: _Slot) -> torch.Tensor:
        """What the loop carries, as a fake tensor."""
        # What the pass has of an input are views of the same storage.
        value: torch.Tensor = (slot.begin or slot.source).meta["val"]
        if not slot.is_column:
            return value
        with self._call.mode:
            return torch.empty((self._rows, *value.shape), dtype=value.dtype, device=value.device)

    def made(self) -> RepeatedPass:
        """Return the program."""
        graph = Graph()
        nodes = {node: graph.node_copy(node) for node in self._placeholders}
        begin = [
            nodes[slot.begin] if slot.begin is not None else self._nothing(graph, slot)
            for slot in self._slots
        ]
        numbers = self._objects.begin if self._objects is not None else ()
        begin += [
            *(self._call(graph, aten.full.default, [], n, dtype=torch.int64) for n in numbers),
            self._call(graph, aten.full.default, [], 0, dtype=torch.int64),
            self._call(graph, aten.full.default, [], True, dtype=torch.bool),
        ]
        others = [node for node in self._placeholders if node not in self._next]
        regions: dict[str, object] = {
            "condition": self._condition(others),
            "body": self._body(others),
        }
        attributes = []
        for name, region in regions.items():
            attributes.append(graph.get_attr(name))
            attributes[-1].meta["region"] = region
        operands = (tuple(begin), tuple(nodes[node] for node in others))
        loop = graph.call_function(torch.ops.higher_order.while_loop, (*attributes, *operands))
        loop.meta["val"] = tuple(node.meta["val"] for node in begin)
        carried = []
        for position, node in enumerate(begin[:-1]):
            carried.append(graph.call_function(operator.getitem, (loop, position)))
            carried[-1].meta["val"] = node.meta["val"]
        num_values = len(self._slots)
        for node, now in zip(self._written, carried, strict=False):
            self._call(graph, aten.copy_.default, nodes[node], now)
        values, found, count = carried[:num_values], carried[num_values:-1], carried[-1]
        together = [self._call(graph, aten.stack.default, found)] if found else []
        graph.output((count, *together, *values))
        remove_dead_nodes(graph)
        return RepeatedPass(graph_module(regions, graph), self._output)

    def _operands(
        self, graph: Graph, others: Sequence[Node]
    ) -> tuple[list[Node], list[Node], Node, Node, dict[Node, Node]]:
        """The placeholders of a region.

        For values, for the numbers of objects, the count, whether to go on; and of inputs.
        """
        carried: list[Node] = []
        for slot in self._slots:
            carried.append(graph.placeholder(f"carried_{len(carried)}"))
            carried[-1].meta["val"] = self._value(slot)
        begin = self._objects.begin if self._objects is not None else ()
        numbers = [graph.placeholder(f"object_{index}") for index in range(len(begin))]
        count, goes_on = graph.placeholder("count"), graph.placeholder("goes_on")
        with self._call.mode:
            for each in (*numbers, count):
                each.meta["val"] = torch.empty((), dtype=torch.int64, device="cpu")
            goes_on.meta["val"] = torch.empty((), dtype=torch.bool, device="cpu")
        inputs = {node: graph.node_copy(node) for node in others}
        for slot, node in zip(self._slots, carried, strict=True):
            if slot.begin is not None:
                inputs[slot.begin] = node
        return carried, numbers, count, goes_on, inputs

    def _condition(self, others: Sequence[Node]) -> torch.fx.GraphModule:
        graph = Graph()
        *_, goes_on, _ = self._operands(graph, others)
        graph.output((goes_on,))
        return graph_module(torch.nn.Module(), graph)

    def _body(self, others: Sequence[Node]) -> torch.fx.GraphModule:
        """A pass, of which nothing is kept where the code decides something else than it did."""
        graph = Graph()
        carried, numbers, count, _, nodes = self._operands(graph, others)
        if self._item is not None and self._step is not None:
            behind = self._call(graph, aten.mul.Tensor, count, nodes[self._step])
            nodes[self._item] = self._call(graph, aten.add.Tensor, nodes[self._item], behind)
        written = {
            slot.source: _writes_to_places(slot.source, slot.begin)
            for slot in self._slots
            if not slot.is_column
        }
        before_writes: dict[Node, Node] = {}  # what was where items are written
        for node in self._pass.nodes:
            if any(node in writes for writes in written.values()):
                base, where = torch.fx.node.map_arg(node.args[:2], lambda old: nodes[old])
                before_writes[node] = self._call(graph, aten.index.Tensor, base, where)
            if node.op == "call_function" and node.target is not aten.copy_.default:
                nodes[node] = graph.node_copy(node, lambda old: nodes[old])
        reads = [nodes[node] for node in self._reads]
        same = decided(self._call, graph, reads, self._expected)
        # That of the first pass is known: what was read has been compared.
        is_first = self._call(graph, aten.eq.Scalar, count, 0)
        same = self._call(graph, aten.logical_or.default, same, is_first)
        kept = []
        for slot, before in zip(self._slots, carried, strict=True):
            now, writes = nodes[slot.source], written.get(slot.source, ())
            if slot.is_column:  # no row of a pass that is not kept is counted
                row = self._call(graph, aten.clamp.default, count, 0, self._rows - 1)
                now = self._call(graph, aten.index_put.default, before, [row], now)
            elif not writes:
                now = self._call(graph, aten.where.self, same, now, before)
            for write in writes:  # so much is put back, and not all of it copied
                where = torch.fx.node.map_arg(write.args[1], lambda old: nodes[old])
                item = self._call(graph, aten.index.Tensor, now, where)
                item = self._call(graph, aten.where.self, same, item, before_writes[write])
                now = self._call(graph, aten.index_put.default, now, where, item)
            kept.append(now)
        if self._objects is not None:
            flags = [nodes[self._results[index]] for index in self._objects.flags]
            now_numbers = self._objects.after(self._call, graph, flags, numbers, count)
            kept += [
                self._call(graph, aten.where.self, same, now, before)
                for now, before in zip(now_numbers, numbers, strict=True)
            ]
        count = self._call(graph, aten.add.Tensor, count, same)
        may_follow = self._call(graph, aten.lt.Scalar, count, self._rows)
        goes_on = self._call(graph, aten.logical_and.default, same, may_follow)
        if self._most is not None:
            is_wanted = self._call(graph, aten.lt.Tensor, count, nodes[self._most])
            goes_on = self._call(graph, aten.logical_and.default, goes_on, is_wanted)
        graph.output((*kept, count, goes_on))
        remove_dead_nodes(graph)
        return graph_module(torch.nn.Module(), graph)

    def _nothing(self, graph: Graph, slot: _Slot) -> Node:
        """What a result is ahead of the first pass, which does not look at it."""
        value = self._value(slot)
        form = {"dtype": value.dtype, "device": value.device}
        return self._call(graph, aten.empty_strided.default, value.shape, value.stride(), **form)
