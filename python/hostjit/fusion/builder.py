# SPDX-License-Identifier: Apache-2.0
"""Writes the nodes of a fusion's graph: ATen operators, and Python's for integer scalars."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node

from hostjit._C import Error
from hostjit.fusion.data_type import DataType
from hostjit.fusion.values import Number, Operand, Scalar, Shape, Tensor

if TYPE_CHECKING:
    from hostjit.fusion.defining import Definition

__all__ = ["Builder", "aten"]

aten: Any = torch.ops.aten


class Builder:
    """Makes the values of one call of an operation; errors name the operation.

    Attributes:
        fusion: the definition that it adds to.
        graph: of that definition.
        operation: the name of the operation.
    """

    def __init__(self, fusion: Definition, graph: Graph, operation: str) -> None:
        self.fusion = fusion
        self.graph = graph
        self.operation = operation

    def error(self, message: str) -> Error:
        """Return the error to raise."""
        return Error(f"ops.{self.operation}: {message}")

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Node:
        """Add a call; arguments are nodes, numbers, and tensors of the fusion."""
        return self.graph.call_function(
            function,
            tuple(_argument(arg) for arg in args),
            {name: _argument(arg) for name, arg in kwargs.items()},
        )

    def make(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Node:
        """Add a call that makes a tensor of nothing, on the device of the fusion's inputs."""
        node = self.call(function, *args, **kwargs)
        self.fusion.placed.append(node)
        return node

    def tensor(self, node: Node, data_type: DataType, sizes: Shape) -> Tensor:
        """Return what a node computes."""
        return Tensor(self.fusion, self.fusion.new_name("T"), data_type, node, sizes)

    def constant(self, value: Number, data_type: DataType | None = None) -> Scalar:
        """Return a Python number, which has no name of its own."""
        return Scalar(self.fusion, "", data_type or data_type_of(value), value)

    def scalar(
        self, data_type: DataType, number: Node | None = None, tensor: Node | None = None
    ) -> Scalar:
        """Return a scalar that a node computes."""
        return Scalar(
            self.fusion, self.fusion.new_name("S"), data_type, number=number, tensor=tensor
        )

    def known_scalar(self, value: Number, data_type: DataType) -> Scalar:
        """Return a scalar that is known."""
        return Scalar(self.fusion, self.fusion.new_name("S"), data_type, value)

    def cast(self, operand: Operand, data_type: DataType) -> Node:
        """Return a tensor as one of this dtype; a scalar as one without dims."""
        dtype = data_type.torch_dtype
        if isinstance(operand, Tensor):
            node, found = operand.node, operand.dtype()
        elif operand.tensor is not None:
            node, found = operand.tensor, operand.dtype()
        else:
            value = operand.as_number()
            if operand.value is not None:
                value = data_type.convert(operand.value)
            return self.call(aten.full.default, [], value, dtype=dtype)
        if found.torch_dtype == dtype:
            return node
        return self.call(aten.to.dtype, node, dtype)

    def number(self, scalar: Scalar, what: str) -> Any:
        """Return a scalar as a Python number; raises Error where it is only known as a tensor."""
        found = scalar.as_number()
        if found is None:
            raise self.error(f"{what} has to be a constant, an input or integer arithmetic of such")
        return found

    def integer(self, scalar: Scalar, what: str) -> Any:
        """Return an integer scalar as a Python number."""
        if not scalar.dtype().is_integral:
            raise self.error(f"{what} has to be an integer, found {scalar}")
        return self.number(scalar, what)

    def _size(self, scalar: Scalar, what: str) -> Any:
        """A size; scalars of the fusion that are floating point are truncated, as nvFuser does."""
        if not scalar.name or not scalar.dtype().is_floating:
            return self.integer(scalar, what)
        number = self.number(scalar, what)
        return int(number) if scalar.value is not None else self.call(int, number)

    def sizes(self, scalars: Sequence[Scalar], what: str) -> tuple[list[Any], Shape]:
        """Return sizes for an operator, and as far as they are known; -1 is not."""
        numbers = [self._size(scalar, f"{what}[{i}]") for i, scalar in enumerate(scalars)]
        for i, number in enumerate(numbers):
            if isinstance(number, int) and number < -1:
                raise self.error(f"{what}[{i}] is {number}, expected -1 or more")
        known = [n if isinstance(n, int) and n != -1 else None for n in numbers]
        return numbers, tuple(known)

    def size_of(self, tensor: Tensor, dim: int) -> Any:
        """Return a size for an operator."""
        known = tensor.sizes[dim]
        return self.call(aten.sym_size.int, tensor, dim) if known is None else known

    def dim(self, dim: int, rank: int, what: str = "dim") -> int:
        """Return a dim counted from the front; raises Error for one that is not there."""
        least, most = (-rank, rank - 1) if rank else (-1, 0)
        if not least <= dim <= most:
            raise self.error(
                f"{what} {dim} is out of range, expected {least} to {most} for {rank} dims"
            )
        return dim + rank if dim < 0 and rank else max(dim, 0)

    def dims(self, dims: Sequence[int], rank: int, what: str = "dim") -> list[int]:
        """Return several dims in rising order; raises Error for one that is named twice."""
        found = sorted(self.dim(dim, rank, what) for dim in dims)
        for one, other in itertools.pairwise(found):
            if one == other:
                raise self.error(f"{what} {one} is named more than once in {list(dims)}")
        return found

    def broadcast(self, operands: Sequence[Operand]) -> Shape:
        """Return the sizes that operands have together; raises Error where they cannot."""
        result: list[int | None] = []
        tensors = [operand for operand in operands if isinstance(operand, Tensor)]
        for place in range(1, max((t.ndim for t in tensors), default=0) + 1):
            together: int | None = 1
            for tensor in tensors:
                size = tensor.sizes[-place] if place <= tensor.ndim else 1
                if size == 1 or size == together:
                    continue
                if size is not None and together is not None and together != 1:
                    shapes = " and ".join(str(t) for t in tensors)
                    raise self.error(
                        f"sizes {together} and {size} in dim -{place} do not fit together: {shapes}"
                    )
                together = size if together == 1 or together is None else together
            result.insert(0, together)
        return tuple(result)


def data_type_of(value: Number) -> DataType:
    """Return the dtype of a Python number."""
    if isinstance(value, bool):
        return DataType.Bool
    if isinstance(value, int):
        return DataType.Int
    return DataType.Double if isinstance(value, float) else DataType.ComplexDouble


def _argument(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.node
    if isinstance(value, (list, tuple)):
        return [_argument(item) for item in value]
    return value
