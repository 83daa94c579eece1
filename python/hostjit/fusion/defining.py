# SPDX-License-Identifier: Apache-2.0
"""The part of a definition that grows: inputs, operations and outputs."""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node

from hostjit import _C
from hostjit.fusion.builder import Builder, data_type_of
from hostjit.fusion.data_type import DataType
from hostjit.fusion.graph import Output
from hostjit.fusion.inputs import Input, ScalarInput, TensorInput, describe_layout
from hostjit.fusion.source import call_text, literal
from hostjit.fusion.values import Number, Scalar, Tensor

if TYPE_CHECKING:
    from hostjit.fusion.operation import Operation
    from hostjit.fusion.operations import Operations

__all__ = ["HOW_TO_DEFINE", "Definition", "State"]

HOW_TO_DEFINE = "use `with FusionDefinition() as fd: ...`, or a subclass with a method `definition`"


class State(enum.Enum):
    """How far a definition is."""

    NEW = "not being defined"
    OPEN = "being defined"
    DEFINED = "defined"
    FAILED = "without a definition, which raised"


class Definition:
    """Inputs, operations and outputs, as they are added, and the graph and text of them.

    Attributes:
        inputs: in order.
        placed: nodes of tensors that are made of nothing, on the device of the inputs.
        state: operations can be added while it is OPEN.
    """

    def __init__(self) -> None:
        self.inputs: list[Input] = []
        self.placed: list[Node] = []
        self.state = State.NEW
        self._outputs: list[Output] = []
        self._graph = Graph()
        self._last_placeholder: Node | None = None
        self._lines: list[str] = []
        self._count = 0

    @functools.cached_property
    def ops(self) -> Operations:
        """The operations: `fd.ops.add(t0, t1)`."""
        from hostjit.fusion.operations import Operations

        return Operations(self)

    def define_tensor(self, *args: Any, **kwargs: Any) -> Tensor:  # noqa: D417
        """Define a tensor input.

        Called as (shape, contiguity=False, dtype=DataType.Float, is_cpu=False, stride_order=[]) or
        as (sizes, strides, dtype=DataType.Float, static_sizes=False, is_cpu=False).

        Args:
            shape: a size per dim; -1 is any, 1 is broadcast.
            contiguity: True or False for all dims, or a list from the outermost dim in memory to
                the innermost: True for a dim whose stride is the extent of the next, None for one
                that is broadcast (of size 1, or expanded with stride 0), False for any stride.
            dtype: of the elements.
            is_cpu: it has to be on the CPU. All others have to be on one device, CPU or CUDA.
            stride_order: for each dim, how many dims are further inside; by default the last dim is
                the innermost.
            sizes, strides: of a tensor like those to come.
            static_sizes: accept these sizes only; without, any but where it is 1.

        Raises hostjit.Error for arguments that do not fit together.
        """
        self._check_open("define_tensor")
        if "strides" in kwargs or (len(args) > 1 and _are_strides(args[1])):
            return self._define_like(*args, **kwargs)
        return self._define_shape(*args, **kwargs)

    def _define_like(
        self,
        sizes: Sequence[int],
        strides: Sequence[int],
        dtype: DataType = DataType.Float,
        static_sizes: bool = False,
        is_cpu: bool = False,
    ) -> Tensor:
        if len(sizes) != len(strides):
            raise _C.Error(
                f"define_tensor: sizes has {len(sizes)} entries and strides {len(strides)}"
            )
        contiguity, order = describe_layout(sizes, strides)
        shape = [size if static_sizes or size == 1 else -1 for size in sizes]
        return self._define_shape(shape, contiguity, dtype, is_cpu, order)

    def _define_shape(
        self,
        shape: Sequence[int],
        contiguity: bool | Sequence[bool | None] = False,
        dtype: DataType = DataType.Float,
        is_cpu: bool = False,
        stride_order: Sequence[int] = (),
    ) -> Tensor:
        rank = len(shape)
        order = [entry + rank if entry < 0 else entry for entry in stride_order]
        order = order or list(range(rank - 1, -1, -1))
        if isinstance(contiguity, bool) and len(order) == rank:
            outer_first = sorted(range(rank), key=lambda dim: -order[dim])
            contiguity = [None if shape[dim] == 1 else contiguity for dim in outer_first]
        sizes = tuple(None if size == -1 else size for size in shape)
        name = self.new_name("T")
        entries = () if isinstance(contiguity, bool) else tuple(contiguity)
        defined = TensorInput(name, dtype, sizes, entries, tuple(order), is_cpu)
        self.inputs.append(defined)
        self._lines.append(f"{name} = {defined}")
        tensor = Tensor(self, name, dtype, self._placeholder(name), sizes)
        return tensor

    def from_pytorch(self, tensor: torch.Tensor, static_sizes: bool = False) -> Tensor:
        """Define a tensor input like a tensor: its dtype, rank, contiguity and order of strides.

        Sizes may be any, but for those of 1; with `static_sizes` they are those of the tensor. An
        input defined by a tensor on the CPU has to be there.
        """
        return self.define_tensor(
            sizes=list(tensor.shape),
            strides=list(tensor.stride()),
            dtype=DataType.of(tensor.dtype),
            static_sizes=static_sizes,
            is_cpu=tensor.is_cpu,
        )

    def define_scalar(
        self, value: Number | DataType | None = None, dtype: DataType | None = None
    ) -> Scalar:
        """Define a number: a constant, or without a value an input (a Double if no dtype is given).

        `define_scalar(DataType.Int)` is an input too.
        """
        self._check_open("define_scalar")
        if isinstance(value, DataType):
            if dtype is not None:
                raise _C.Error(f"define_scalar: the value is {value}, expected a number or None")
            value, dtype = None, value
        name = self.new_name("S")
        if value is None:
            data_type = dtype or DataType.Double
            self.inputs.append(ScalarInput(name, data_type))
            scalar = Scalar(self, name, data_type, number=self._placeholder(name))
        elif isinstance(value, (bool, int, float, complex)):
            data_type = dtype or data_type_of(value)
            value = data_type.convert(value)
            scalar = Scalar(self, name, data_type, value)
        else:
            raise _C.Error(
                f"define_scalar: the value is of type {type(value).__qualname__}, expected a number"
            )
        self._lines.append(f"{name} = fd.define_scalar({literal(value)}, dtype={data_type})")
        return scalar

    def define_vector(
        self, size: int | Sequence[Number | None], dtype: DataType = DataType.Int
    ) -> list[Scalar]:
        """Define as many scalar inputs, or a scalar for each value of a list (None is an input)."""
        values = [None] * size if isinstance(size, int) else size
        return [self.define_scalar(value, dtype) for value in values]

    def add_output(self, output: Tensor, alias_input: Tensor | None = None) -> None:
        """Return a tensor; or write it to a tensor input after all is computed, and not return it.

        A tensor that is both returned and written is the input, once it is written.
        """
        self._check_open("add_output")
        for what, tensor in (("output", output), ("alias_input", alias_input)):
            if tensor is None and what == "alias_input":
                continue
            if not isinstance(tensor, Tensor):
                raise _C.Error(f"add_output: {what} is {tensor!r}, expected a tensor")
            if tensor.fusion is not self:
                raise _C.Error(f"add_output: {what} is {tensor} of another FusionDefinition")
        if alias_input is not None:
            self._check_alias(output, alias_input)
        self._outputs.append(Output(output, alias_input))
        into = "" if alias_input is None else f", {alias_input.name}"
        self._lines.append(f"fd.add_output({output.name}{into})")

    def _check_alias(self, output: Tensor, alias_input: Tensor) -> None:
        if alias_input.node.op != "placeholder":
            raise _C.Error(f"add_output: alias_input is {alias_input}, which is no input")
        pairs = zip(output.sizes, alias_input.sizes, strict=False)
        fits = output.ndim == alias_input.ndim and all(a == b or None in (a, b) for a, b in pairs)
        if not fits or output.dtype() is not alias_input.dtype():
            raise _C.Error(f"add_output: {output} cannot be written to {alias_input}")

    def add_operation(
        self, operation: Operation, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Add an operation of the table, and return its results. `fd.ops` does this by name."""
        self._check_open(f"ops.{operation.name}")
        builder = Builder(self, self._graph, operation.name)
        found = operation.write(builder, **operation.bind(builder, args, kwargs))
        results = list(found) if isinstance(found, (tuple, list)) else [found]
        text = call_text(operation.name, args, kwargs)
        left = ", ".join(result.name for result in results)
        left = f"[{left}]" if isinstance(found, list) else left
        self._lines.append(f"{left} = {text}")
        return found

    def new_name(self, kind: str) -> str:
        """Return a name for a value, "T" or "S" with a number."""
        self._count += 1
        return f"{kind}{self._count - 1}"

    def _placeholder(self, name: str) -> Node:
        if self._last_placeholder is None:
            place = self._graph.inserting_before(next(iter(self._graph.nodes), None))
        else:
            place = self._graph.inserting_after(self._last_placeholder)
        with place:
            self._last_placeholder = self._graph.placeholder(name)
        return self._last_placeholder

    def _check_open(self, what: str) -> None:
        if self.state is not State.OPEN:
            raise _C.Error(f"{what}: the fusion is {self.state.value}: {HOW_TO_DEFINE}")


def _are_strides(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(type(item) is int for item in value)
