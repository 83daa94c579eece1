# SPDX-License-Identifier: Apache-2.0
"""Specializes a graph that Dynamo or AOTAutograd made: its inputs are its arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any

import torch
import torch._dynamo
from torch._subclasses.fake_tensor import FakeTensorMode

from hostjit import _C
from hostjit.capturing.contexts import eager_graph
from hostjit.capturing.dynamic_dims import no_more_guards
from hostjit.capturing.failures import translate_failure
from hostjit.capturing.functional.number_inputs import with_numbers, without_objects
from hostjit.capturing.functional.trace import FunctionalGraph, trace_functional
from hostjit.capturing.gradients.effect_tokens import without_effect_tokens
from hostjit.capturing.numbers.open_numbers import OpenNumber, values_of
from hostjit.capturing.numbers.refused_numbers import check_numbers
from hostjit.capturing.numbers.results import NumberResults
from hostjit.capturing.overlap import counts_from_storage
from hostjit.capturing.program import ArgumentLeaf, BoundTensor, InputBinding, NumberInput
from hostjit.capturing.results.outputs import ConstantOutput, GraphOutput, Output, TupleOutput
from hostjit.capturing.results.unused import drop_unused
from hostjit.capturing.tensors import TensorFacts, check_tensor
from hostjit.capturing.thread_state import thread_state_kept
from hostjit.compiling.number_values import NumberValues
from hostjit.compiling.options import Options
from hostjit.compiling.output_descriptions import describe_output
from hostjit.compiling.specialize import describe_inputs, row_guard
from hostjit.compiling.specializer import Specializer

__all__ = ["GraphCompilation", "MadeOfOutputs", "compile_graph", "flat_output"]


@dataclasses.dataclass(frozen=True)
class MadeOfOutputs:
    """What is made of the outputs of a graph.

    Attributes:
        output: that.
        numbers: of views in it.
        eager: a graph that returns it; runs eagerly.
    """

    output: Output
    numbers: NumberResults
    eager: torch.fx.GraphModule


def compile_graph(
    module: torch.fx.GraphModule,
    name: str,
    options: Options,
    made: MadeOfOutputs | None = None,
    donates: bool = False,
) -> _C.CompiledFunction:
    """Return a callable that takes the graph's inputs and returns the tuple of its outputs.

    Args:
        module: the graph.
        name: what warnings and dumps call it.
        options: those of the backend.
        made: what is made of its outputs, if that is not the tuple of them.
        donates: make programs that release the inputs of a boxed call after their last use.
    """
    compilation = GraphCompilation(module, name, options, made, donates)
    return _C.CompiledFunction(compilation.target, compilation, called_by_dynamo=True)


class GraphCompilation(Specializer):
    """Specializes one graph on the tensors and the numbers that it is called with.

    What surrounds the graph (Python objects, global state, identity of parameters) is guarded by
    whoever made it. A specialization checks again what its program assumes about its inputs: that
    is how one graph with symbolic sizes gets a program for each.
    """

    shown = Specializer.shown | {"__name__"}

    def __init__(
        self,
        module: torch.fx.GraphModule,
        name: str,
        options: Options,
        made: MadeOfOutputs | None = None,
        donates: bool = False,
    ) -> None:
        # Dynamo would see the frames of an eager run, and compile them once more.
        super().__init__(
            torch._dynamo.disable(eager_graph(made.eager if made else module)),
            options.runtime,
            options.fallback,
            options.reuse_outputs,
            options.choices(),
        )
        self.module = without_effect_tokens(module)
        self._made = made
        self._donates = donates
        # Dynamo asks what a backend returned for its name at every call.
        self.__name__ = name

    def _target_name(self) -> str:
        return self.__name__

    def _compile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _C.Specialization | None:
        module, objects = without_objects(with_numbers(self.module, args))
        return self._compile_module(module, args, kwargs, FakeTensorMode(), objects=objects)

    def _compile_module(
        self,
        module: torch.fx.GraphModule,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        mode: FakeTensorMode,
        assumed: Set[Any] = frozenset(),
        objects: Mapping[int, Any] = MappingProxyType({}),
        numbers: Sequence[OpenNumber] = (),
    ) -> _C.Specialization | None:
        """Compile a graph for the tensors of a call; with symbols in `mode`, for any size.

        `assumed`: see `size_guard`. `objects`: see `without_objects`. `numbers`: those that the
        graph takes after its tensors.
        """
        tensors = [value for value in args if isinstance(value, torch.Tensor)]
        for index, tensor in enumerate(tensors):
            check_tensor(tensor, f"input {index}")
        try:
            with thread_state_kept():
                inputs = [*tensors, *values_of(numbers)]
                graph = trace_functional(module, inputs, mode, checks_offsets=True)
            if numbers:
                check_numbers(graph.graph_module.graph, numbers, mode.shape_env)
            result = (
                self._made.output if self._made else flat_output(graph.graph_module.graph, objects)
            )
            needed = drop_unused(
                graph.graph_module, _bind(graph, len(tensors)), graph.mutated, result
            )
            if _C.capture_dump_enabled():
                _C.dump_capture(self.__name__, graph.graph_module.print_readable(False))
            with no_more_guards(mode.shape_env):
                program = self._compile_program(
                    graph.graph_module.graph, self.__name__, self._donated(needed.inputs)
                )
            symbolic = row_guard(
                graph.graph_module.graph, mode.shape_env, program, assumed, numbers
            )
            limits = symbolic.pop("numbers", [])
        except Exception as error:
            # Any: the graph may come from a program whose author knows nothing of hostjit.
            raise translate_failure(error) from error
        self._count += 1
        self._latest = program
        values = NumberValues(self._made.numbers if self._made else NumberResults())
        return _C.Specialization(
            args=args,
            kwargs=kwargs,
            program=program,
            bindings=describe_inputs(needed.inputs),
            output=describe_output(needed.output_spec, values),
            numbers=[(*limit, n.position) for n, limit in zip(numbers, limits, strict=False)],
            results=values.described,
            mutated=list(needed.mutated),
            leaf_checks=_unshifted(graph, len(tensors)),
            runtime=self.runtime,
            reuse_outputs=self.reuse_outputs,
            **symbolic,
        )

    def _donated(self, inputs: Sequence[InputBinding]) -> list[int]:
        """Return which inputs of a program calls may give up."""
        if not self._donates:
            return []
        return [i for i, binding in enumerate(inputs) if isinstance(binding, ArgumentLeaf)]


def _bind(graph: FunctionalGraph, num_tensors: int) -> list[InputBinding]:
    """Where the inputs of a graph come from: tensors, then numbers of the call, then constants."""
    constants = graph.inputs[graph.dynamo_input_count :]
    return [
        *map(ArgumentLeaf, range(num_tensors)),
        *map(NumberInput, range(graph.dynamo_input_count - num_tensors)),
        *(BoundTensor(tensor, TensorFacts.of(tensor), is_constant=True) for tensor in constants),
    ]


def _unshifted(graph: FunctionalGraph, num_tensors: int) -> list[tuple[str, int]]:
    """The checks of the tensors that have to begin where their memory does."""
    if any(position >= num_tensors for position in graph.unshifted):
        raise counts_from_storage()
    return [("unshifted", position) for position in graph.unshifted]


def flat_output(graph: torch.fx.Graph, objects: Mapping[int, Any] = MappingProxyType({})) -> Output:
    """Return how the tuple of a graph's results is rebuilt. `objects`: see `without_objects`."""
    results = graph.output_node().args[0]
    assert isinstance(results, (tuple, list))
    return TupleOutput(
        tuple(
            GraphOutput(index)
            if isinstance(value, torch.fx.Node)
            else ConstantOutput(objects.get(index, value))
            for index, value in enumerate(results)
        )
    )
