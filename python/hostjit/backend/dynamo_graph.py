# SPDX-License-Identifier: Apache-2.0
"""Chooses how a graph of Dynamo's is compiled: as it is, or through AOTAutograd."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.exc import SkipFrame
from torch._guards import detect_fake_mode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from hostjit.backend.found_sizes import compile_in_parts, finds_sizes
from hostjit.backend.graph_compilation import MadeOfOutputs, compile_graph, flat_output
from hostjit.backend.lean_dynamo import leave_out_measurements
from hostjit.backend.list_inputs import has_lists, over_flat_inputs
from hostjit.backend.open_graph import compile_open_graph
from hostjit.capturing.contexts import eager_graph, find_setter, say_setter
from hostjit.capturing.control_flow.carried_ints import carry_ints_in_tensors
from hostjit.capturing.control_flow.choices_of_sizes import take_branches_of_sizes
from hostjit.capturing.dynamo.places import with_places_as_data
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.functional.written_types import check_written_types
from hostjit.capturing.gradients.needed import (
    marks_are_kept,
    marks_input_dirty,
    switches_gradients_for_writes,
)
from hostjit.capturing.graph_module import graph_module
from hostjit.capturing.inference_mode import (
    PARTLY_IN_INFERENCE_MODE,
    Inference,
    Modes,
    find_modes,
    in_inference_mode,
    take_out_inference_mode,
)
from hostjit.capturing.numbers.results import NumberResults
from hostjit.capturing.numbers.steps import Steps, sizes_of
from hostjit.capturing.results.shared_results import ReturnedBases, share_memory, shared_results
from hostjit.capturing.streams import STREAMS_ARE_EAGER, find_stream_use
from hostjit.capturing.traced_graph import placeholder_values, storage_of
from hostjit.compiling.options import Options

__all__ = ["compile_dynamo_graph"]

_graph_numbers = itertools.count()


def compile_dynamo_graph(
    module: torch.fx.GraphModule, inputs: Sequence[Any], options: Options, donates: bool = False
) -> Callable[..., Any]:
    """Return a callable that answers as `module` does, gradients included.

    `donates`: see `compile_graph`; the callable may have `call_boxed`.
    """
    leave_out_measurements()
    if has_lists(inputs):
        compile = functools.partial(compile_dynamo_graph, options=options, donates=True)
        return over_flat_inputs(module, inputs, compile)
    carried = None
    if not _may_record(inputs):
        carried = carry_ints_in_tensors(module, detect_fake_mode(placeholder_values(module)))
    if carried is None:
        return _compile_whole(module, inputs, options, donates)
    module, ints = carried
    return _returning_ints(_compile_whole(module, inputs, options, donates), ints)


def _may_record(inputs: Sequence[Any]) -> bool:
    """Tell whether a result may need a gradient."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _returning_ints(run: Callable[..., Any], ints: Sequence[int]) -> Callable[..., Any]:
    """Return what makes ints of some results, which are tensors without dims."""

    def call(*given: Any) -> Any:
        results = list(run(*given))
        for index in ints:
            results[index] = int(results[index])
        return tuple(results)

    return call if ints else run


def _compile_whole(
    module: torch.fx.GraphModule, inputs: Sequence[Any], options: Options, donates: bool
) -> Callable[..., Any]:
    """Compile a graph that takes no lists, and whose loops carry tensors where they can."""
    name = f"graph_{next(_graph_numbers)}"
    obstacle = _obstacle(module)
    if obstacle:
        _warn(name, obstacle)
        is_lost = marks_input_dirty(module.graph) and not marks_are_kept()
        if is_lost or find_stream_use(module.graph) is not None:
            raise SkipFrame(obstacle)  # what Dynamo's graph does is not what the function does
        return eager_graph(module)
    if not with_places_as_data(module):
        if not options.fallback:
            raise CaptureError(
                CaptureFailure.DATA_DEPENDENT, "a view of the place that a tensor tells is used"
            )
        return compile_in_parts(module, name, options)
    if options.fallback and finds_sizes(module) and not _has_subclasses(inputs):
        return compile_in_parts(module, name, options)
    take_branches_of_sizes(module)
    modes = find_modes(module)
    if modes.inference is Inference.AS_CALLED:
        take_out_inference_mode(module)
        return _compile(module, inputs, name, options, modes, donates)
    if modes.inference is Inference.PARTLY or modes.changes_grad_mode:
        return _partly_in_inference_mode(module, inputs, name, options, modes)
    return _compile_in_inference_mode(module, inputs, name, options, modes)


def _compile(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    name: str,
    options: Options,
    modes: Modes,
    donates: bool = False,
) -> Callable[..., Any]:
    """Compile a graph with no inference mode in it any more."""
    if _needs_aot_autograd(module, inputs, modes):
        try:
            check_written_types(module.graph)
        except CaptureError:
            return eager_graph(module)  # which raises; AOTAutograd would cast
        from hostjit.backend.training import compile_with_backward

        return compile_with_backward(module, inputs, name, options)
    if _records_gradients(module.graph) and shared_results(module.graph):
        return _compile_views(module, name, options)
    return compile_open_graph(module, name, options, donates=donates) or compile_graph(
        module, name, options, donates=donates
    )


def _compile_views(module: torch.fx.GraphModule, name: str, options: Options) -> Callable[..., Any]:
    """Compile a graph whose results share memory and need no gradients, but may be given some."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    whole = graph_module(module, graph)
    tensors = [v for v in placeholder_values(module) if isinstance(v, torch.Tensor)]
    steps = Steps({}, sizes_of(enumerate(tensors)), {})
    try:
        bases = ReturnedBases(module, flat_output(module.graph), steps)
    except CaptureError as error:  # of a view that depends on another number
        _warn(name, error.what)
        return eager_graph(whole)
    if not bases.changed or shared_results(module.graph):
        _warn(name, share_memory(None).what)
        return eager_graph(whole)
    numbers = NumberResults().with_more(steps, bases.operands)
    made = MadeOfOutputs(bases.output, numbers, whole)
    compiled = compile_open_graph(module, name, options, made)
    return compiled or compile_graph(module, name, options, made)


def _compile_in_inference_mode(
    module: torch.fx.GraphModule, inputs: Sequence[Any], name: str, options: Options, modes: Modes
) -> Callable[..., Any]:
    take_out_inference_mode(module, and_grad_mode=True)
    with torch.no_grad():
        return in_inference_mode(_compile(module, inputs, name, options, modes))


def _partly_in_inference_mode(
    module: torch.fx.GraphModule, inputs: Sequence[Any], name: str, options: Options, modes: Modes
) -> Callable[..., Any]:
    """Return what runs a graph in several modes eagerly.

    A caller may be in inference mode, which Dynamo hides from backends. If the graph does not leave
    it, all of the graph is.
    """
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    eager = eager_graph(graph_module(module, graph))
    compiled = None
    if not modes.leaves_inference_mode:
        compiled = _compile_in_inference_mode(module, inputs, name, options, modes)
    said = False

    def call(*given: Any) -> Any:
        nonlocal said
        if compiled is not None and torch.is_inference_mode_enabled():
            return compiled(*given)
        if not said:
            said = True
            _warn(name, PARTLY_IN_INFERENCE_MODE)
        return eager(*given)

    return call


def _warn(name: str, reason: str) -> None:
    warnings.warn(f"hostjit: '{name}' runs eagerly: {reason}", stacklevel=3)


def _obstacle(module: torch.fx.GraphModule) -> str | None:
    """Return why eager alone can run a graph, or None."""
    if any(_is_lazy(node) for node in module.graph.output_node().all_input_nodes):
        return "a result is conjugated or negated lazily; return its resolve_conj().resolve_neg()"
    if marks_input_dirty(module.graph):
        return "an autograd.Function changes an input in place; have it return a new tensor"
    if switches_gradients_for_writes(module.graph):
        return "an input is written where gradients are switched on; write it under torch.no_grad()"
    if find_stream_use(module.graph) is not None:
        return STREAMS_ARE_EAGER
    setter = find_setter(module)
    return None if setter is None else say_setter(setter)


def _needs_aot_autograd(module: torch.fx.GraphModule, inputs: Sequence[Any], modes: Modes) -> bool:
    """Tell whether the graph needs a gradient, or something else that AOTAutograd takes apart.

    That is tensors made of other tensors (subclasses), numbers that Dynamo passes as tensors, and
    recording of gradients that is left switched.
    """
    if modes.changes_grad_mode:
        return True
    nodes = module.graph.nodes
    values = [value for value in inputs if isinstance(value, torch.Tensor)]
    if _has_subclasses(values):
        return True
    if any(_is_number_in_a_tensor(node) for node in nodes):
        return True
    if _records_gradients(module.graph):
        if any(tensor.requires_grad for tensor in (*values, *module.parameters())):
            return True
        if any(_requires_grad(node) for node in nodes):
            return True
        return _has_views(module.graph) and not shared_results(module.graph)
    results = module.graph.output_node().all_input_nodes
    return any(_requires_grad(node) for node in results)


def _has_subclasses(inputs: Sequence[Any]) -> bool:
    return any(is_traceable_wrapper_subclass(value) for value in inputs)


def _is_lazy(node: torch.fx.Node) -> bool:
    """Tell whether a result is a tensor whose conjugation or sign is a bit, not in its memory."""
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) and (value.is_conj() or value.is_neg())


def _requires_grad(node: torch.fx.Node) -> bool:
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) and value.requires_grad and node.op != "placeholder"


def _has_views(graph: torch.fx.Graph) -> bool:
    """Tell whether a result shares memory with another one or with an input.

    One may later be given a gradient in place. Autograd then follows it to the others, which it
    knows only of views that it made itself.
    """
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    nodes = {*placeholders, *graph.output_node().all_input_nodes}
    storages = [storage_of(node.meta.get("example_value")) for node in nodes]
    found = [storage for storage in storages if storage is not None]
    return len(found) != len(set(found))


def _is_number_in_a_tensor(node: torch.fx.Node) -> bool:
    return node.op == "placeholder" and bool(
        getattr(node.meta.get("grapharg"), "pass_arg_as_tensor", False)
    )


def _records_gradients(graph: torch.fx.Graph) -> bool:
    return torch.is_grad_enabled() or any(_sets_grad_mode(node) for node in graph.nodes)


def _sets_grad_mode(node: torch.fx.Node) -> bool:
    return node.target is torch._C._set_grad_enabled
