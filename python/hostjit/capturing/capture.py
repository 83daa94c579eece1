# SPDX-License-Identifier: Apache-2.0
"""Capture: a callable and one call's arguments become a `CapturedProgram`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from hostjit.capturing.arguments import ArgumentSpec, describe_arguments
from hostjit.capturing.compile_lock import compile_lock
from hostjit.capturing.control_flow.carried_ints import carry_ints_in_tensors
from hostjit.capturing.control_flow.choices_of_sizes import take_branches_of_sizes
from hostjit.capturing.decompositions.dense_attention import flex_attention_is_dense
from hostjit.capturing.dynamic_dims import (
    check_kept,
    is_number,
    is_symbolic,
    marked,
    refusal,
)
from hostjit.capturing.dynamo.breaks import Continuation
from hostjit.capturing.dynamo.call import DynamoCapture, run_dynamo
from hostjit.capturing.dynamo.open_strides import contiguity_stays_open
from hostjit.capturing.errors import CaptureFailure
from hostjit.capturing.functional.trace import FunctionalGraph
from hostjit.capturing.gradients.backward import Backward
from hostjit.capturing.guards.full_check import GuardCheck
from hostjit.capturing.guards.translation import Guards, LeftOpen
from hostjit.capturing.inference_mode import (
    Inference,
    settle_modes,
)
from hostjit.capturing.instances import name_of
from hostjit.capturing.numbers.equal_numbers import equal_numbers_are_one
from hostjit.capturing.numbers.item_reads import check_kept_open
from hostjit.capturing.numbers.lent_sizes import lent_arguments, open_sizes
from hostjit.capturing.numbers.open_numbers import (
    MOST_NUMBERS,
    OpenNumber,
    open_numbers,
    sources_of,
    values_of,
    with_same,
)
from hostjit.capturing.numbers.refused_numbers import check_numbers
from hostjit.capturing.numbers.results import NumberResults, take_numbers
from hostjit.capturing.numbers.steps import SizeOf, Steps
from hostjit.capturing.opened import Opened
from hostjit.capturing.outside_sizes import opening_sizes
from hostjit.capturing.overlap import counts_from_storage
from hostjit.capturing.program import (
    ArgumentLeaf,
    BoundTensor,
    BytecodeRoute,
    CapturedProgram,
    InputBinding,
    NumberInput,
)
from hostjit.capturing.quiet_log import (
    without_log_of_failures,
    without_warnings_of_dynamo,
    without_warnings_of_gradients,
)
from hostjit.capturing.results.kept_results import over_kept_results
from hostjit.capturing.results.output_inference import CannotRebuildError
from hostjit.capturing.results.outputs import (
    ConstantOutput,
    ItemOutput,
    Output,
    map_outputs,
)
from hostjit.capturing.results.shared_results import ReturnedBases, every_result, share_memory
from hostjit.capturing.results.unused import drop_unused
from hostjit.capturing.tensors import TensorFacts, check_tensor
from hostjit.capturing.thread_state import thread_state_kept
from hostjit.capturing.traced_graph import check_sizes, placeholder_values
from hostjit.capturing.tracing import (
    is_random,
    is_training,
    trace_for_inference,
    trace_with_backward,
    untraced,
)
from hostjit.capturing.unread import unread_arguments

__all__ = ["capture"]


def capture(
    target: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    opened: Opened | None = None,
    then: Continuation | None = None,
    check: Callable[[DynamoCapture], None] | None = None,
) -> CapturedProgram:
    """Capture one call of a callable as a functional ATen program, with its backward if need be.

    Nothing of the user's code runs on real tensors and nothing of the user's is changed. The
    program is valid for calls that match its `argument_spec`, as long as its `guards` hold, under
    the global state of the time of capture. That state is the caller's to compare: grad mode,
    inference mode, autocast (each device: enabled, dtype, cache), deterministic algorithms and
    their warn-only flag, default dtype, default device, number of threads, float32 matmul and
    reduced-precision settings, empty stacks of torch-function and torch-dispatch modes, no
    functorch transform, no saved-tensor hooks, torch function enabled.

    Args:
        target: a function, nn.Module, bound method, partial or callable object.
        args: the positional arguments of the call; tensors are read for their metadata only.
        kwargs: its keyword arguments.
        opened: what to leave open; by default nothing.
        then: capture the call as far as Dynamo can follow it. The line that it cannot runs as it
            is, and the rest of the call goes to what this provides.
        check: looks at what Dynamo captured, and may refuse it with a CaptureError.

    Raises CaptureError when the call cannot be captured; running it eagerly is then right.

    Example:
        program = capture(model, (x,))
        program.run(x)
    """
    with (
        compile_lock,
        contiguity_stays_open(),
        thread_state_kept(),
        without_log_of_failures(),
        without_warnings_of_dynamo(),
        without_warnings_of_gradients(),
    ):
        return _capture(target, tuple(args), dict(kwargs or {}), opened or Opened(), then, check)


def _capture(
    target: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    opened: Opened,
    then: Continuation | None,
    check: Callable[[DynamoCapture], None] | None,
    *,
    of_inputs: bool = True,
    carries_ints: bool = True,
) -> CapturedProgram:
    classes, outside = opened.classes, opened.outside
    spec, leaves = describe_arguments(args, kwargs, classes)
    sources = sources_of(args, kwargs, opened.numbers, outside, classes, opened.equal)
    with (
        marked(leaves, opened.dims),
        opening_sizes(opened.sizes, leaves),
        equal_numbers_are_one(opened.equal) as same,
    ):
        traced = run_dynamo(target, args, kwargs, then, sources, leaves, opened.reads, classes)
    if check is not None:
        check(traced)
    if opened.sizes is not None:
        _check_taken(traced, opened.sizes.found.values())
    broke = traced.broke
    if broke is not None and broke.failure is CaptureFailure.USER_EXCEPTION:
        raise broke
    ints: tuple[int, ...] = ()
    if traced.graph_module is not None:
        if carries_ints and not is_training(traced):
            carried = carry_ints_in_tensors(traced.graph_module, traced.fake_mode)
            stored = {store.result for store in traced.changes.stores}
            if carried is not None and stored.isdisjoint(carried[1]):
                traced.graph_module, ints = carried
        check_sizes(traced.graph_module)
        take_branches_of_sizes(traced.graph_module)
        if not is_training(traced):
            flex_attention_is_dense(traced.graph_module)
    modes = settle_modes(traced.graph_module)
    in_inference_mode = modes is not None and modes.inference is Inference.WHOLE
    backward: Backward | None = None
    composed = modes is not None and modes.changes_grad_mode
    lent = lent_arguments(traced, args, kwargs, leaves, opened.dims)
    in_structures = {name for name, place in outside.items() if place.structure}
    found = [] if composed else open_numbers(traced, sources, in_structures)
    if not {number.position for number in found}.issuperset(same.values()):
        opened = dataclasses.replace(opened, equal={})
        return _capture(target, args, kwargs, opened, then, check)
    found = [with_same(number, same) for number in found]
    steps = Steps(
        {number.symbol: slot for slot, number in enumerate(found) if number.symbol},
        open_sizes(traced, lent, leaves),
        traced.made_symbols,
    )
    numbers = _take_numbers(traced, found, steps, opened)
    structures = {place.structure: place for place in outside.values() if place.structure}
    route = BytecodeRoute(traced, classes, structures.values())
    output_spec, reason = None, "; ".join(traced.changes.described)
    if broke is not None:
        reason = "is captured in parts"
    if not reason:
        try:
            output_spec = route.infer_outputs(args, kwargs, leaves)
            is_open = opened.dims or (opened.sizes and opened.sizes.found)
            if is_open and _has_sizes(output_spec):
                raise CannotRebuildError("the sizes of a tensor")  # maybe of an argument
        except CannotRebuildError as error:
            output_spec, reason = None, f"returns {error}"
    shared: ReturnedBases | None = None
    training = not in_inference_mode and is_training(traced)
    rebuilt = output_spec
    if composed:
        graph = untraced(traced, lent, sources)
    else:
        if traced.graph_module is not None and not (output_spec is None and training):
            module = traced.graph_module
            inputs = dict(zip(traced.tensor_nodes(), traced.inputs, strict=True))
            bases_of = inputs if output_spec is not None and of_inputs else None
            with torch.no_grad() if in_inference_mode else contextlib.nullcontext():
                results = output_spec or every_result(module.graph)
                shared = ReturnedBases(module, results, steps, training, bases_of)
            traced.numbers = traced.numbers.with_more(steps, shared.operands)
            output_spec = output_spec and shared.output
            training = training and is_training(traced)
        if training:
            graph, backward = trace_with_backward(traced, lent, values_of(numbers))
            composed = backward is None
        else:
            graph = trace_for_inference(traced, lent, values_of(numbers), in_inference_mode)
    if numbers and not composed:
        check_numbers(graph.graph_module.graph, numbers, traced.fake_mode.shape_env)
    bindings = _bind_inputs(traced, graph, leaves, numbers)
    elsewhere = {number.position for number in numbers if isinstance(number.position, str)}
    elsewhere.update(same)
    left_open = LeftOpen(frozenset(elsewhere), classes, frozenset(structures))
    guard_check = GuardCheck(traced, left_open, args, kwargs)
    guards = guard_check.guards
    guards.leaf_checks.update(_unshifted_leaves(graph, bindings))
    if not reason and guards.check_every_call and not graph.mutated:
        # The bytecode reads anew, at every call, what the watches can't follow.
        reason = "reads " + ("; ".join(guards.unwatchable) or "attributes of arguments")
    if shared is not None and shared.changed:
        if composed:
            shared.undo()
        elif reason and shared.views_of_inputs:
            return _capture(target, args, kwargs, opened, then, check, of_inputs=False)
        elif reason and (training or not _are_taken(traced.numbers, bindings)):
            raise share_memory(None)
    if reason and ints:
        return _capture(target, args, kwargs, opened, then, check, carries_ints=False)
    if reason or composed:
        output_spec = None
    elif output_spec is not None and ints:
        tensors = [i for i, number in enumerate(traced.numbers.results) if number is None]
        output_spec = map_outputs(
            output_spec, lambda o: ItemOutput((o,)) if tensors[o.index] in ints else o
        )
    program = CapturedProgram(
        name=_name_of(target),
        graph_module=graph.graph_module,
        inputs=bindings,
        argument_spec=_with_bound_leaves(spec, leaves, guards),
        output_spec=output_spec,
        guard_check=guard_check,
        mutated_inputs=graph.mutated,
        requires_disjoint_inputs=bool(graph.mutated),
        needs_bytecode=output_spec is None,
        bytecode_reason=reason,
        bytecode=route,
        dynamo_input_count=graph.dynamo_input_count,
        depends_on_storage_offset=_depends_on_storage_offset(traced),
        random=is_random(graph.graph_module.graph),
        environment=None if composed else _environment(traced, graph, output_spec, numbers),
        numbers=tuple(numbers),
        number_results=traced.numbers,
        tensors=shared.tensors if shared is not None and reason else (),
        backward=backward,
        composed=composed,
        in_inference_mode=in_inference_mode,
        keeps_results=broke is not None or bool(traced.changes.described),
        broke=broke,
        rest_is_left=traced.rest_is_left,
        unread=unread_arguments(traced, args, kwargs),
        _dynamo_positions=tuple(range(len(bindings))),
        _dynamo_output_spec=None if output_spec is None else rebuilt,
    )
    if output_spec is not None:
        if backward is None:
            _drop_unused(program, output_spec)
        else:
            program.output_spec = over_kept_results(output_spec, backward, bindings)
    traced.forget_arguments(leaves)
    return program


def _are_taken(numbers: NumberResults, bindings: Iterable[InputBinding]) -> bool:
    """Tell whether the graph itself takes the arguments of whose sizes the numbers are made."""
    leaves = {binding.index for binding in bindings if isinstance(binding, ArgumentLeaf)}
    operands = [*numbers.more, *(operand for _, used in numbers.steps for operand in used)]
    return all(operand.leaf in leaves for operand in operands if isinstance(operand, SizeOf))


def _check_taken(traced: DynamoCapture, outside: Iterable[int]) -> None:
    """Check that a program is given each tensor whose sizes it may assume to be those of another.

    `outside`: the `id` of each. Raises CaptureError where it is not: nobody would compare them.
    """
    if not {id(tensor) for tensor in traced.inputs}.issuperset(outside):
        raise refusal("the graph does not take a tensor outside of the arguments")


def _take_numbers(
    traced: DynamoCapture, numbers: list[OpenNumber], steps: Steps, opened: Opened
) -> list[OpenNumber]:
    """Take what Python computes out of Dynamo's graph; returns the numbers that it then takes."""
    module = traced.graph_module
    if module is None:
        return numbers
    symbols = [v.node._expr if is_number(v) else None for v in placeholder_values(module)]
    traced.number_inputs = [
        (
            symbols.index(number.symbol) if number.symbol in symbols else None,
            number.value.node.hint,
        )
        for number in numbers
        if number.value is not None
    ]
    environment = traced.fake_mode.shape_env
    check_kept_open(environment, traced.made_symbols, opened.reads)
    guards = environment.guards
    if any(guard.expr == sympy.false for guard in guards):
        raise refusal("what the code assumes of a number holds for none")
    assumed = {symbol for guard in guards for symbol in guard.expr.free_symbols}
    traced.numbers, made = take_numbers(
        module, steps, traced.made_symbols, assumed, makes_floats=opened.makes_floats
    )
    if len(numbers) + len(made) > MOST_NUMBERS:
        raise refusal("there are too many open numbers")
    return [*numbers, *made]


def _environment(
    traced: DynamoCapture,
    graph: FunctionalGraph,
    output_spec: Output | None,
    numbers: Sequence[OpenNumber],
) -> ShapeEnv | None:
    """Return the environment of open sizes and numbers, if there are any left.

    Raises CaptureError where a result would hold on to those of this call.
    """
    # The bytecode reads sizes anew, but hands over what Dynamo's graph takes, and no more.
    given = len(traced.inputs) + len(values_of(numbers))
    if output_spec is None and graph.dynamo_input_count > given:
        raise refusal("the bytecode does not hand on the size of a tensor")
    placeholders = graph.graph_module.graph.find_nodes(op="placeholder")
    symbolic = [value for node in placeholders if is_symbolic(value := node.meta.get("val"))]
    if not symbolic and not numbers:
        return None
    assert traced.graph_module is not None
    check_kept(traced.graph_module.graph)
    environment: ShapeEnv = traced.fake_mode.shape_env
    return environment


def _has_sizes(output: Output) -> bool:
    if isinstance(output, ConstantOutput):
        return isinstance(output.value, torch.Size)
    return any(map(_has_sizes, getattr(output, "items", ())))


def _bind_inputs(
    traced: DynamoCapture,
    graph: FunctionalGraph,
    leaves: Sequence[torch.Tensor],
    numbers: Sequence[OpenNumber],
) -> tuple[InputBinding, ...]:
    by_identity = {id(leaf): index for index, leaf in reversed([*enumerate(leaves)])}
    names = [node.name for node in graph.graph_module.graph.nodes if node.op == "placeholder"]
    slots = {id(number.value): slot for slot, number in enumerate(numbers)}
    bindings: list[InputBinding] = []
    for position, tensor in enumerate(graph.inputs):
        if id(tensor) in slots:
            bindings.append(NumberInput(slots[id(tensor)]))
            continue
        if id(tensor) in by_identity:
            bindings.append(ArgumentLeaf(by_identity[id(tensor)]))
            continue
        is_constant = position >= graph.dynamo_input_count
        path = "" if is_constant else traced.input_path(position)
        check_tensor(tensor, path or names[position])
        bindings.append(BoundTensor(tensor, TensorFacts.of(tensor), path, is_constant))
    return tuple(bindings)


def _unshifted_leaves(
    graph: FunctionalGraph, bindings: Sequence[InputBinding]
) -> Iterator[tuple[str, int]]:
    """Yield the checks of the arguments that have to begin where their memory does."""
    for position in graph.unshifted:
        binding = bindings[position]
        if not isinstance(binding, ArgumentLeaf):
            raise counts_from_storage()
        yield "unshifted", binding.index


def _with_bound_leaves(
    spec: ArgumentSpec, leaves: Sequence[torch.Tensor], guards: Guards
) -> ArgumentSpec:
    outside = {id(tensor) for tensor in guards.bound_tensors}
    pairs = tuple((i, leaf) for i, leaf in enumerate(leaves) if id(leaf) in outside)
    return dataclasses.replace(spec, bound_leaves=pairs)


def _drop_unused(program: CapturedProgram, output_spec: Output) -> None:
    """Drop inputs and outputs that the direct route does not need, and renumber."""
    needed = drop_unused(program.graph_module, program.inputs, program.mutated_inputs, output_spec)
    count = program.dynamo_input_count
    program.output_spec = needed.output_spec
    program.inputs = needed.inputs
    program.mutated_inputs = needed.mutated
    program.dynamo_input_count = sum(position < count for position in needed.positions)
    program._dynamo_positions = needed.positions


def _depends_on_storage_offset(traced: DynamoCapture) -> bool:
    return any("storage_offset" in code.co_names for code in traced.traced_code)


def _name_of(target: Any) -> str:
    if isinstance(target, torch.nn.Module):
        return type(target).__name__
    name = name_of(target)
    return str(name).replace("<locals>.", "")
