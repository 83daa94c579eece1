# SPDX-License-Identifier: Apache-2.0
"""What capture hands to lowering: a functional graph, its bindings, its result, its guards."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from hostjit.capturing.arguments import ArgumentSpec, containers_in, tensor_leaves
from hostjit.capturing.by_fields import NONE_BY_FIELDS, ByFields
from hostjit.capturing.contexts import eager_graph
from hostjit.capturing.dynamic_dims import is_symbolic, no_more_guards
from hostjit.capturing.errors import CaptureError
from hostjit.capturing.gradients.backward import Backward
from hostjit.capturing.graph_module import running
from hostjit.capturing.guards.structures import classes_in
from hostjit.capturing.inference_mode import in_inference_mode
from hostjit.capturing.numbers.open_numbers import Made, NumberPlace, OpenNumber, number_leaves
from hostjit.capturing.numbers.results import NumberResults
from hostjit.capturing.results.output_inference import CannotRebuildError, infer_output_spec
from hostjit.capturing.results.outputs import (
    Output,
    TupleOutput,
    fixed_outputs,
    known_outputs,
    rebound_outputs,
    with_rebound,
)
from hostjit.capturing.results.rebuilding import rebuild_output
from hostjit.capturing.signal_errors import raise_of_handler
from hostjit.capturing.tensors import TensorFacts

if TYPE_CHECKING:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from hostjit.capturing.dynamo.call import DynamoCapture
    from hostjit.capturing.guards.full_check import GuardCheck
from hostjit.capturing.guards.translation import Guards

__all__ = [
    "ArgumentLeaf",
    "BoundTensor",
    "BytecodeRoute",
    "CapturedProgram",
    "InputBinding",
    "NumberInput",
]


@dataclasses.dataclass(frozen=True)
class ArgumentLeaf:
    """A graph input that is tensor leaf `index` of the call's arguments."""

    index: int


@dataclasses.dataclass(frozen=True, eq=False)
class BoundTensor:
    """A graph input that is a live tensor outside of the arguments, held by reference.

    A parameter, a buffer, a global, a closure's value, or a constant of the program. Its data may
    change between calls; `facts` must be compared at every call, because `.data = ...` and
    `module.to(...)` change them without changing the object.

    Attributes:
        tensor: the live tensor itself.
        facts: what the program assumes about it.
        path: where it was found, as Dynamo writes it, for messages; "" for a constant.
        is_constant: the program itself made it: nobody else can reach or change it.
    """

    tensor: torch.Tensor
    facts: TensorFacts
    path: str = ""
    is_constant: bool = False


@dataclasses.dataclass(frozen=True)
class NumberInput:
    """A graph input that is open number `index` of the call."""

    index: int


InputBinding = ArgumentLeaf | BoundTensor | NumberInput


class BytecodeRoute:
    """Runs Dynamo's rebuilt bytecode around a compiled graph, for calls with Python effects."""

    def __init__(
        self,
        capture: DynamoCapture,
        by_fields: ByFields = NONE_BY_FIELDS,
        structures: Iterable[NumberPlace] = (),
    ) -> None:
        """Make one. Of the objects of `by_fields` and in `structures` a call may bring others."""
        self._capture = capture
        self._by_fields = by_fields
        self._structures = tuple(structures)

    def bind(self, compiled: Callable[..., Sequence[torch.Tensor]]) -> Callable[..., Any]:
        """Return a function with the target's signature.

        Args:
            compiled: takes the first `CapturedProgram.dynamo_input_count` graph inputs as
                positional arguments, returns a tuple or list of all that Dynamo's graph does:
                the graph outputs, and numbers where it had such.
        """
        return self._capture.bind(compiled, live_globals=True)

    def eager(self) -> Callable[..., Sequence[torch.Tensor]] | None:
        """Return what runs Dynamo's graph as it is, in the place of a compiled one.

        None where numbers are among what it takes or returns.
        """
        capture = self._capture
        module, numbers = capture.graph_module, capture.numbers
        if module is None or len(capture.positions) < capture.input_count:
            return None
        if capture.number_inputs or numbers.any_numbers() or numbers.more:
            return None
        return eager_graph(module)

    def infer_outputs(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], leaves: Sequence[torch.Tensor]
    ) -> Output:
        """Run the bytecode with stand-ins; see `outputs.infer_output_spec`."""

        def run(outputs: Sequence[Any]) -> Any:
            function = self._capture.bind(lambda *_: tuple(outputs), live_globals=False)
            try:
                return function(*args, **kwargs)
            except Exception as error:
                raise_of_handler(error)
                raise CannotRebuildError(f"what only its own code can make ({error})") from error

        structures = [place.read_holder() for place in self._structures]
        inside = [kind for value in structures for kind in classes_in(value)]
        found = containers_in(args, kwargs, self._by_fields)
        found += containers_in(structures, {}, ByFields.of(*inside))
        containers = {id(value) for value in found}
        return infer_output_spec(run, self._capture.numbers.results, leaves, containers)


@dataclasses.dataclass
class CapturedProgram:
    """One call of a callable, captured for inference.

    Attributes:
        name: of the callable, for dumps.
        graph_module: functional ATen graph; every node has `meta["val"]` (fake tensors with sizes,
            strides, dtype, device, storage_offset) and, where known, a stack trace
            (`source_location(node)` gives "file:line"). The output is a flat tuple; an entry that
            is a placeholder means that the input itself is returned.
        inputs: one binding per placeholder, in order.
        argument_spec: what the arguments must look like, open numbers aside.
        output_spec: how the result is rebuilt; None when `needs_bytecode`.
        guard_check: everything else that the capture assumed.
        mutated_inputs: positions in `inputs` that the graph writes (by trailing `aten.copy_`).
        requires_disjoint_inputs: some input is written, so the memory of a written input must not
            overlap that of any other input at a call (different objects; the same object in two
            leaves is described by `argument_spec.identity_groups`).
        needs_bytecode: the call changes Python objects, or returns what only Python can make; it
            has to go through `bytecode`, with all graph inputs and outputs kept.
        bytecode_reason: why, in words; "" when not needed.
        bytecode: runs the rebuilt bytecode around a compiled graph.
        dynamo_input_count: number of leading inputs that Dynamo's bytecode passes; the ones after
            are lifted constants. Meaningful only with `needs_bytecode`.
        depends_on_storage_offset: the program was specialised on storage offsets, so that
            `TensorFacts.storage_offset` has to be compared too.
        random: the program draws random numbers.
        environment: of the symbols in sizes; None when all sizes are known.
        numbers: the open numbers, which each call brings or finds.
        number_results: the results of Dynamo's graph, of which those that are numbers are none of
            `graph_module`.
        tensors: how the tensors that the bytecode takes are made of the graph's results; () for
            these themselves.
        backward: how gradients are computed, when results need them; then the graph's results are
            the user's, which `output_spec` is over, and after those what is kept.
        composed: the graph needs gradients in a way that `backward` cannot say. `graph_module` is
            Dynamo's own, to be split by AOTAutograd and called by the bytecode, at every call.
        in_inference_mode: what the bytecode calls is to be called in inference mode, which the
            call itself enters and leaves.
        keeps_results: results of the graph may get into objects that outlive the call, or to code
            that was not captured.
        broke: why the call was captured up to some line only; the bytecode then does the rest.
        rest_is_left: what follows is left to Python, as the rest of a loop is.
        unread: see `unread_arguments`.
    """

    name: str
    graph_module: torch.fx.GraphModule
    inputs: tuple[InputBinding, ...]
    argument_spec: ArgumentSpec
    output_spec: Output | None
    guard_check: GuardCheck
    mutated_inputs: tuple[int, ...]
    requires_disjoint_inputs: bool
    needs_bytecode: bool
    bytecode_reason: str
    bytecode: BytecodeRoute
    dynamo_input_count: int
    depends_on_storage_offset: bool
    random: bool
    environment: ShapeEnv | None
    numbers: tuple[OpenNumber, ...]
    number_results: NumberResults
    tensors: tuple[Output, ...]
    backward: Backward | None
    composed: bool
    in_inference_mode: bool
    keeps_results: bool
    broke: CaptureError | None
    rest_is_left: bool
    unread: tuple[tuple[int, ...], ...]
    _dynamo_positions: tuple[int, ...] = dataclasses.field(repr=False)
    _dynamo_output_spec: Output | None = dataclasses.field(repr=False)

    @property
    def graph(self) -> torch.fx.Graph:
        """The graph of `graph_module`."""
        return self.graph_module.graph

    @property
    def guards(self) -> Guards:
        """What was assumed besides the arguments, as it was found last."""
        return self.guard_check.guards

    @functools.cached_property
    def open_inputs(self) -> frozenset[int]:
        """Which inputs have sizes that differ from call to call."""
        nodes = self.graph.find_nodes(op="placeholder")
        return frozenset(i for i, node in enumerate(nodes) if is_symbolic(node.meta.get("val")))

    def no_more_guards(self) -> contextlib.AbstractContextManager[Any]:
        """What the program is lowered under."""
        return no_more_guards(self.environment)

    def revalidate(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Decide whether the program is still valid for a call, after a watch has failed.

        The arguments must match `argument_spec`, and the global state must be that of capture.

        Returns True when it is; then `guards.watches` and `inputs` are new (a replaced parameter
        is bound anew) and have to be taken over. False: capture again.
        """
        if not self.guard_check.check(args, kwargs):
            return False
        live = self.guard_check.refresh(args, kwargs)
        if live is None:
            return False
        inputs = list(self.inputs)
        for index, position in enumerate(self._dynamo_positions):
            binding = inputs[index]
            if not isinstance(binding, BoundTensor) or binding.is_constant:
                continue
            facts = TensorFacts.of(live[position])
            if index in self.open_inputs:  # Dynamo's guards say which sizes it may have
                facts = dataclasses.replace(
                    facts, sizes=binding.facts.sizes, strides=binding.facts.strides
                )
            if facts != binding.facts:
                return False
            inputs[index] = dataclasses.replace(binding, tensor=live[position])
        if self._dynamo_output_spec is not None:
            try:
                leaves = self._leaves(args, kwargs)
                spec = self.bytecode.infer_outputs(args, kwargs, leaves)
            except CannotRebuildError:
                return False
            rebound = rebound_outputs(self._dynamo_output_spec, spec)
            if rebound is None:
                return False
            self._rebind(rebound)
        if self.output_spec is not None:
            bound = {id(binding.tensor) for binding in inputs if isinstance(binding, BoundTensor)}
            before = {id(b.tensor) for b in self.inputs if isinstance(b, BoundTensor)}
            if any(id(value) in before - bound for value in known_outputs(self.output_spec)):
                return False
        self.inputs = tuple(inputs)
        return True

    def _rebind(self, rebound: Mapping[int, torch.Tensor]) -> None:
        """Return other tensors from outside of the arguments, by the ids of those of before."""
        if not rebound:
            return
        if self.output_spec is not None:
            self.output_spec = with_rebound(self.output_spec, rebound)
        assert self._dynamo_output_spec is not None
        self._dynamo_output_spec = with_rebound(self._dynamo_output_spec, rebound)

    def replaceable(self) -> list[Any]:
        """Return the objects outside of the arguments that may be others at a later call.

        The guards know nothing of them, see `Guards.replaceable`. A result may be one that is a
        tensor: the one that is found is returned.
        """
        specs = [spec for spec in (self.output_spec, self._dynamo_output_spec) if spec is not None]
        results = {id(value) for spec in specs for value in fixed_outputs(spec)}

        def is_in_result(value: Any) -> bool:
            items = value if isinstance(value, tuple) else ()
            return id(value) in results or any(map(is_in_result, items))

        return [value for value in self.guards.replaceable() if not is_in_result(value)]

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the captured program with PyTorch's operators: the reference meaning of it.

        The arguments must match `argument_spec`; nothing is checked.
        """
        given = self.number_values(args, kwargs)
        leaves = self._leaves(args, kwargs)
        numbers = self.number_results.values(given, leaves)
        with torch.no_grad():
            if self.needs_bytecode:
                result = self.bytecode.bind(self.graph_callable())(*args, **kwargs)
            else:
                assert self.output_spec is not None
                run = in_inference_mode if self.in_inference_mode else lambda graph: graph
                tensors = run(running(self.graph_module))(*self.input_values(args, kwargs))
                value_of = self.number_results.compute(given, leaves)
                result = rebuild_output(self.output_spec, tensors, leaves, numbers, value_of)
        for place, value in self.guards.stores_of(numbers):
            place.write(value)
        return result

    def input_values(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return what the graph's inputs are at a call."""
        leaves = self._leaves(args, kwargs)
        numbers = self.number_values(args, kwargs)

        def find(binding: InputBinding) -> Any:
            match binding:
                case ArgumentLeaf(index):
                    return leaves[index]
                case NumberInput(index):
                    return numbers[index]
            return binding.tensor

        return [find(binding) for binding in self.inputs]

    def number_values(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return what the open numbers are at a call."""
        leaves = number_leaves(args, kwargs, self.argument_spec.by_fields)
        found: list[Any] = []
        for number in self.numbers:
            match number.position:
                case int(position):
                    found.append(leaves[position][1])
                case str(name):
                    found.append(self.guards.numbers[name].read())
        tensors = self._leaves(args, kwargs)
        return [*found, *self.number_results.made(found, tensors, self._made_steps())]

    def _leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        return tensor_leaves(args, kwargs, self.argument_spec.by_fields)

    def _made_steps(self) -> list[int]:
        """The steps that make the last of the open numbers."""
        return [n.position.step for n in self.numbers if isinstance(n.position, Made)]

    def graph_callable(self) -> Callable[..., Sequence[Any]]:
        """Return what the bytecode calls, with PyTorch's operators.

        The user's globals keep it, so it keeps no program.
        """
        return self.with_numbers(self.tensor_callable())

    def tensor_callable(self) -> Callable[..., Sequence[torch.Tensor]]:
        """Return what takes the inputs of the graph but for constants, and returns its outputs."""
        graph_module = self.graph_module
        constants = [
            binding.tensor
            for binding in self.inputs[self.dynamo_input_count :]
            if isinstance(binding, BoundTensor)
        ]

        def run(*inputs: Any) -> Sequence[torch.Tensor]:
            results: Sequence[torch.Tensor] = running(graph_module)(*inputs, *constants)
            return results

        return in_inference_mode(run) if self.in_inference_mode else run

    def with_numbers(self, run: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        """Return what the bytecode calls, by what takes all inputs and gives only tensors."""
        results, made, spec = self.number_results, self._made_steps(), TupleOutput(self.tensors)
        positions = [number.position for number in self.numbers]
        if not results.any_numbers() and not made and not self.tensors:
            return run
        inputs = self.inputs[: self.dynamo_input_count]
        slots = [
            (i, binding.index)
            for i, binding in enumerate(inputs)
            if isinstance(binding, NumberInput) and not isinstance(positions[binding.index], Made)
        ]

        leaves = {b.index: i for i, b in enumerate(inputs) if isinstance(b, ArgumentLeaf)}

        def run_with_numbers(*given: Any) -> Sequence[Any]:
            numbers = [None] * len(positions)
            for position, slot in slots:
                numbers[slot] = given[position]
            tensors = {leaf: given[position] for leaf, position in leaves.items()}
            found = run(*given, *results.made(numbers, tensors, made))
            if spec.items:
                value_of = results.compute(numbers, tensors)
                found = rebuild_output(spec, found, (), value_of=value_of)
            return results.among(found, numbers, tensors)

        return run_with_numbers
