# SPDX-License-Identifier: Apache-2.0
"""A recorded pass of a loop as a program that runs pass after pass.

It goes on as long as the code would decide as it did in the recorded pass, and so another pass
follows. The first one of which that is not so is computed as well, up to where nothing is kept of
it: Python runs it again, by another recording. What a pass hands to the next is what the loop
carries.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, Node

from hostjit.bytecode.loops import MOST_PASSES, PassVariables
from hostjit.capturing.functional.trace import FunctionalGraph
from hostjit.capturing.graph_module import graph_module
from hostjit.capturing.instances import is_one_of
from hostjit.capturing.open_sizes import is_dense
from hostjit.capturing.results.outputs import (
    ArgumentOutput,
    BoundOutput,
    ConstantOutput,
    DictOutput,
    GraphOutput,
    HandedOnOutput,
    ItemOutput,
    LeafOutput,
    ListOutput,
    NumberOutput,
    Output,
    TupleOutput,
    ViewOutput,
    same_constant,
)
from hostjit.capturing.traced_graph import remove_dead_nodes, storage_of
from hostjit.capturing.tracing import is_random
from hostjit.recording.code.handlers import may_raise
from hostjit.recording.graph.inputs import Leaf, OpenArgument
from hostjit.recording.graph.recorder import Read, Recorder
from hostjit.recording.programs.results import Results

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
    functional: FunctionalGraph,
    recorder: Recorder,
    results: Results,
    variables: PassVariables,
    args: Sequence[Any],
) -> RepeatedPass | None:
    """Return the program of a pass and those that follow; None for one that runs by itself.

    Args:
        functional: the graph of the pass; its results are those of `results`, then what was read.
        recorder: of the pass.
        results: of the pass.
        variables: of the loop.
        args: of the recorded call.
    """
    if not (recorder.reads or variables.counts):
        return None
    if not (_may_repeat(recorder, results) and _computes_alone(functional)):
        return None
    given = _given(results.output, variables)
    now = [*args]
    for number in recorder.opened:
        now[number.argument] = number
    try:
        carried = _carried(variables, now, given)
        return _Loop(functional, recorder, results, variables, carried).made()
    except _CannotCarryError:
        return None


# The first result of the graph is how many passes ran; what the loop carried follows.
_COUNT = GraphOutput(0)


class _CannotCarryError(Exception):
    """A pass changes a variable to something that the same program can't take in the next pass."""


def _may_repeat(recorder: Recorder, results: Results) -> bool:
    """Whether a pass does nothing but compute and decide."""
    return (
        all(map(_is_decision, recorder.reads))
        and not (results.assignments or results.in_inference_mode)
        and not (recorder.draws or recorder.used or recorder.handled)
        and recorder.has_distinct_leaves
        and _are_apart(recorder, results)
    )


def _is_decision(read: Read) -> bool:
    """Whether a value that was read is one that `==` compares by its bits, and not a size."""
    expected = read.expected
    is_exact = not (expected.is_floating_point() or expected.is_complex())
    return is_exact and expected.numel() == 1 and not read.is_size


def _are_apart(recorder: Recorder, results: Results) -> bool:
    """Whether no results share memory, with each other or with inputs; but for numbers."""
    found = [storage_of(source.tensor) for source in recorder.sources]
    numbers = [source.tensor for source in recorder.opened]
    for tensor in results.tensors:
        if any(tensor is number for number in numbers):
            continue
        if storage_of(tensor) in found:
            return False
        found.append(storage_of(tensor))
    return True


def _computes_alone(functional: FunctionalGraph) -> bool:
    """Whether a graph computes on the CPU, by operators without effects but writes at its end.

    Where there are such, Python can't run a pass instead of one that is computed ahead and raises.
    """
    graph = functional.graph_module.graph
    if is_random(graph) or not all(map(_is_known, graph.nodes)):
        return False
    return not functional.mutated or not any(map(_may_raise, graph.nodes))


def _is_known(node: Node) -> bool:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.device.type != "cpu":
        return False
    if node.op != "call_function":
        return node.op in ("placeholder", "output")
    if not isinstance(node.target, torch._ops.OpOverload):
        return node.target is operator.getitem
    if node.target is aten.copy_.default:
        written: Any = node.args[0]
        return bool(written.op == "placeholder") and not node.users
    return node.target.namespace == "aten" and not node.target._schema.is_mutable


def _may_raise(node: Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    operands = torch.fx.node.map_arg(node.args, lambda found: found.meta["val"])
    return may_raise(node.target, operands)


def leads_to_next(output: Output, variables: PassVariables) -> bool:
    """Tell whether another pass follows one that returns this."""
    if not isinstance(output, TupleOutput):
        return False
    first = output.items[0] if variables.tells_where else ConstantOutput(0)
    return isinstance(first, ConstantOutput) and first.value == 0


def _given(output: Output, variables: PassVariables) -> dict[str, Output]:
    """What a pass that another follows leaves in variables."""
    assert isinstance(output, TupleOutput)
    items = output.items[1:] if variables.tells_where else output.items
    return dict(zip(variables.given, items, strict=not variables.counts))


def _carried(
    variables: PassVariables, args: Sequence[Any], given: Mapping[str, Output]
) -> list[tuple[torch.Tensor, Output]]:
    """Pair the tensors that a pass is given with what they are in the next pass."""
    taken = dict(zip(variables.taken, args, strict=not variables.counts))
    both = [name for name in variables.taken if name in given and name != variables.item]
    return [pair for name in both for pair in _pairs(taken[name], given[name])]


def _pairs(value: Any, after: Output) -> Iterator[tuple[torch.Tensor, Output]]:
    """Raises _CannotCarryError where what comes next is of another structure."""
    if isinstance(value, OpenArgument):
        if not isinstance(after, ItemOutput):
            raise _CannotCarryError
        yield value.tensor, after.items[0]
        return
    if is_one_of(type(value), (torch.Tensor, torch.nn.Parameter)):
        yield value, after
        return
    if isinstance(after, ConstantOutput):
        if value is after.value or same_constant(value, after.value):
            return
    elif _is_alike(value, after):
        items = value.values() if isinstance(after, DictOutput) else value
        for item, behind in zip(items, after.items, strict=True):  # type: ignore[union-attr]
            yield from _pairs(item, behind)
        return
    raise _CannotCarryError


def _is_alike(value: Any, after: Output) -> bool:
    match after:
        case TupleOutput(items):
            return type(value) is tuple and len(value) == len(items)
        case ListOutput(items):
            return type(value) is list and len(value) == len(items)
        case DictOutput(kind, keys, _):
            known: Any = value
            return type(value) is kind and (*known,) == keys
    return False


def _fits(tensor: torch.Tensor, made: torch.Tensor) -> bool:
    """Whether the program may be given what was made in the place of a tensor."""
    return (
        type(tensor) is torch.Tensor
        and tensor.is_inference() == torch.is_inference_mode_enabled()
        and tensor.dtype == made.dtype
        and tensor.shape == made.shape
        and tensor.stride() == made.stride()
        and is_dense(made.shape, made.stride())
    )


@dataclasses.dataclass(frozen=True)
class _Slot:
    """A value that the loop carries.

    Attributes:
        begin: the input that it is ahead of the first pass, by its placeholder; None for what only
            the code behind the loop wants.
        source: what it is behind a pass: a result of the pass, or what that has for an input.
    """

    begin: Node | None
    source: Node


class _Loop:
    """The graph of a loop, made of that of a pass."""

    def __init__(
        self,
        functional: FunctionalGraph,
        recorder: Recorder,
        results: Results,
        variables: PassVariables,
        carried: Sequence[tuple[torch.Tensor, Output]],
    ) -> None:
        """Raises _CannotCarryError."""
        self._pass = functional.graph_module.graph
        self._placeholders = [*self._pass.find_nodes(op="placeholder")]
        ended: Any = self._pass.output_node().args[0]
        count = len(results.nodes)
        self._results: list[Node] = [*ended[:count]]
        self._reads = [*zip(ended[count:], recorder.reads, strict=True)]
        inputs = {
            id(source.tensor): node
            for source, node in zip(recorder.sources, self._placeholders, strict=False)
        }
        self._leaves: dict[int, Node] = {
            source.index: inputs[id(source.tensor)]
            for source in recorder.sources
            if isinstance(source, Leaf)
        }
        self._mode = self._fake_mode()
        self._note_items(recorder, variables, inputs)
        writes = [node for node in self._pass.nodes if node.target is aten.copy_.default]
        # The values of inputs that a pass writes, by their placeholders.
        self._written: dict[Any, Any] = dict(node.args for node in writes)
        self._slots = [_Slot(begin, source) for begin, source in self._written.items()]
        for tensor, after in carried:
            leaf = recorder.leaf_of(tensor)
            if leaf is not None and after == ArgumentOutput(leaf):
                continue
            is_leaf = isinstance(after, LeafOutput)
            if is_leaf != tensor.requires_grad or not tensor.is_leaf:
                raise _CannotCarryError
            begin = inputs.get(id(tensor))
            source = self._source(after.items[0] if isinstance(after, LeafOutput) else after)
            is_written = begin in self._written or source in self._written
            if is_written or not _fits(tensor, source.meta["val"]):
                raise _CannotCarryError
            if begin is not None and begin is not source:
                self._slots.append(_Slot(begin, source))
        self._next = {slot.begin: slot.source for slot in self._slots}
        self._output = self._given(results.output)
        if variables.counts:
            assert isinstance(self._output, TupleOutput)
            items = (*self._output.items[:-1], ItemOutput((_COUNT,)))
            self._output = TupleOutput(items)

    def _fake_mode(self) -> Any:
        values = (node.meta.get("val") for node in self._pass.nodes)
        mode = next((v.fake_mode for v in values if isinstance(v, FakeTensor)), None)
        if mode is None:
            raise _CannotCarryError
        return mode

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
                raise _CannotCarryError

    def _source(self, output: Output) -> Node:
        """What a variable has behind a pass."""
        match output:
            case GraphOutput(index):
                return self._results[index]
            case ArgumentOutput(leaf):
                return self._leaves[leaf]
        raise _CannotCarryError

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
            case NumberOutput() | HandedOnOutput() | ViewOutput():
                raise _CannotCarryError
        return dataclasses.replace(output, items=tuple(map(self._given, output.items)))

    def _carried(self, source: Node) -> GraphOutput:
        """What has a value behind each pass."""
        known = [slot.source for slot in self._slots]
        if source not in known:
            self._slots.append(_Slot(None, source))
            known.append(source)
        return GraphOutput(1 + known.index(source))

    def _handed_on(self, node: Node) -> Output:
        """What has the value that an argument has ahead of each pass."""
        arguments = {other: ArgumentOutput(leaf) for leaf, other in self._leaves.items()}
        value, found = self._carried(node), [arguments[node]]
        while (node := self._next.get(node, node)) in self._next:
            if arguments[node] in found:
                raise _CannotCarryError
            found.append(arguments[node])
        return HandedOnOutput((_COUNT, value, *found))

    def made(self) -> RepeatedPass:
        """Return the program."""
        graph = Graph()
        nodes = {node: graph.node_copy(node) for node in self._placeholders}
        begin = [
            nodes[slot.begin] if slot.begin is not None else self._nothing(graph, slot.source)
            for slot in self._slots
        ]
        begin += [
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
        for node, now in zip(self._written, carried, strict=False):
            self._call(graph, aten.copy_.default, nodes[node], now)
        *values, count = carried
        graph.output((count, *values))
        remove_dead_nodes(graph)
        return RepeatedPass(graph_module(regions, graph), self._output)

    def _operands(
        self, graph: Graph, others: Sequence[Node]
    ) -> tuple[list[Node], Node, Node, dict[Node, Node]]:
        """The placeholders of a region: for values, the count, whether to go on; and of inputs."""
        carried: list[Node] = []
        for slot in self._slots:
            carried.append(graph.placeholder(f"carried_{len(carried)}"))
            # What the pass has of an input are views of the same storage.
            carried[-1].meta["val"] = (slot.begin or slot.source).meta["val"]
        count, goes_on = graph.placeholder("count"), graph.placeholder("goes_on")
        with self._mode:
            count.meta["val"] = torch.empty((), dtype=torch.int64, device="cpu")
            goes_on.meta["val"] = torch.empty((), dtype=torch.bool, device="cpu")
        inputs = {node: graph.node_copy(node) for node in others}
        for slot, node in zip(self._slots, carried, strict=True):
            if slot.begin is not None:
                inputs[slot.begin] = node
        return carried, count, goes_on, inputs

    def _condition(self, others: Sequence[Node]) -> torch.fx.GraphModule:
        graph = Graph()
        _, _, goes_on, _ = self._operands(graph, others)
        graph.output((goes_on,))
        return graph_module(torch.nn.Module(), graph)

    def _body(self, others: Sequence[Node]) -> torch.fx.GraphModule:
        """A pass, of which nothing is kept where the code decides something else than it did."""
        graph = Graph()
        carried, count, _, nodes = self._operands(graph, others)
        if self._item is not None and self._step is not None:
            behind = self._call(graph, aten.mul.Tensor, count, nodes[self._step])
            nodes[self._item] = self._call(graph, aten.add.Tensor, nodes[self._item], behind)
        for node in self._pass.nodes:
            if node.op == "call_function" and node.target is not aten.copy_.default:
                nodes[node] = graph.node_copy(node, lambda old: nodes[old])
        decided = [self._decided(graph, nodes[node], read.expected) for node, read in self._reads]
        if not decided:
            decided.append(self._call(graph, aten.full.default, [], True, dtype=torch.bool))
        same = functools.reduce(
            lambda left, right: self._call(graph, aten.logical_and.default, left, right), decided
        )
        # That of the first pass is known: what was read has been compared.
        is_first = self._call(graph, aten.eq.Scalar, count, 0)
        same = self._call(graph, aten.logical_or.default, same, is_first)
        kept = [
            self._call(graph, aten.where.self, same, nodes[slot.source], before)
            for slot, before in zip(self._slots, carried, strict=True)
        ]
        count = self._call(graph, aten.add.Tensor, count, same)
        if self._most is None:
            may_follow = self._call(graph, aten.lt.Scalar, count, MOST_PASSES)
        else:
            may_follow = self._call(graph, aten.lt.Tensor, count, nodes[self._most])
        goes_on = self._call(graph, aten.logical_and.default, same, may_follow)
        graph.output((*kept, count, goes_on))
        remove_dead_nodes(graph)
        return graph_module(torch.nn.Module(), graph)

    def _decided(self, graph: Graph, found: Node, expected: torch.Tensor) -> Node:
        """Whether the code decides by a value as it did, as a bool without dims."""
        if expected.dim():
            found = self._call(graph, aten.reshape.default, found, [])
        value = expected.item()
        if value is True:
            return found
        if value is False:
            return self._call(graph, aten.logical_not.default, found)
        return self._call(graph, aten.eq.Scalar, found, value)

    def _nothing(self, graph: Graph, node: Node) -> Node:
        """What a result is ahead of the first pass, which does not look at it."""
        value = node.meta["val"]
        form = {"dtype": value.dtype, "device": value.device}
        return self._call(graph, aten.empty_strided.default, value.shape, value.stride(), **form)

    def _call(self, graph: Graph, target: Any, *args: Any, **kwargs: Any) -> Node:
        node = graph.call_function(target, args, kwargs)
        values = [arg.meta["val"] if isinstance(arg, Node) else arg for arg in args]
        with self._mode:
            node.meta["val"] = target(*values, **kwargs)
        return node
