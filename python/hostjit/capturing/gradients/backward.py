# SPDX-License-Identifier: Apache-2.0
"""The functional forward and backward graphs of a call, and what goes from one to the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from hostjit.capturing.dynamic_dims import is_number
from hostjit.capturing.functional.fake_inputs import fake_like, gradient_like
from hostjit.capturing.functional.trace import FunctionalGraph, trace_functional
from hostjit.capturing.gradients.joint import CannotSplitError, JointGraphs
from hostjit.capturing.gradients.kept_values import with_own_memory
from hostjit.capturing.gradients.separate_parts import separate_parts
from hostjit.capturing.numbers.float_bounds import assume_defined
from hostjit.capturing.numbers.graph_sizes import (
    SIZE_DIM,
    follows_from,
    is_open_number,
    over_tensors,
    own_sizes,
    size_tensor,
    told_symbols,
    used_symbols,
    with_sizes_in_place,
)
from hostjit.capturing.overlap import refuse_overlap
from hostjit.capturing.traced_graph import placeholder_values, rename_placeholders, storage_of

__all__ = [
    "Backward",
    "InputKept",
    "NumberKept",
    "ResultKept",
    "SavedTensor",
    "SizeAlone",
    "Tangent",
    "trace_halves",
]

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class InputKept:
    """Input `index` of the forward graph, kept for the backward pass."""

    index: int


@dataclasses.dataclass(frozen=True)
class ResultKept:
    """Result `index` of the forward graph, kept for the backward pass."""

    index: int


@dataclasses.dataclass(frozen=True)
class SavedTensor:
    """An input of the backward graph: what is kept at `position`."""

    position: int


@dataclasses.dataclass(frozen=True)
class Tangent:
    """An input of the backward graph: the gradient that arrives for result `result`."""

    result: int


@dataclasses.dataclass(frozen=True)
class NumberKept:
    """An input of the backward graph: the number that input `index` of the forward graph was."""

    index: int


@dataclasses.dataclass(frozen=True)
class SizeAlone:
    """An input of the backward graph: a size that no other input has; see `size_tensor`."""


@dataclasses.dataclass(frozen=True)
class Backward:
    """How the gradients of a forward graph are computed.

    Attributes:
        graph_module: functional ATen graph; its output is a flat tuple of gradients.
        results: where each result of Dynamo's graph is, among inputs and results of the forward
            graph. The results of the forward graph after those are only kept.
        differentiable: for each result of the forward graph that is the user's or a new value.
        updated: the inputs of the forward graph that are written and that gradients flow through.
            Its first results are their new values.
        saved: what is kept, as (input or result) of the forward graph.
        inputs: one for each placeholder: a SavedTensor, a Tangent, a constant, a NumberKept or a
            SizeAlone.
        gradients: for each input of the forward graph, an output of this graph or None.
        reached: for each input of the forward graph, the results whose gradients its own is made
            of: eager has no gradient where none of them arrives.
        parts: results that gradients may pass by themselves; none where all are one part.
        saved_for: for each of `saved`, the parts that need it.
        again: computes the gradients by PyTorch's operators, with a graph for second derivatives;
            None when the forward cannot be run twice.
        unread: inputs that the forward graph writes, and of whose values nothing is made that
            `again` returns.
        copied: other inputs that it writes: of what they were before, `again` is given copies.
        draws: the forward draws from the default generator, of whose state then `again` is told.
    """

    graph_module: torch.fx.GraphModule
    results: tuple[InputKept | ResultKept, ...]
    differentiable: tuple[bool, ...]
    updated: tuple[int, ...]
    saved: tuple[InputKept | ResultKept, ...]
    inputs: tuple[SavedTensor | Tangent | torch.Tensor | NumberKept | SizeAlone, ...]
    gradients: tuple[int | None, ...]
    reached: tuple[tuple[int, ...], ...]
    parts: tuple[tuple[int, ...], ...] = ()
    saved_for: tuple[tuple[int, ...], ...] = ()
    again: Callable[[Sequence[Any], Sequence[Any], Any], Sequence[Any]] | None = None
    unread: tuple[int, ...] = ()
    copied: tuple[int, ...] = ()
    draws: bool = False


_Source = InputKept | ResultKept | Tangent | torch.Tensor | NumberKept | SizeAlone


def trace_halves(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    joint: JointGraphs,
    make_mode: Callable[[], FakeTensorMode],
) -> tuple[FunctionalGraph, Backward]:
    """Make both halves functional graphs for lowering.

    The forward graph returns the new values of inputs that gradients flow through, the user's
    results, as far as they are no inputs, then what is kept.

    Args:
        module: Dynamo's graph, whose halves they are.
        inputs: the live tensors it takes, and symbolic numbers.
        joint: the halves.
        make_mode: returns the mode to trace a half in.

    Raises CannotSplitError.
    """
    with torch.no_grad(), torch._C._DisableAutocast():
        forward = trace_functional(joint.forward, inputs, make_mode(), checks_offsets=True)
        refuse_overlap(forward.inputs, joint.updated)
        forward = dataclasses.replace(forward, mutated=(*forward.mutated, *joint.updated))
        rename_placeholders(forward.graph_module, module)
        results, saved = _arrange_results(forward, joint)
        mode = make_mode()
        values = _values(forward, saved, results, joint)
        examples = [fake_like(value, mode) for value in values[: len(saved)]]
        examples += [gradient_like(value, mode) for value in values[len(saved) :]]
        given = {str(value): i for i, value in enumerate(inputs) if is_number(value)}
        taken = dict(enumerate(placeholder_values(joint.backward)))
        numbers = {index: value for index, value in taken.items() if is_open_number(value)}
        own = {value.node.expr: value for value in inputs if is_number(value)}
        rest = {index: value for index, value in numbers.items() if str(value) not in given}
        # A size is told by a tensor; a number that may be negative is computed again.
        alone = [index for index, value in rest.items() if not follows_from(value, own)]
        sizes = own_sizes(joint.backward, alone, mode)
        places = {number: (len(examples) + i, SIZE_DIM) for i, number in enumerate(alone)}
        kept = [value for index, value in numbers.items() if index not in rest]
        again = [rest[index] for index in rest if index not in places]
        known = set(map(str, kept))
        needed_again = {symbol for value in again for symbol in value.node.expr.free_symbols}
        kept += [
            value
            for symbol, value in own.items()
            if symbol in needed_again and str(value) not in known
        ]
        sizes += _untold_sizes(joint.backward, module, [*examples, *sizes, *kept], mode)
        module = joint.backward
        if sizes or any(map(is_number, taken.values())):
            module = over_tensors(module, places, sizes, kept)
        # What was kept of an input is checked for the forward graph, and formulas of derivatives
        # take a tangent to begin where its memory does.
        given_tensors = [*examples, *sizes, *kept]
        backward = trace_functional(module, given_tensors, mode, checks_offsets=True)
    if backward.mutated:
        raise CannotSplitError("the backward pass changes a tensor")
    tangents = [
        found.index
        for found, wanted in zip(results, joint.differentiable, strict=True)
        if wanted and isinstance(found, ResultKept)
    ]
    sources: list[_Source] = [
        *saved,
        *(Tangent(index) for index in tangents),
        *(SizeAlone() for _ in sizes),
        *(NumberKept(given[str(value)]) for value in kept),
        *backward.inputs[len(examples) + len(sizes) + len(kept) :],
    ]
    assume_defined(backward.graph_module.graph)
    backward.graph_module.graph = with_sizes_in_place(backward.graph_module.graph)
    gradients = _separate_gradients(backward.graph_module.graph)
    gradients.extend([None] * (len(forward.inputs) - len(gradients)))
    used = _drop_unused(backward.graph_module, sources)
    saved = [source for source in used if isinstance(source, (InputKept, ResultKept))]
    # What only its sizes were wanted of is not kept alive.
    needed = {source: position for position, source in enumerate(dict.fromkeys(saved))}
    count = sum(isinstance(found, ResultKept) for found in results)
    graph = backward.graph_module.graph
    of_placeholders = dict(zip(graph.find_nodes(op="placeholder"), used, strict=True))
    parts, saved_for = separate_parts(
        graph,
        {node: s.result for node, s in of_placeholders.items() if isinstance(s, Tangent)},
        {
            node: needed[s]
            for node, s in of_placeholders.items()
            if isinstance(s, (InputKept, ResultKept))
        },
    )
    if parts:  # what no gradient is made of goes with any
        parts = (parts[0] + tuple(set(tangents).difference(*parts)), *parts[1:])
    return forward, Backward(
        graph_module=backward.graph_module,
        results=results[len(joint.updated) :],
        differentiable=tuple(index in tangents for index in range(count)),
        updated=joint.updated,
        saved=tuple(needed),
        inputs=tuple(
            SavedTensor(needed[source]) if isinstance(source, (InputKept, ResultKept)) else source
            for source in used
        ),
        gradients=tuple(gradients),
        reached=_reached(graph, used, gradients),
        parts=parts,
        saved_for=saved_for,
    )


def _reached(
    graph: torch.fx.Graph, sources: Sequence[Any], gradients: Sequence[int | None]
) -> tuple[tuple[int, ...], ...]:
    """Return which results' gradients each gradient is made of."""
    found: dict[torch.fx.Node, frozenset[int]] = {}
    of_placeholders = iter(sources)
    for node in graph.nodes:
        source = next(of_placeholders) if node.op == "placeholder" else None
        own = [source.result] if isinstance(source, Tangent) else []
        found[node] = frozenset(own).union(*(found[operand] for operand in node.all_input_nodes))
    results: Any = graph.output_node().args[0]
    return tuple(
        () if position is None else tuple(sorted(found[results[position]]))
        for position in gradients
    )


def _arrange_results(
    forward: FunctionalGraph, joint: JointGraphs
) -> tuple[tuple[InputKept | ResultKept, ...], list[InputKept | ResultKept]]:
    """Let the forward graph return new values and results, then what is kept; each once, no inputs.

    Returns where new values and the user's results are, and what the backward graph takes.
    """
    user_count = len(joint.differentiable)
    graph = forward.graph_module.graph
    output = graph.output_node()
    outputs: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    places: dict[torch.fx.Node, InputKept | ResultKept] = {
        node: InputKept(index) for index, node in enumerate(placeholders)
    }
    others = {
        storage_of(node.meta["val"])
        for node in (*placeholders, *outputs[len(joint.updated) : user_count])
    }
    found: list[InputKept | ResultKept] = []
    results: list[torch.fx.Node] = []
    for index, node in enumerate(outputs):
        if not isinstance(node, torch.fx.Node):
            raise CannotSplitError("what the forward pass returns is no tensor")
        if node.target is aten.copy_.default:  # an input, which is written at the end
            node = node.args[0]
        if index < len(joint.updated):
            is_shared = storage_of(node.meta["val"]) in others or node in places
        else:
            is_shared = index < user_count and isinstance(places.get(node), ResultKept)
        if is_shared:
            with graph.inserting_before(output):  # one tensor for each, as in eager
                node = with_own_memory(node)
        if node not in places:
            places[node] = ResultKept(len(results))
            results.append(node)
        found.append(places[node])
    output.args = (tuple(results),)
    forward.graph_module.recompile()
    return tuple(found[:user_count]), found[user_count:]


def _values(
    forward: FunctionalGraph,
    saved: Sequence[InputKept | ResultKept],
    found: Sequence[InputKept | ResultKept],
    joint: JointGraphs,
) -> list[torch.Tensor]:
    """Return what the forward graph computes of what the backward graph takes."""
    graph = forward.graph_module.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    results: Any = graph.output_node().args[0]
    tangents = [place for place, wanted in zip(found, joint.differentiable, strict=True) if wanted]
    nodes = [
        placeholders[place.index] if isinstance(place, InputKept) else results[place.index]
        for place in (*saved, *tangents)
    ]
    return [node.meta["val"] for node in nodes]


def _separate_gradients(graph: torch.fx.Graph) -> list[int | None]:
    """Give every gradient memory of its own, and drop those that are None.

    Returns for each former output its new position. A gradient that shares memory with an incoming
    one, with a saved tensor or with another gradient would be changed with it.
    """
    output = graph.output_node()
    outputs: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    taken = {storage_of(node.meta["val"]) for node in graph.nodes if node.op == "placeholder"}
    results: list[torch.fx.Node] = []
    positions: list[int | None] = []
    for node in outputs:
        if node is None:
            positions.append(None)
            continue
        storage = storage_of(node.meta["val"])
        if storage in taken:
            with graph.inserting_before(output):
                clone = graph.call_function(aten.clone.default, (node,))
            with node.meta["val"].fake_mode:
                clone.meta["val"] = aten.clone.default(node.meta["val"])
            node = clone
        taken.add(storage)
        positions.append(len(results))
        results.append(node)
    output.args = (tuple(results),)
    return positions


def _untold_sizes(
    backward: torch.fx.GraphModule,
    forward: torch.fx.GraphModule,
    told: Sequence[Any],
    mode: FakeTensorMode,
) -> list[torch.Tensor]:
    """Return a fake `size_tensor` for each size of the forward's inputs that is wanted of others.

    Of `x[:, :-1]` with n columns the backward is given tensors with n - 1.
    """
    wanted = used_symbols(backward.graph).difference(*map(told_symbols, told))
    values = placeholder_values(forward)
    sizes: list[Any] = [x for v in values if isinstance(v, torch.Tensor) for x in v.shape]
    found = {size.node.expr: size for size in sizes if is_number(size)}
    with mode:
        return [size_tensor(size) for symbol, size in found.items() if symbol in wanted]


def _drop_unused(module: torch.fx.GraphModule, sources: Sequence[Any]) -> tuple[Any, ...]:
    """Drop placeholders that nothing uses, and their sources.

    A size alone is used where no other placeholder in use has it.
    """
    pairs = [*zip(module.graph.find_nodes(op="placeholder"), sources, strict=True)]
    # Numbers stand among the arguments themselves, where no user shows.
    dropped = {n for n, source in pairs if not n.users and not isinstance(source, NumberKept)}
    told = [told_symbols(node.meta["val"]) for node, _ in pairs if node not in dropped]
    untold = used_symbols(module.graph) - set[Any]().union(*told)
    for node, source in pairs:
        if isinstance(source, SizeAlone) and told_symbols(node.meta["val"]) & untold:
            dropped.remove(node)
    for node in dropped:
        module.graph.erase_node(node)
    module.recompile()
    return tuple(source for node, source in pairs if node not in dropped)
