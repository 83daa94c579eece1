# SPDX-License-Identifier: Apache-2.0
"""How Python computes a number: functions that it calls, one after the other, and with what."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node, Proxy
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from hostjit.capturing.dynamic_dims import is_number, refusal
from hostjit.capturing.errors import CaptureError
from hostjit.capturing.numbers.functions import FUNCTION_OF
from hostjit.capturing.numbers.graph_sizes import is_open_number
from hostjit.capturing.numbers.item_reads import ItemRead
from hostjit.capturing.numbers.python_functions import MadeOf

__all__ = [
    "Computed",
    "Given",
    "Known",
    "Operand",
    "SizeOf",
    "Steps",
    "TensorLeaf",
    "sizes_of",
]


@dataclasses.dataclass(frozen=True)
class Given:
    """Open number `slot` of the call."""

    slot: int


@dataclasses.dataclass(frozen=True)
class SizeOf:
    """The size of a dim of a tensor leaf of the arguments."""

    leaf: int
    dim: int


@dataclasses.dataclass(frozen=True)
class TensorLeaf:
    """A tensor leaf of the arguments itself."""

    leaf: int


@dataclasses.dataclass(frozen=True)
class Computed:
    """What step `step` computed."""

    step: int


@dataclasses.dataclass(frozen=True, eq=False)
class Known:
    """A value that is the same at every call."""

    value: Any


Operand = Given | SizeOf | TensorLeaf | Computed | Known


def sizes_of(leaves: Iterable[tuple[int, torch.Tensor]]) -> dict[Any, SizeOf]:
    """Return by symbols which sizes they are, of tensor leaves and the fake tensors of these."""
    found: dict[Any, SizeOf] = {}
    for leaf, fake in leaves:
        sizes: Sequence[Any] = fake.shape
        for dim, size in enumerate(sizes):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                found.setdefault(size.node.expr, SizeOf(leaf, dim))
    return found


class Steps:
    """Collects them.

    Attributes:
        steps: functions and their operands.
        made: of what was made already, how.
    """

    def __init__(
        self,
        slots: Mapping[Any, int],
        sizes: Mapping[Any, SizeOf],
        made_symbols: Mapping[Any, MadeOf],
    ) -> None:
        """Begin with none.

        Args:
            slots: of the open numbers of the call, by their symbols.
            sizes: where the call has open sizes, by their symbols.
            made_symbols: how Python makes others, by their symbols.
        """
        self._slots = slots
        self._sizes = sizes
        self._made_symbols = made_symbols
        self.made: dict[Any, Operand] = {}
        self.steps: list[tuple[Callable[..., Any], tuple[Operand, ...]]] = []

    def operand(self, value: Any) -> Operand:
        """Return what stands for a number, a node that gives one, or how one was computed.

        Raises CaptureError for what Python does not compute.
        """
        if is_number(value):
            return self._given(value)
        if not isinstance(value, Node | MadeOf):
            return Known(value)
        if value not in self.made:
            self.made[value] = (
                self._make_again(value) if isinstance(value, MadeOf) else self._make(value)
            )
        return self.made[value]

    def _given(self, number: Any) -> Operand:
        slot = self._slots.get(number.node._expr)
        if slot is not None:
            return Given(slot)
        return self._of_symbols(number) if is_open_number(number) else Known(number.node.hint)

    def _of_symbols(self, number: Any) -> Operand:
        """What an int is of open sizes and numbers, when the nodes that made it do not tell."""
        expression = number.node.expr
        if not isinstance(number, torch.SymInt):
            raise _refusal()
        if expression not in self.made:
            self.made[expression] = self._make_of_symbols(expression)
        return self.made[expression]

    def _make_of_symbols(self, expression: Any) -> Operand:
        graph = Graph()
        found: dict[Any, Any] = {}
        for symbol in sorted(expression.free_symbols, key=str):
            node = graph.placeholder(str(symbol))
            self.made[node] = self._of_symbol(symbol)
            found[symbol] = Proxy(node)
        result: Any = sympy_interp(PythonReferenceAnalysis, found, expression)
        return self.operand(result.node)

    def _of_symbol(self, symbol: Any) -> Operand:
        if symbol in self._slots:
            return Given(self._slots[symbol])
        if symbol in self._sizes:
            return self._sizes[symbol]
        if symbol not in self._made_symbols:
            raise _refusal()
        return self.operand(self._made_symbols[symbol])

    def _make_again(self, made_of: MadeOf) -> Operand:
        if isinstance(made_of.function, ItemRead):
            return self._read(made_of.function)
        function = FUNCTION_OF.get(made_of.function)
        if function is None:
            raise _refusal()
        return self._call(function, tuple(self.operand(value) for value in made_of.operands))

    def _read(self, read: ItemRead) -> Operand:
        if read not in self.made:
            operands: tuple[Operand, ...] = tuple(map(TensorLeaf, read.leaves))
            if read.compute is not None:
                operands = (self._call(read.compute, operands),)
            self.made[read] = self._call(torch.Tensor.item, operands)
        return self.made[read]

    def _make(self, node: Node) -> Operand:
        if isinstance(node.target, ItemRead):
            return self._read(node.target)
        number = _value(node)
        if node.op == "placeholder" and is_number(number):
            return self._given(number)
        function = FUNCTION_OF.get(node.target)
        is_call = node.op in ("call_function", "call_method")
        if not is_call or function is None or node.kwargs:
            if not is_number(number):
                raise _refusal()
            return self._of_symbols(number)
        if not all(isinstance(o, (int, float, Node)) for o in node.args):
            raise refusal(f"a result is made by {node.target} of what is no number")
        return self._call(function, tuple(self.operand(argument) for argument in node.args))

    def _call(self, function: Callable[..., Any], operands: tuple[Operand, ...]) -> Operand:
        self.steps.append((function, operands))
        return Computed(len(self.steps) - 1)


def _refusal() -> CaptureError:
    return refusal("a result is a number that PyTorch computes")


def _value(node: Node) -> Any:
    return node.meta.get("example_value")
