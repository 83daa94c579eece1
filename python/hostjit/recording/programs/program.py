# SPDX-License-Identifier: Apache-2.0
"""From a recording to a functional program, with its backward pass where results need one."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from hostjit.bytecode.loops import PassVariables
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.failures import translate_failure
from hostjit.capturing.functional.recorded_nodes import Made
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
from hostjit.capturing.tracing import draws, with_second_derivatives
from hostjit.lowering.item_rules import gives_number
from hostjit.recording.graph.inputs import Constant, Source, bind
from hostjit.recording.graph.places import put_places
from hostjit.recording.graph.recorder import Recorder
from hostjit.recording.programs.carried import (
    CannotCarryError,
    OtherKindError,
    carried,
    changed_leaves,
)
from hostjit.recording.programs.handed_on import hand_on, may_hand_on
from hostjit.recording.programs.may_repeat import may_repeat
from hostjit.recording.programs.repeated_pass import (
    RepeatedPass,
    leads_to_next,
    repeat,
)
from hostjit.recording.programs.results import Results
from hostjit.recording.programs.ways import Way, merged
from hostjit.recording.running.generator_states import KEPT

__all__ = ["ReadGraph", "RecordedProgram", "check_written_memory", "make_program"]

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class ReadGraph:
    """A graph without an effect, which computes values that were read.

    Attributes:
        graph_module: as that of a CapturedProgram; one result for each read, a number where that
            can be, then what is handed on to the program that answers the call.
        inputs: one for each placeholder.
        expected: the values that were read.
        where: the lines that read them, "file:line" each.
    """

    graph_module: torch.fx.GraphModule
    inputs: tuple[InputBinding, ...]
    expected: tuple[torch.Tensor, ...]
    where: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class RecordedProgram:
    """A functional graph of a recording.

    Attributes:
        graph_module: as that of a CapturedProgram.
        inputs: one for each placeholder.
        mutated: positions in `inputs` that the graph writes.
        output: the tuple of the result, then owner and value of each gradient assigned, then the
            values of attributes that were.
        backward: how gradients are computed, if results need them.
        reads: what computes the values that Python code has read, if it has.
        is_repeated: the graph runs a pass of a loop until it would lead elsewhere.
        is_single_pass: it runs one, which another follows.
        way: the way through a pass that it repeats, if it does.
        joined: which of the known ways that takes as well; None for none.
    """

    graph_module: torch.fx.GraphModule
    inputs: tuple[InputBinding, ...]
    mutated: tuple[int, ...]
    output: TupleOutput
    backward: Backward | None
    reads: ReadGraph | None = None
    is_repeated: bool = False
    is_single_pass: bool = False
    way: Way | None = None
    joined: int | None = None


def make_program(
    recorder: Recorder,
    results: Results,
    wants_gradients: bool,
    variables: PassVariables | None = None,
    args: Sequence[Any] = (),
    leaves: Sequence[torch.Tensor] = (),
    known: Sequence[Way] = (),
) -> RecordedProgram:
    """Make a recording a functional graph.

    Args:
        recorder: of the call.
        results: of the call.
        wants_gradients: results are to be differentiable.
        variables: the call is a pass of a loop with these.
        args: of the call.
        leaves: the tensors among these.
        known: other ways through such a pass.

    Raises CaptureError.
    """
    put_places(recorder, results.nodes)
    output: list[Output] = [results.output]
    for assignment in results.assignments:
        output += [assignment.owner, assignment.value]
    output += [found for store in results.stores for found in store.outputs]
    sources, inputs = recorder.sources, [source.tensor for source in recorder.sources]
    # Where no gradient is wanted, one trace is of the reads, too: that takes most of the time.
    leads_on = variables is not None and leads_to_next(results.output, variables)
    reads = [] if wants_gradients else [read.node for read in recorder.reads]
    graph, made = _copy(recorder, [*results.nodes, *reads], detach=wants_gradients)
    recorded = graph_module(torch.nn.Module(), graph)
    if torch.is_grad_enabled() and not results.in_inference_mode:
        _check_shared(results)
    if wants_gradients:
        differentiable = _with_backward(
            recorded, inputs, sources, results, TupleOutput(tuple(output))
        )
        reads_apart = _traced_reads(recorder) if recorder.reads else None
        return dataclasses.replace(differentiable, reads=reads_apart, is_single_pass=leads_on)
    functional = _trace(recorded, inputs, made)
    bindings = _bind(sources, functional)
    way = joined = repeated = None
    if variables is not None and leads_on and may_repeat(functional, recorder, results):
        way = Way.of(functional, recorder, results)
        try:
            repeated = repeat(way, recorder, variables, args)
        except OtherKindError:
            leads_on = False  # to a pass that may repeat
        for index, other in enumerate(known if repeated is not None else ()):
            both = _joined(other, way, recorder, variables, args, leaves)
            if both is not None:
                (way, repeated), joined = both, index
                functional = way.functional(functional)
                bindings = tuple(map(bind, way.sources))
                break
    read_graph = None
    handed_on: tuple[InputBinding, ...] = ()
    if way is not None and joined is not None:
        read_graph, _ = _take_reads(functional, bindings, way.expected, way.where)
    elif reads:
        hands_on = repeated is None and may_hand_on(recorder, functional.inputs)
        read_graph, handed_on = _take_reads(functional, bindings, *_read_by(recorder), hands_on)
    module = functional.graph_module
    if repeated is not None:
        module, output = repeated.graph_module, [repeated.output]
    bindings += handed_on
    needed = drop_unused(module, bindings, functional.mutated, TupleOutput(tuple(output)))
    assert isinstance(needed.output_spec, TupleOutput)
    return RecordedProgram(
        module,
        needed.inputs,
        needed.mutated,
        needed.output_spec,
        None,
        read_graph,
        is_repeated=repeated is not None,
        is_single_pass=leads_on and repeated is None,
        way=way if repeated is not None else None,
        joined=joined,
    )


def _joined(
    first: Way,
    second: Way,
    recorder: Recorder,
    variables: PassVariables,
    args: Sequence[Any],
    leaves: Sequence[torch.Tensor],
) -> tuple[Way, RepeatedPass] | None:
    """Return two ways as one, and the program of passes that take it; None where there is none."""
    try:
        changing: set[int] = set()
        for output in (*first.recorded, second.output):
            pairs = carried(variables, recorder, args, output)
            changing |= changed_leaves(recorder, pairs)
        way = merged(first, second, recorder, leaves, changing)
        made = repeat(way, recorder, variables, args)
    except CannotCarryError:
        return None
    return None if made is None else (way, made)


def _read_by(recorder: Recorder) -> tuple[tuple[torch.Tensor, ...], tuple[str, ...]]:
    """What the code has read, and where."""
    reads = recorder.reads
    return tuple(read.expected for read in reads), tuple(read.where for read in reads)


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


def _traced_reads(recorder: Recorder) -> ReadGraph:
    """Return what computes the values that were read, of the recorded graph up to the last one."""
    nodes = [read.node for read in recorder.reads]
    graph, made = _copy(recorder, nodes, until=nodes[-1])
    inputs = [source.tensor for source in recorder.sources]
    functional = _trace(graph_module(torch.nn.Module(), graph), inputs, made)
    reads, _ = _take_reads(functional, _bind(recorder.sources, functional), *_read_by(recorder))
    return reads


def _take_reads(
    functional: FunctionalGraph,
    bindings: tuple[InputBinding, ...],
    expected: tuple[torch.Tensor, ...],
    where: tuple[str, ...],
    hands_on: bool = False,
) -> tuple[ReadGraph, tuple[InputBinding, ...]]:
    """Take the last results of a graph into one of their own, which has no effect.

    What the graph writes to its inputs, it writes at its end. `hands_on`: what that one computes,
    the graph takes as further inputs, which are returned.
    """
    traced, count = functional.graph_module.graph, len(expected)
    results = list(traced.output_node().args[0])  # type: ignore[arg-type]
    traced.output_node().args = (tuple(results[:-count]),)
    reads = results[-count:]
    graph = torch.fx.Graph()
    nodes: dict[torch.fx.Node, torch.fx.Node] = {}
    missing = set(reads)
    for node in traced.nodes:
        if node.op == "placeholder" or missing:
            nodes[node] = graph.node_copy(node, lambda old: nodes[old])
        missing.discard(node)
    graph.output(tuple(_as_read(nodes[read]) for read in reads))
    remove_dead_nodes(graph)
    _remove_unread_draws(graph)
    handed_on = hand_on(traced, graph, nodes) if hands_on else ()
    remove_dead_nodes(traced)
    functional.graph_module.recompile()
    module = graph_module(functional.graph_module, graph)
    spec = TupleOutput(tuple(map(GraphOutput, range(count + len(handed_on)))))
    inputs = drop_unused(module, bindings, (), spec).inputs
    return ReadGraph(module, inputs, expected, where), handed_on


def _as_read(node: torch.fx.Node) -> torch.fx.Node:
    """Return what a graph returns of a tensor that is read."""
    if gives_number(node.meta["val"]):
        return node.graph.call_function(aten._local_scalar_dense.default, (node,))
    if node.op != "placeholder":
        return node
    copy = node.graph.call_function(aten.clone.default, (node,))
    copy.meta.update(node.meta)
    return copy


def _remove_unread_draws(graph: torch.fx.Graph) -> None:
    """Remove draws of random numbers where no value that is read follows from one.

    Each follows from those before it: where one is read, all stay.
    """
    found = [node for node in graph.nodes if draws(node)]
    if any(node.users for node in found):
        return
    for node in found:
        graph.erase_node(node)
    remove_dead_nodes(graph)


def _bind(sources: Sequence[Source], functional: FunctionalGraph) -> tuple[InputBinding, ...]:
    constants = [Constant(tensor) for tensor in functional.inputs[len(sources) :]]
    return tuple(bind(source) for source in (*sources, *constants))


def _trace(
    module: torch.fx.GraphModule, inputs: Sequence[Any], made: Mapping[torch.fx.Node, Made]
) -> FunctionalGraph:
    try:
        with torch._C._DisableAutocast(), _modes() as make_mode:
            return trace_functional(module, inputs, make_mode(), made=made)
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
    recorder: Recorder,
    results: Sequence[torch.fx.Node],
    *,
    until: torch.fx.Node | None = None,
    detach: bool = False,
) -> tuple[torch.fx.Graph, dict[torch.fx.Node, Made]]:
    """Return a copy of a recorded graph with an output, up to a node, and what its nodes returned.

    `detach`: for gradients, with what had none detached, and with results of what sets generators.
    """
    made = torch.fx.Graph()
    nodes: dict[torch.fx.Node, torch.fx.Node] = {}
    passed = False
    for node in recorder.graph.nodes:
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
    return made, {nodes[node]: x for node, x in recorder.made.items() if node in nodes}


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
