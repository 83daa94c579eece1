# SPDX-License-Identifier: Apache-2.0
"""From a recording to a functional program, with its backward pass where results need one."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.failures import translate_failure
from hostjit.capturing.functional.trace import FunctionalGraph, trace_functional
from hostjit.capturing.gradients.backward import Backward, trace_halves
from hostjit.capturing.gradients.joint import CannotSplitError, split, writes_input
from hostjit.capturing.graph_module import graph_module
from hostjit.capturing.overlap import refuse_overlap
from hostjit.capturing.program import BoundTensor, InputBinding
from hostjit.capturing.results.kept_results import over_kept_results
from hostjit.capturing.results.outputs import (
    GraphOutput,
    Output,
    TupleOutput,
)
from hostjit.capturing.results.unused import drop_unused
from hostjit.capturing.traced_graph import remove_dead_nodes, storage_of
from hostjit.capturing.tracing import with_second_derivatives
from hostjit.recording.graph.inputs import Constant, Source, bind
from hostjit.recording.graph.recorder import Read, Recorder
from hostjit.recording.programs.results import Results
from hostjit.recording.running.generator_states import KEPT

__all__ = ["RecordedProgram", "check_written_memory", "guard_graph", "make_program"]

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class RecordedProgram:
    """A functional graph of a recording.

    Attributes:
        graph_module: as that of a CapturedProgram.
        inputs: one for each placeholder.
        mutated: positions in `inputs` that the graph writes.
        output: the tuple of the result, then owner and value of each gradient assigned.
        backward: how gradients are computed, if results need them.
    """

    graph_module: torch.fx.GraphModule
    inputs: tuple[InputBinding, ...]
    mutated: tuple[int, ...]
    output: TupleOutput
    backward: Backward | None


def make_program(recorder: Recorder, results: Results, wants_gradients: bool) -> RecordedProgram:
    """Make a recording a functional graph.

    `wants_gradients`: results are to be differentiable. Raises CaptureError.
    """
    output: list[Output] = [results.output]
    for assignment in results.assignments:
        output += [assignment.owner, assignment.value]
    sources, inputs = recorder.sources, [source.tensor for source in recorder.sources]
    graph = _copy(recorder.graph, results.nodes, detach=wants_gradients)
    module = graph_module(torch.nn.Module(), graph)
    if torch.is_grad_enabled() and not results.in_inference_mode:
        _check_shared(results)
    if wants_gradients:
        return _with_backward(module, inputs, sources, results, TupleOutput(tuple(output)))
    functional = _trace(module, inputs)
    bindings = _bind(sources, functional)
    needed = drop_unused(
        functional.graph_module, bindings, functional.mutated, TupleOutput(tuple(output))
    )
    assert isinstance(needed.output_spec, TupleOutput)
    return RecordedProgram(
        functional.graph_module, needed.inputs, needed.mutated, needed.output_spec, None
    )


def check_written_memory(program: RecordedProgram) -> None:
    """Refuse writes of elements that two inputs have which every call brings along."""
    tensors = [x.tensor if isinstance(x, BoundTensor) else None for x in program.inputs]
    try:
        refuse_overlap(tensors, program.mutated)
    except CaptureError as error:
        raise CaptureError(
            CaptureFailure.OVERLAPPING_INPUTS,
            "two tensors that it reaches share memory, and it writes to one of them",
            hint="reach one of them only, and make the other a view of it in the call",
        ) from error


def guard_graph(
    recorder: Recorder, reads: Sequence[Read]
) -> tuple[torch.fx.GraphModule, tuple[InputBinding, ...]]:
    """Return the graph that computes what was read, without any effect, and its inputs."""
    inputs = [source.tensor for source in recorder.sources]
    graph = _copy(recorder.graph, [read.node for read in reads], until=reads[-1].node)
    functional = _trace(graph_module(torch.nn.Module(), graph), inputs)
    traced = functional.graph_module.graph
    for node in reversed(list(traced.nodes)):
        if node.target is aten.copy_.default and node.args[0].op == "placeholder":
            node.replace_all_uses_with(node.args[1])
            traced.erase_node(node)
    remove_dead_nodes(traced)
    count = len(reads)
    spec = TupleOutput(tuple(map(GraphOutput, range(count))))
    results = list(traced.output_node().args[0])  # type: ignore[arg-type]
    for index, node in enumerate(results):
        if node.op == "placeholder":
            with traced.inserting_before(traced.output_node()):
                clone = traced.call_function(aten.clone.default, (node,))
            clone.meta.update(node.meta)
            results[index] = clone
    traced.output_node().args = (tuple(results),)
    needed = drop_unused(functional.graph_module, _bind(recorder.sources, functional), (), spec)
    return functional.graph_module, needed.inputs


def _bind(sources: Sequence[Source], functional: FunctionalGraph) -> tuple[InputBinding, ...]:
    constants = [Constant(tensor) for tensor in functional.inputs[len(sources) :]]
    return tuple(bind(source) for source in (*sources, *constants))


def _trace(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> FunctionalGraph:
    try:
        with torch._C._DisableAutocast(), _modes() as make_mode:
            return trace_functional(module, inputs, make_mode())
    except Exception as error:
        raise translate_failure(error) from error


@contextlib.contextmanager
def _modes() -> Iterator[Callable[[], FakeTensorMode]]:
    """Make modes of fake tensors that forget the tensors which they stand for.

    `torch.utils.swap_tensors` refuses tensors that have weak references.
    """
    modes: list[FakeTensorMode] = []

    def make_mode() -> FakeTensorMode:
        modes.append(FakeTensorMode())
        return modes[-1]

    try:
        yield make_mode
    finally:
        for mode in modes:
            mode.fake_tensor_converter.meta_converter.describer.lookup_tensor.data.clear()


def _copy(
    graph: torch.fx.Graph,
    results: Sequence[torch.fx.Node],
    *,
    until: torch.fx.Node | None = None,
    detach: bool = False,
) -> torch.fx.Graph:
    """Return a copy with an output, up to a node.

    `detach`: for gradients, with what had none detached, and with results of what sets generators.
    """
    made = torch.fx.Graph()
    nodes: dict[torch.fx.Node, torch.fx.Node] = {}
    passed = False
    for node in graph.nodes:
        if passed and node.op != "placeholder":
            continue
        copy = made.node_copy(node, lambda old: nodes[old])
        if detach:
            copy.target = KEPT.get(node.target, node.target)
        nodes[node] = copy
        if detach and node.meta.get("without_gradient") and not _writes(node):
            nodes[node] = _detached(made, copy, node)
        passed = passed or node is until
    made.output(tuple(nodes[node] for node in results))
    return made


def _writes(node: torch.fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _detached(graph: torch.fx.Graph, copy: torch.fx.Node, node: torch.fx.Node) -> torch.fx.Node:
    if any(user.target is not None and "getitem" in str(user.target) for user in node.users):
        return copy  # of several tensors: each item is detached
    detached = graph.call_function(aten.detach.default, (copy,))
    detached.meta.update(node.meta)
    return detached


def _check_shared(results: Results) -> None:
    """Refuse results that share memory: autograd knows only of views that it made itself."""
    seen: set[int | None] = set()
    inputs = {storage_of(source.tensor) for source in results._recorder.sources}
    for tensor in results.tensors[: results.user_count]:
        storage = storage_of(tensor)
        if storage in seen and storage not in inputs:
            raise CaptureError(
                CaptureFailure.NEEDS_AUTOGRAD,
                "results share memory, and gradients may be wanted of them",
                hint="call it under torch.no_grad() or torch.inference_mode()",
            )
        seen.add(storage)


def _with_backward(
    module: torch.fx.GraphModule,
    inputs: list[Any],
    sources: Sequence[Source],
    results: Results,
    output: TupleOutput,
) -> RecordedProgram:
    try:
        with _modes() as make_mode:
            joint = split(module, inputs, make_mode())
            if joint.updated:
                raise writes_input()
            functional, backward = trace_halves(module, inputs, joint, make_mode)
    except CannotSplitError as error:
        raise CaptureError(
            CaptureFailure.NEEDS_AUTOGRAD, f"gradients are wanted of its results, and {error}"
        ) from error
    except Exception as error:
        raise translate_failure(error) from error
    expected = tuple(tensor.requires_grad for tensor in results.tensors)
    if tuple(joint.differentiable) != expected:
        raise CaptureError(
            CaptureFailure.NEEDS_AUTOGRAD, "its results need gradients in a way not recorded"
        )
    backward = with_second_derivatives(backward, functional, module, joint)
    bindings = _bind(sources, functional)

    spec = over_kept_results(output, backward, bindings)
    assert isinstance(spec, TupleOutput)
    return RecordedProgram(functional.graph_module, bindings, functional.mutated, spec, backward)
