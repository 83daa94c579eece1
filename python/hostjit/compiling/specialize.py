# SPDX-License-Identifier: Apache-2.0
"""From a captured program and its compiled code to what the call path checks and runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Graph
from torch.utils._sympy.printers import PythonPrinter

from hostjit import _C
from hostjit.capturing.by_fields import ByFields
from hostjit.capturing.gradients.backward import (
    Backward,
    InputKept,
    NumberKept,
    ResultKept,
    SavedTensor,
    SizeAlone,
    Tangent,
)
from hostjit.capturing.guards.sizes import size_guard
from hostjit.capturing.guards.structures import classes_in
from hostjit.capturing.guards.watches import without_tensors
from hostjit.capturing.numbers.open_numbers import Made, OpenNumber, named_numbers
from hostjit.capturing.program import ArgumentLeaf, CapturedProgram, InputBinding, NumberInput
from hostjit.compiling.bytecode_call import CheckedCall, compiled_graph
from hostjit.compiling.number_values import FlatNumbers, NumberValues
from hostjit.compiling.output_descriptions import describe_output
from hostjit.compiling.revalidations import Revalidations
from hostjit.compiling.watch_descriptions import describe_watch
from hostjit.lowering.index_values import dependent_sizes

__all__ = [
    "describe_backward",
    "describe_inputs",
    "make_specialization",
    "row_guard",
]

_COMPOSED = "its gradients need Python between the graphs of its call"


def make_specialization(
    captured: CapturedProgram,
    program: _C.CompiledProgram | None,
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    runtime: str | None,
    reuse_outputs: bool = False,
    backward: _C.BackwardPlan | None = None,
    composed: Callable[..., Sequence[torch.Tensor]] | None = None,
    hooked: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
    leaves_unread: bool = False,
    revalidations: Revalidations | None = None,
) -> _C.Specialization:
    """Return the specialization that answers calls like (args, kwargs).

    Args:
        captured: what was captured of the call.
        program: its graph; None with `composed`.
        target: what was captured.
        args: the positional arguments of the call.
        kwargs: its keyword arguments.
        runtime: as of `hostjit.compile`.
        reuse_outputs: as of `hostjit.compile`; not with gradients.
        backward: how gradients are computed, if results need them.
        composed: runs the graph instead of `program`.
        hooked: makes what runs the bytecode, where that calls what was not captured.
        leaves_unread: answer calls with any values of what the code does not look at.
        revalidations: those of the function, which are counted; None to look as often as it takes.

    Raises hostjit.Error when the captured description does not fit the program.
    """
    route: Callable[..., Any] | None = None
    checked: CheckedCall | None = None
    output: tuple[Any, ...] = ("object", None)
    made = NumberValues(captured.number_results, captured.guards.stores)
    if captured.needs_bytecode:
        if composed is not None:
            graph = captured.with_numbers(composed)
        else:
            assert program is not None
            if backward is None:
                graph = compiled_graph(captured, program, args, kwargs, runtime, reuse_outputs)
            else:
                graph = _flat_training(captured, program, backward, runtime)
        route = captured.bytecode.bind(graph)
        if hooked is not None:
            route = hooked(route)
        # Written inputs have to be known before the call: see `mutated`.
        if captured.guards.check_every_call and not captured.mutated_inputs:
            route = checked = CheckedCall(captured, route, target)
    else:
        assert captured.output_spec is not None
        output = describe_output(captured.output_spec, made)

    def result() -> tuple[Any, ...] | None:
        """What a call returns, of tensors that are found now."""
        if captured.needs_bytecode or captured.output_spec is None:
            return None
        return describe_output(captured.output_spec, made)

    def watch() -> list[tuple[Any, ...]]:
        entries = captured.guards.watches
        if checked is not None and captured.guards.unwatchable:
            # Dynamo's check, at every call, compares what tensors are like that the code reads.
            kept = set(map(id, captured.guards.bound_tensors))
            kept -= set(map(id, captured.replaceable()))
            entries = without_tensors(entries, kept)
        watched = [describe_watch(entry) for entry in entries]
        return watched if checked is None else [*watched, checked.watch()]

    symbolic = row_guard(captured.graph, captured.environment, program, numbers=captured.numbers)

    def numbers() -> list[tuple[Any, ...]]:
        return [
            (*description, *_number_place(number, captured, made))
            for number, description in zip(
                captured.numbers, symbolic.get("numbers", []), strict=False
            )
        ] + [*_described_same(captured), *describe_structures(captured)]

    def outside() -> list[torch.Tensor] | None:
        # Dynamo's own check, which runs at every call then, has it.
        return None if checked is not None else list(captured.guards.bound_tensors)

    def replaceable() -> tuple[list[Any], list[Any]]:
        found = [] if checked is not None else captured.replaceable()
        found = [value for value in found if not made.takes(value)]
        return found, [value for value in found if captured.guards.known.is_unread(value)]

    def stores() -> list[tuple[Any, Any, int]]:
        return made.stores(captured.guards.stores)

    def revalidate(*call: Any) -> tuple[Any, ...] | None:
        if not captured.revalidate(*call):
            return None
        inputs = describe_inputs(captured.inputs, captured.guards.gradients)
        return watch(), inputs, numbers(), outside(), replaceable(), stores(), result()

    look = revalidate if revalidations is None else revalidations.timed(revalidate)
    leaf_checks = sorted(captured.guards.leaf_checks)
    look.leaf_checks = leaf_checks  # type: ignore[attr-defined]  # read where it is saved
    return _C.Specialization(
        args=args,
        kwargs=kwargs,
        program=program,
        bindings=describe_inputs(captured.inputs, captured.guards.gradients),
        output=output,
        watches=watch(),
        revalidate=look,
        always_revalidate=captured.guards.check_every_call and checked is None,
        mutated=list(captured.mutated_inputs),
        results=made.described,
        stores=stores(),
        retries=_may_run_again(captured, stores(), is_whole=hooked is None and composed is None),
        route=route,
        leaf_checks=leaf_checks,
        runtime=runtime,
        reuse_outputs=reuse_outputs and backward is None and composed is None,
        backward=backward,
        in_inference_mode=captured.in_inference_mode and route is None,
        outside=outside(),
        replaceable=replaceable(),
        reason=captured.bytecode_reason or _COMPOSED * captured.composed,
        by_fields=captured.argument_spec.by_fields.described(),
        unread=captured.unread if leaves_unread else (),
        **{**symbolic, "numbers": numbers()},
    )


def _may_run_again(captured: CapturedProgram, stores: Sequence[Any], *, is_whole: bool) -> bool:
    """Tell whether the function itself may run where the program fails, which has no effect then.

    It has changed Python state up to there, and may handle the error. Where the graph writes to
    inputs, it runs again itself, eagerly.
    """
    if captured.random or captured.mutated_inputs:
        return False
    return bool(stores) or (captured.needs_bytecode and is_whole)


def _number_place(
    number: OpenNumber, captured: CapturedProgram, made: NumberValues
) -> tuple[Any, ...]:
    """The last items of the tuple that `_C.Specialization` takes."""
    if isinstance(number.position, int):
        return (number.position,)
    if isinstance(number.position, Made):
        return "value", made.step(number.position.step)
    place = captured.guards.numbers[number.position]
    if not place.structure:
        return place.holder, place.key
    paths = [path for path, _ in named_numbers(place.read_holder(), "")]
    index = list(captured.guards.structures).index(place.structure)
    return "structure", (index, paths.index(place.path))


def _described_same(captured: CapturedProgram) -> Iterator[tuple[Any, ...]]:
    """Yield the tuples of numbers that have to be the same as others."""
    for slot, number in enumerate(captured.numbers):
        for name in number.same:
            place = captured.guards.numbers[name]
            yield "same", place.holder, place.key, slot


def describe_structures(captured: CapturedProgram) -> list[tuple[Any, ...]]:
    """Return the tuples that `_C.Specialization` takes among its numbers."""
    return [
        (
            "structure",
            place.holder,
            place.key,
            ByFields.of(*classes_in(place.read_holder())).described(),
        )
        for place in captured.guards.structures.values()
    ]


def row_guard(
    graph: Graph,
    environment: Any,
    program: _C.CompiledProgram | None,
    assumed: Set[Any] = frozenset(),
    numbers: Sequence[OpenNumber] = (),
) -> dict[str, Any]:
    """Return the arguments of `_C.Specialization` about open sizes and numbers.

    Where a number is to be found is missing in its tuple.

    `assumed`: see `size_guard`.
    """
    if environment is None or program is None or not (program.symbols or numbers):
        return {}
    values = [node.meta["val"] for node in graph.find_nodes(op="placeholder")]
    read = {
        taken.name: value
        for taken, value in zip(program.program.inputs, values, strict=True)
        if not isinstance(value, torch.Tensor)
    }
    dependent = dependent_sizes(values)
    for name, value in read.items():
        if name != str(value):
            dependent[name] = PythonPrinter().doprint(value.node.expr)
    bounds = [number.bounds(environment, graph) for number in numbers]
    guard, given = size_guard(environment, program.symbols, list(read), dependent, assumed)
    slots = [slot for slot, number in enumerate(numbers) if number.value is not None]
    return {
        "numbers": [(number.type, *limits) for number, limits in zip(numbers, bounds, strict=True)],
        "row_guard": guard,
        "guarded": [slots[index] for index in given],
    }


def describe_backward(
    backward: Backward,
    forward_program: _C.CompiledProgram,
    program: _C.CompiledProgram,
    runtime: str | None,
) -> _C.BackwardPlan:
    """Return the plan by which `program` computes the gradients of `forward_program`."""

    def describe(source: SavedTensor | Tangent | torch.Tensor | NumberKept | SizeAlone) -> Any:
        if isinstance(source, SavedTensor):
            return ("saved", source.position)
        if isinstance(source, NumberKept):
            return ("number", source.index)
        if isinstance(source, SizeAlone):
            return None
        return ("tangent", source.result) if isinstance(source, Tangent) else source

    return _C.BackwardPlan(
        forward=forward_program,
        backward=program,
        num_results=len(backward.differentiable),
        differentiable=list(backward.differentiable),
        updated=list(backward.updated),
        saved=[
            ("input" if isinstance(kept, InputKept) else "result", kept.index)
            for kept in backward.saved
        ],
        inputs=[describe(source) for source in backward.inputs],
        gradients=list(backward.gradients),
        reached=[list(results) for results in backward.reached],
        parts=[list(part) for part in backward.parts],
        saved_for=[list(needing) for needing in backward.saved_for],
        again=backward.again,
        unread=list(backward.unread),
        copied=list(backward.copied),
        draws=backward.draws,
        runtime=runtime,
    )


def describe_inputs(
    inputs: Sequence[InputBinding], gradients: Mapping[int, torch.Tensor] = MappingProxyType({})
) -> list[int | torch.Tensor | tuple[str, int | torch.Tensor]]:
    """Return the list that `_C.Specialization` takes. `gradients`: as of `Guards`."""

    def describe(binding: InputBinding) -> int | torch.Tensor | tuple[str, int | torch.Tensor]:
        match binding:
            case ArgumentLeaf(index):
                return index
            case NumberInput(index):
                return ("open", index)
        owner = gradients.get(id(binding.tensor))
        return binding.tensor if owner is None else ("gradient", owner)

    return [describe(binding) for binding in inputs]


def _flat_training(
    captured: CapturedProgram,
    program: _C.CompiledProgram,
    plan: _C.BackwardPlan,
    runtime: str | None,
) -> Callable[..., Sequence[torch.Tensor]]:
    """Return what takes the graph's inputs and returns its results, with their gradients."""
    backward, count = captured.backward, captured.dynamo_input_count
    assert backward is not None
    constants = describe_inputs(captured.inputs[count:])
    flat = FlatNumbers(captured)
    output = flat.output(
        [
            ("output" if isinstance(place, ResultKept) else "argument", place.index)
            for place in backward.results
        ]
    )

    original = captured.bytecode.eager()

    class Flat:
        has_original = original is not None

        def specialize(
            self, _: _C.CompiledFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> _C.Specialization:
            return _C.Specialization(
                args=args,
                kwargs=kwargs,
                program=program,
                bindings=[*flat.bindings, *constants],
                output=output,
                mutated=list(captured.mutated_inputs),
                runtime=runtime,
                backward=plan,
                **flat.described,
            )

    def never(*_: Any) -> Any:
        raise AssertionError("the inputs of a graph do not fit it")

    return _C.CompiledFunction(original or never, Flat())
