# SPDX-License-Identifier: Apache-2.0
"""From what Dynamo captured of a call to functional graphs: one, or a forward and a backward."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from hostjit.capturing.dynamic_dims import is_number, is_symbolic, refusal
from hostjit.capturing.dynamo.call import DynamoCapture, function_modes
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.failures import translate_failure
from hostjit.capturing.functional.trace import FunctionalGraph, trace_functional
from hostjit.capturing.gradients.backward import Backward, InputKept, ResultKept, trace_halves
from hostjit.capturing.gradients.joint import CannotSplitError, JointGraphs, split, writes_input
from hostjit.capturing.gradients.needed import (
    marks_input_dirty,
    needs_backward,
    switches_gradients_for_writes,
)
from hostjit.capturing.gradients.open_gradients import keep_numbers_open
from hostjit.capturing.gradients.second import (
    draws_as_before,
    may_be_copied,
    second_derivatives,
    written_behind,
)
from hostjit.capturing.graph_module import graph_module
from hostjit.capturing.numbers.graph_sizes import Place, find_sizes, over_tensors
from hostjit.capturing.numbers.lent_sizes import Lent
from hostjit.capturing.numbers.open_numbers import OpenValue
from hostjit.capturing.results.shared_results import same_objects, share_memory, shared_results
from hostjit.capturing.tensors import check_tensor
from hostjit.capturing.traced_graph import placeholder_values, source_location

__all__ = [
    "draws",
    "is_random",
    "is_training",
    "trace_for_inference",
    "trace_with_backward",
    "untraced",
]


def is_training(traced: DynamoCapture) -> bool:
    """Tell whether results of the call will be asked for gradients."""
    if traced.graph_module is None:
        return False
    return torch.is_grad_enabled() and needs_backward(traced.graph_module.graph, traced.inputs)


def trace_with_backward(
    traced: DynamoCapture, lent: Lent, numbers: Sequence[OpenValue]
) -> tuple[FunctionalGraph, Backward | None]:
    """Return the forward graph of a call and its backward, or Dynamo's graph and None.

    `lent`: see `lent_arguments`; `numbers`: what it is given besides. Raises CaptureError when it
    cannot be traced.
    """
    _check_results(traced, with_gradients=True)
    for value in traced.inputs:
        check_tensor(value, "an input")
    assert traced.graph_module is not None
    if marks_input_dirty(traced.graph_module.graph):
        raise writes_input()
    module, inputs = _over_tensors(traced, lent, numbers)
    is_open = any(map(is_symbolic, placeholder_values(module)))
    if numbers:
        keep_numbers_open(module)

    def make_mode() -> FakeTensorMode:
        mode: FakeTensorMode = traced.fake_mode if is_open else FakeTensorMode()
        return mode

    try:
        if same_objects(module.graph):
            # Of which Dynamo's bytecode takes two, and the program would make two.
            raise CannotSplitError("a result is there twice")
        with function_modes:
            joint = split(module, inputs, make_mode())
            graph, backward = trace_halves(module, inputs, joint, make_mode)
    except CannotSplitError as error:
        if is_open:
            raise refusal(f"gradients are wanted, and {error}") from error
        return FunctionalGraph(module, list(inputs), len(inputs), ()), None
    except Exception as error:
        if not isinstance(error, CaptureError):
            _blame_higher_order(module, error)
        raise translate_failure(error) from error
    return graph, with_second_derivatives(backward, graph, module, joint)


def with_second_derivatives(
    backward: Backward, graph: FunctionalGraph, module: torch.fx.GraphModule, joint: JointGraphs
) -> Backward:
    """Add what computes gradients that can be differentiated, where the call may run again."""
    functional, written = graph.graph_module.graph, graph.mutated
    results = {index for index, has_gradient in enumerate(backward.differentiable) if has_gradient}
    results.update(kept.index for kept in backward.saved if isinstance(kept, ResultKept))
    inputs = {kept.index for kept in backward.saved if isinstance(kept, InputKept)}
    behind = written_behind(functional, written)
    copied = sorted(frozenset().union(*(behind[index] for index in results)))
    are_copied = may_be_copied([graph.inputs[index] for index in copied])
    is_repeatable = are_copied and inputs.isdisjoint(written)
    if joint.updated or not is_repeatable or not draws_as_before(functional):
        return backward
    wanted = [index for index, kept in enumerate(joint.differentiable) if kept]
    again = second_derivatives(module, wanted, written)
    draws = is_random(functional)
    unread = tuple(index for index in written if index not in copied)
    return dataclasses.replace(
        backward, again=again, unread=unread, copied=tuple(copied), draws=draws
    )


def untraced(traced: DynamoCapture, lent: Lent, numbers: Collection[str]) -> FunctionalGraph:
    """Return Dynamo's graph of a call that leaves recording of gradients switched.

    AOTAutograd's code around its graphs does that, too. Raises CaptureError where sizes are open.
    """
    module = traced.graph_module
    assert module is not None
    if lent or numbers or any(map(is_symbolic, placeholder_values(module))):
        raise refusal("the call switches gradients on or off")
    for value in traced.inputs:
        check_tensor(value, "an input")
    return FunctionalGraph(module, list(traced.inputs), len(traced.inputs), ())


def trace_for_inference(
    traced: DynamoCapture,
    lent: Lent,
    numbers: Sequence[OpenValue],
    in_inference_mode: bool = False,
) -> FunctionalGraph:
    """Return the graph of a call whose results need no gradient; see `trace_functional`.

    Args:
        traced: the call.
        lent: see `lent_arguments`.
        numbers: what it is given besides.
        in_inference_mode: it will be run so, whatever the mode of the caller.

    Raises CaptureError when it cannot be traced, or is not for inference.
    """
    with torch.no_grad() if in_inference_mode else contextlib.nullcontext():
        _check_results(traced, with_gradients=False)
    if traced.graph_module is None:
        empty = torch.fx.Graph()
        empty.output(())
        return FunctionalGraph(graph_module({}, empty), [], 0, ())
    module, inputs = _over_tensors(traced, lent, numbers)
    try:
        with function_modes:
            return trace_functional(module, inputs, traced.fake_mode, checks_offsets=True)
    except Exception as error:
        if not isinstance(error, CaptureError):
            _blame_higher_order(module, error)
        raise translate_failure(error) from error


def _over_tensors(
    traced: DynamoCapture, lent: Lent, numbers: Sequence[OpenValue] = ()
) -> tuple[torch.fx.GraphModule, list[Any]]:
    """Return Dynamo's graph with sizes read off of its tensors and those lent, and all it takes."""
    module = traced.graph_module
    assert module is not None
    values = placeholder_values(module)
    fakes = [fake for _, fake in lent]
    places: dict[int, Place] = {}
    names = set(map(str, numbers))
    for number, place in find_sizes(module, fakes).items():
        if place is not None:
            places[number] = place
        elif str(values[number]) not in names:
            raise refusal(f"{values[number]} is not the size of a dim of an argument")
    inputs = [*traced.inputs, *(tensor for tensor, _ in lent), *numbers]
    is_open = lent or numbers or any(map(is_number, values))
    return (over_tensors(module, places, fakes, numbers) if is_open else module), inputs


def is_random(graph: torch.fx.Graph) -> bool:
    """Tell whether a graph draws random numbers."""
    return any(map(draws, graph.nodes))


def draws(node: torch.fx.Node) -> bool:
    """Tell whether a node draws random numbers."""
    operator = node.target
    if not isinstance(operator, torch._ops.OpOverload):
        return False
    return torch.Tag.nondeterministic_seeded in operator.tags


def _blame_higher_order(module: torch.fx.GraphModule, error: Exception) -> None:
    for node in module.graph.nodes:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise CaptureError(
                CaptureFailure.UNSUPPORTED_PROGRAM,
                f"the program contains the higher-order operator {node.target.name()}",
                where=source_location(node),
                hint="run this function eagerly",
            ) from error


def _check_results(traced: DynamoCapture, *, with_gradients: bool) -> None:
    """Refuse results that carry work for later: a gradient, a conjugation, a negation.

    Results that need a gradient can appear even under no_grad, through enable_grad inside.
    """
    if traced.graph_module is None:
        return
    results = traced.graph_module.graph.output_node().args[0]
    assert isinstance(results, (tuple, list))
    for node in results:
        if not isinstance(node, torch.fx.Node) or node.op == "placeholder":
            continue
        value = node.meta.get("example_value")
        if not isinstance(value, torch.Tensor):
            continue
        if value.requires_grad and not with_gradients:
            raise CaptureError(
                CaptureFailure.SWITCHES_GRADIENTS,
                "a result needs a gradient",
                where=source_location(node),
                hint="call it under torch.no_grad() or torch.inference_mode()",
            )
        if value.is_conj() or value.is_neg():
            raise CaptureError(
                CaptureFailure.LAZY_RESULT,
                "a result is conjugated or negated lazily",
                where=source_location(node),
                hint="return its resolve_conj().resolve_neg()",
            )
    if not with_gradients and switches_gradients_for_writes(traced.graph_module.graph):
        raise CaptureError(
            CaptureFailure.SWITCHES_GRADIENTS,
            "an input is written where gradients are switched on, and needs one then",
            hint="write it under torch.no_grad()",
        )
    if torch.is_grad_enabled() and not with_gradients:
        _check_shared_results(traced.graph_module.graph)


def _check_shared_results(graph: torch.fx.Graph) -> None:
    """Refuse results that share memory which is not an input's.

    One may later be given a gradient in place. Autograd then follows it to the others, but knows
    only of views that it made itself.
    """
    for nodes in shared_results(graph).values():
        raise share_memory(nodes[1])
