# SPDX-License-Identifier: Apache-2.0
"""What capture hands to lowering: a functional graph, its bindings, its result, its guards."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from hostjit.capture.arguments import ArgumentSpec, TensorFacts, tensor_leaves
from hostjit.capture.outputs import Output, rebuild_output

if TYPE_CHECKING:
    from hostjit.capture.dynamo import DynamoCapture
    from hostjit.capture.guards import Guards

__all__ = ["ArgumentLeaf", "BoundTensor", "BytecodeRoute", "CapturedProgram", "InputBinding"]


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


InputBinding = ArgumentLeaf | BoundTensor


class BytecodeRoute:
    """Runs Dynamo's rebuilt bytecode around a compiled graph, for calls with Python effects."""

    def __init__(self, capture: DynamoCapture) -> None:
        self._capture = capture

    def bind(self, compiled: Callable[..., Sequence[torch.Tensor]]) -> Callable[..., Any]:
        """Return a function with the target's signature.

        Args:
            compiled: takes the first `CapturedProgram.dynamo_input_count` graph inputs as
                positional arguments, returns a tuple or list of all graph outputs.
        """
        return self._capture.bind(compiled, live_globals=True)


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
        argument_spec: what the arguments must look like.
        output_spec: how the result is rebuilt; None when `needs_bytecode`.
        guards: everything else that the capture assumed.
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
    """

    name: str
    graph_module: torch.fx.GraphModule
    inputs: tuple[InputBinding, ...]
    argument_spec: ArgumentSpec
    output_spec: Output | None
    guards: Guards
    mutated_inputs: tuple[int, ...]
    requires_disjoint_inputs: bool
    needs_bytecode: bool
    bytecode_reason: str
    bytecode: BytecodeRoute
    dynamo_input_count: int
    depends_on_storage_offset: bool
    random: bool

    @property
    def graph(self) -> torch.fx.Graph:
        """The graph of `graph_module`."""
        return self.graph_module.graph

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the captured program with PyTorch's operators: the reference meaning of it.

        The arguments must match `argument_spec`; nothing is checked.
        """
        with torch.no_grad():
            if self.needs_bytecode:
                return self.bytecode.bind(self._run_graph)(*args, **kwargs)
            leaves = tensor_leaves(args, kwargs)
            inputs = [
                leaves[binding.index] if isinstance(binding, ArgumentLeaf) else binding.tensor
                for binding in self.inputs
            ]
            assert self.output_spec is not None
            return rebuild_output(self.output_spec, self.graph_module(*inputs), leaves)

    def _run_graph(self, *inputs: torch.Tensor) -> Sequence[torch.Tensor]:
        constants = [
            binding.tensor
            for binding in self.inputs[self.dynamo_input_count :]
            if isinstance(binding, BoundTensor)
        ]
        result: Sequence[torch.Tensor] = self.graph_module(*inputs, *constants)
        return result
