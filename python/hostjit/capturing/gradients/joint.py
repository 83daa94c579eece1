# SPDX-License-Identifier: Apache-2.0
"""A forward and a backward graph of one Dynamo graph, by AOTAutograd and its partitioner.

AOTAutograd is used for its traces alone. Of what it would do around them at run time, writes of
inputs that autograd must see are the call's to do; the rest (views of inputs, tensors made of
others) is not taken over: a graph that needs it is refused here, and composed with AOTAutograd's
code in Python instead.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._functorch import config, partitioners
from torch._functorch._aot_autograd import graph_compile
from torch._functorch._aot_autograd.schemas import OutputType
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode

from hostjit.capturing.control_flow.floats_in_regions import regions_take_floats
from hostjit.capturing.dynamic_dims import is_number
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.functional.fake_inputs import fake_inputs
from hostjit.capturing.functional.graph_writes import (
    refuse_overlapping_writes,
    refuse_writes_through_unfold,
)
from hostjit.capturing.functional.hidden_writes import (
    batch_norms_hide_writes,
    hide_writes,
    mark_hidden,
)
from hostjit.capturing.functional.result_types import correct_result_types
from hostjit.capturing.functional.written_types import check_written_types
from hostjit.capturing.gradients.checkpoints import refuse_writing_checkpoints
from hostjit.capturing.gradients.common_subexpressions import merge_common_subexpressions
from hostjit.capturing.gradients.effect_tokens import orders_other_effects, without_effect_tokens
from hostjit.capturing.gradients.gradient_composites import composites_with_gradients
from hostjit.capturing.gradients.kept_values import keep_what_was
from hostjit.capturing.gradients.needed import saved_tensor_hooks_set_aside
from hostjit.replacements import replaced_attribute

__all__ = [
    "CannotSplitError",
    "JointGraphs",
    "partition",
    "split",
    "tracing_context",
    "writes_input",
]

# The result is new memory, or looks like a view of something that nobody else sees.
_NEW = frozenset({OutputType.non_alias, OutputType.unsafe_view_alias})


class CannotSplitError(Exception):
    """The graph needs what AOTAutograd does around its graphs; the message says what."""


@dataclasses.dataclass(frozen=True)
class JointGraphs:
    """The two halves of a graph.

    Attributes:
        forward: takes the inputs of the graph; returns its results, then the tensors that
            `backward` needs; ahead of all, the new values of `updated`. Other writes of inputs are
            trailing `copy_` operators.
        backward: takes open sizes that it needs, then what is saved, then one gradient for each
            differentiable result; returns one gradient for each input, or None.
        differentiable: per new value and result of the graph.
        updated: the inputs that are written and that gradients flow through.
    """

    forward: torch.fx.GraphModule
    backward: torch.fx.GraphModule
    differentiable: tuple[bool, ...]
    updated: tuple[int, ...]


def writes_input() -> CaptureError:
    """Return the error for a change of an input that only eager can tell autograd of."""
    return CaptureError(
        CaptureFailure.NEEDS_AUTOGRAD,
        "the call changes an input in place, and gradients flow through the change",
        hint="compute a new tensor, and let the caller assign it",
    )


def split(
    module: torch.fx.GraphModule, inputs: Sequence[Any], fake_mode: FakeTensorMode
) -> JointGraphs:
    """Trace a graph of Dynamo's with its backward, and cut it in two.

    Args:
        module: the graph.
        inputs: live tensors, which are not changed, and symbolic numbers.
        fake_mode: to trace in; Dynamo's where sizes are open.

    Raises CannotSplitError, or CaptureError when only eager will do.
    """
    refuse_writes_through_unfold(module.graph)
    refuse_overlapping_writes(module.graph)
    refuse_writing_checkpoints(module)
    check_written_types(module.graph)
    hide_writes(module, with_gradients=True)
    recorder = _Recorder()
    pairs = zip(fake_inputs(module, fake_mode, inputs), inputs, strict=True)
    examples = [
        fake if is_number(fake) else fake.requires_grad_(tensor.requires_grad)
        for fake, tensor in pairs
    ]
    with (
        tracing_context(fake_mode),
        composites_with_gradients(),
        batch_norms_hide_writes(),
        regions_take_floats(),
        _floats_stay_numbers(),
        config.patch(unlift_effect_tokens=True),
    ):
        aot_module_simplified(
            module,
            examples,
            fw_compiler=recorder.forward_compiler,
            bw_compiler=recorder.backward_compiler,
            inference_compiler=recorder.inference_compiler,
            partition_fn=recorder.partition,
            keep_inference_input_mutations=True,
        )
    if recorder.forward is None or recorder.backward is None:
        raise CannotSplitError("no result needs a gradient")
    metadata = recorder.metadata
    updated = tuple(metadata.mutated_inp_runtime_indices)
    reason = _what_is_around(metadata, recorder.forward, recorder.backward, len(inputs))
    for index in updated:
        # A leaf may be written where autograd does not see it, through a detached view.
        hidden = inputs[index].is_leaf and inputs[index].requires_grad
        if reason or hidden or metadata.input_info[index].mutates_metadata:
            raise writes_input()
    if reason:
        raise CannotSplitError(reason)
    forward = without_effect_tokens(recorder.forward)
    backward = without_effect_tokens(recorder.backward)
    inputs_written = enumerate(metadata.input_info)
    mark_hidden(
        forward.graph, [i for i, info in inputs_written if info.mutations_hidden_from_autograd]
    )
    _return_inputs_themselves(forward, metadata)
    _return_tensors_only(forward)
    differentiable = (
        *(True for _ in updated),
        *(info.output_type in _NEW and _has_gradient(info) for info in metadata.output_info),
    )
    return JointGraphs(forward, backward, differentiable, updated)


def partition(joint: torch.fx.GraphModule, inputs: Any, **arguments: Any) -> Any:
    """AOTAutograd's partitioner, for graphs whose nodes have the types of their operators."""
    correct_result_types(joint.graph)
    merge_common_subexpressions(joint.graph)
    _draw_once(joint.graph)
    unused = _unused_draws(joint.graph)
    choose = partitioners.choose_saved_values_set

    def choose_more(graph: torch.fx.Graph, *args: Any, **kwargs: Any) -> list[Any]:
        # Floats are never chosen, because AOTAutograd would have put them into tensors. Neither is
        # what nothing uses, and then the forward graph does not draw it.
        placeholders = graph.find_nodes(op="placeholder")
        floats = [n for n in placeholders if isinstance(n.meta.get("val"), torch.SymFloat)]
        chosen = dict.fromkeys((*choose(graph, *args, **kwargs), *floats, *unused))
        return list(chosen)

    with (
        config.patch(cse=False),
        replaced_attribute(partitioners, "choose_saved_values_set", choose_more),
    ):
        forward, backward = min_cut_rematerialization_partition(joint, inputs, **arguments)
    keep_what_was(forward, arguments["num_fwd_outputs"])
    return forward, backward


def _draw_once(graph: torch.fx.Graph) -> None:
    # What a checkpoint computes again may have drawn random numbers: the backward pass takes those,
    # and has no need for the state of the generator. The partitioner computes no draw again, unless
    # told to.
    for node in filter(_draws, graph.nodes):
        parts = [user for user in node.users if user.target is operator.getitem]
        for drawn in (node, *parts):
            drawn.meta.pop("recompute", None)


def _draws(node: torch.fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _unused_draws(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """Return random tensors that no result and no gradient is made of."""
    used: set[torch.fx.Node] = {graph.output_node()}
    found: list[torch.fx.Node] = []
    for node in reversed(graph.nodes):
        if node in used:
            used.update(node.all_input_nodes)
        elif _draws(node):
            found.append(_one_tensor(node))
    return found


def _one_tensor(drawn: torch.fx.Node) -> torch.fx.Node:
    """Return the first tensor that an operator gives."""
    values = drawn.meta["val"]
    if isinstance(values, torch.Tensor):
        return drawn
    with drawn.graph.inserting_after(drawn):
        first = drawn.graph.call_function(operator.getitem, (drawn, 0))
    first.meta.update(drawn.meta, val=values[0])
    return first


@contextlib.contextmanager
def tracing_context(fake_mode: FakeTensorMode) -> Iterator[None]:
    """Provide what AOTAutograd looks for around a graph."""
    with saved_tensor_hooks_set_aside(), tracing(TracingContext(fake_mode)):
        yield


def _floats_stay_numbers() -> contextlib.AbstractContextManager[Any]:
    """Keep AOTAutograd from computing with open floats in tensors, and knowing some of them."""
    return replaced_attribute(
        graph_compile, "_apply_tensorify_python_scalars", lambda *_, **__: None
    )


class _Recorder:
    """Stands for the compilers, which AOTAutograd calls with the graphs."""

    def __init__(self) -> None:
        self.forward: torch.fx.GraphModule | None = None
        self.backward: torch.fx.GraphModule | None = None
        self.metadata: Any = None

    def partition(self, joint: torch.fx.GraphModule, inputs: Any, **arguments: Any) -> Any:
        forward, backward = partition(joint, inputs, **arguments)
        self.backward = backward
        return forward, backward

    def forward_compiler(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        self.forward = gm
        context = TracingContext.try_get()
        assert context is not None
        self.metadata = context.fw_metadata
        return _never_run

    def inference_compiler(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        return _never_run

    def backward_compiler(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        return _never_run


def _never_run(arguments: list[Any]) -> list[Any]:
    raise AssertionError("a graph that was only traced was called")


_never_run._boxed_call = True  # type: ignore[attr-defined]


def _has_gradient(info: Any) -> bool:
    return bool(getattr(info, "requires_grad_for_backward", info.requires_grad))


def _what_is_around(
    metadata: Any, forward: torch.fx.GraphModule, backward: torch.fx.GraphModule, input_count: int
) -> str:
    """Say what AOTAutograd would do around the graphs at run time; "" for nothing."""
    if any(type(plain).__name__ != "PlainTensorMeta" for plain in metadata.subclass_inp_meta):
        return "an input is a tensor made of others"
    if metadata.num_intermediate_bases:
        return "results share memory"
    for info in metadata.output_info:
        if not issubclass(info.raw_type, torch.Tensor):
            return "a result is no tensor"
        if info.output_type not in _NEW and info.output_type is not OutputType.is_input:
            return "a result is a view of an input"
    if metadata.grad_enabled_mutation is not None:
        return "the call switches gradients on or off"
    if orders_other_effects(forward) or orders_other_effects(backward):
        return "what is no operator is ordered by tokens"
    if any(getattr(metadata, name, 0) for name in _COUNTS):
        return "more than tensors is saved for the backward pass"
    if metadata.is_rng_op_functionalized or getattr(
        metadata, "indices_of_inputs_that_requires_grad_with_mutations_in_bw", ()
    ):
        return "the backward pass changes state"
    updates = len(metadata.mutated_inp_runtime_indices)
    tangents = updates + sum(
        info.output_type in _NEW and _has_gradient(info) for info in metadata.output_info
    )
    results: Any = forward.graph.output_node().args[0]
    saved = len(results) - len(metadata.output_info) - updates
    if _placeholder_count(forward) != input_count:
        return "the graph takes other inputs"
    if _placeholder_count(backward) != saved + tangents:
        return "the backward pass takes other inputs"
    return ""


_COUNTS = (
    "num_tensors_saved_with_no_vc_check",
    "num_opaque_objects_saved_for_bw",
    "num_graphsafe_rng_states",
)


def _return_inputs_themselves(forward: torch.fx.GraphModule, metadata: Any) -> None:
    """Let a result that is an input be that, where it was what the graph computes of it."""
    output = forward.graph.output_node()
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    placeholders = forward.graph.find_nodes(op="placeholder")
    first = len(metadata.mutated_inp_runtime_indices)
    for position, info in enumerate(metadata.output_info, first):
        if info.output_type is OutputType.is_input:
            results[position] = placeholders[info.base_idx]
    output.args = (tuple(results),)


def _return_tensors_only(forward: torch.fx.GraphModule) -> None:
    """Leave out the sizes that the backward graph takes: they are those of the call."""
    output = forward.graph.output_node()
    results: Any = output.args[0]
    output.args = (tuple(node for node in results if not is_number(node.meta.get("val"))),)
    forward.recompile()


def _placeholder_count(module: torch.fx.GraphModule) -> int:
    return sum(node.op == "placeholder" for node in module.graph.nodes)
