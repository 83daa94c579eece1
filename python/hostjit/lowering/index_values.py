# SPDX-License-Identifier: Apache-2.0
"""The sizes of a program that are only known at the call, as its index values."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.capturing.dynamic_dims import is_symbolic, refusal
from hostjit.kernels.sizes import Size, SymbolicSize, symbols_in
from hostjit.lowering.sizes import is_contiguous, shape_of, size_of, strides_of
from hostjit.lowering.types import dtype_name

__all__ = ["IndexValues", "dependent_sizes", "input_type", "number_name"]


class IndexValues:
    """Index values by the sizes that they hold; each is made at its first use.

    They are ops of the body, behind those that it has, which is too late for use in the region of
    one of them.

    Attributes:
        late: what was made too late; the program is to be written again, with these made first.
    """

    def __init__(self, create: Callable[..., Any]) -> None:
        self._create = create
        self._values: dict[Size, _C.Value] = {}
        self._is_late = False
        self.late: list[Size] = []

    def inside(self) -> IndexValues:
        """Return the same for use in regions of the op that the body ends with."""
        inner = copy.copy(self)
        inner._is_late = True
        return inner

    def define_inputs(self, inputs: Sequence[tuple[_C.Value, torch.Tensor | torch.SymInt]]) -> None:
        """Read the symbols off the inputs, and make the other sizes in the types of these."""
        for value, number in inputs:
            if not isinstance(number, torch.Tensor) and value.name == str(number):
                self._values[size_of(number)] = value
        symbolic = [
            (value, tensor)
            for value, tensor in inputs
            if isinstance(tensor, torch.Tensor) and is_symbolic(tensor)
        ]
        for value, tensor in symbolic:
            for dim, size in enumerate(shape_of(tensor)):
                if isinstance(size, SymbolicSize) and size not in self._values:
                    self._define(size, "size", {"source": value, "dim": dim})
        for _, tensor in symbolic:
            self.type_of(tensor)

    def value(self, size: Size) -> _C.Value:
        """The index value that holds a size."""
        if size not in self._values:
            if self._is_late:
                self.late.append(size)
            if isinstance(size, SymbolicSize):
                self._derive(size)
            else:
                self._values[size] = self._create("index_constant", {"value": size}, ["index"])
        return self._values[size]

    def number(self, size: Size) -> int | str:
        """A size as a field of an op or a part of a type: a number, or the name of its value."""
        return self.value(size).name if isinstance(size, SymbolicSize) else size

    def type_of(self, tensor: torch.Tensor) -> _C.TensorType:
        """The type of a (fake) strided tensor."""
        dtype, device = dtype_name(tensor.dtype), str(tensor.device)
        return self.type(dtype, shape_of(tensor), strides_of(tensor), device)

    def type(
        self, dtype: str, shape: Sequence[Size], strides: Sequence[Size], device: str
    ) -> _C.TensorType:
        """A tensor type in numbers and index values."""
        return _type(dtype, shape, strides, device, self.number)

    def _derive(self, size: SymbolicSize) -> None:
        symbol = size.symbol
        if symbol is None:
            operation, left, right = size.halves()
        elif symbol.definition is None:
            raise refusal(f"{symbol} is not the size of a dim of an argument")
        else:
            operation, left, right = symbol.definition
        operands = {"lhs": self.value(left), "rhs": self.value(right)}
        self._define(size, "index_binary", {"operation": operation, **operands})

    def _define(self, size: Size, op: str, fields: dict[str, Any]) -> None:
        self._values[size] = self._create(op, fields, ["index"], names=[_name(size)])


def number_name(number: torch.SymInt | torch.SymFloat) -> str:
    """The name of the input that brings an open number: of its symbol, if it is none but that."""
    if isinstance(number, torch.SymFloat):
        return str(number) if number.node.expr.is_Symbol else "number"
    size = size_of(number)
    is_symbol = isinstance(size, SymbolicSize) and size.symbol is not None
    return str(number) if is_symbol else "number"


def dependent_sizes(inputs: Sequence[torch.Tensor | torch.SymInt]) -> dict[str, str]:
    """The sizes of inputs that follow from others: their names, and what they must be."""
    found: dict[str, str] = {}
    for tensor in inputs:
        if not isinstance(tensor, torch.Tensor):
            continue
        for size in shape_of(tensor):
            if isinstance(size, SymbolicSize) and size.symbol is None:
                if any(symbol.definition for symbol in symbols_in([size])):
                    raise refusal(f"the size of an argument is {size}")
                found[_name(size)] = repr(size)
    return found


def input_type(tensor: torch.Tensor) -> _C.TensorType:
    """The type of an input, whose index values are made when all inputs are known."""
    dtype, device = dtype_name(tensor.dtype), str(tensor.device)
    return _type(dtype, shape_of(tensor), strides_of(tensor), device, _number)


def _type(
    dtype: str,
    shape: Sequence[Size],
    strides: Sequence[Size],
    device: str,
    number: Callable[[Size], int | str],
) -> _C.TensorType:
    dims = [number(size) for size in shape]
    steps = None if is_contiguous(shape, strides) else [number(stride) for stride in strides]
    return _C.TensorType(dtype, dims, steps, device)


def _number(size: Size) -> int | str:
    return _name(size) if isinstance(size, SymbolicSize) else size


def _name(size: Size) -> str:
    """A size in letters, digits and underscores: as legible as that allows."""
    words = {"*": "x", "+": "_plus_", "-": "minus"}
    word = re.sub(r"[*+-]", lambda found: words[found.group()], repr(size))
    return word if word[0].isalpha() else f"n{word}"
