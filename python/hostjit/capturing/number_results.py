# SPDX-License-Identifier: Apache-2.0
"""Numbers that a call returns or leaves behind: Python computes them from its open numbers.

The steps are the functions that the user's code calls, in its order, so that a result is what eager
has: of the same type, and as long as an int of Python may be.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import GraphModule, Node

from hostjit.capturing.dynamic_dims import is_number, refusal
from hostjit.capturing.errors import CaptureError
from hostjit.capturing.graph_sizes import is_open_number
from hostjit.capturing.number_functions import FLOAT_FUNCTIONS, MadeOf, new_number
from hostjit.capturing.open_numbers import Made, OpenNumber, bound_int

__all__ = ["FUNCTIONS", "Computed", "Given", "Known", "NumberResults", "Operand", "take_numbers"]


@dataclasses.dataclass(frozen=True)
class Given:
    """Open number `slot` of the call."""

    slot: int


@dataclasses.dataclass(frozen=True)
class Computed:
    """What step `step` computed."""

    step: int


@dataclasses.dataclass(frozen=True, eq=False)
class Known:
    """A value that is the same at every call."""

    value: Any


Operand = Given | Computed | Known


@dataclasses.dataclass(frozen=True, eq=False)
class NumberResults:
    """Which results of Dynamo's graph are numbers, and how they are computed.

    Attributes:
        steps: functions and what they are called with; a step may use those before it.
        results: one entry for each result of the graph; None for a tensor.
    """

    steps: tuple[tuple[Callable[..., Any], tuple[Operand, ...]], ...] = ()
    results: tuple[Operand | None, ...] = ()

    def any_numbers(self) -> bool:
        """Whether there are any."""
        return any(result is not None for result in self.results)

    def compute(self, numbers: Sequence[Any]) -> list[Any]:
        """Return what the steps compute of the open numbers of a call."""
        computed: list[Any] = []
        for function, operands in self.steps:
            computed.append(function(*(_value_of(o, numbers, computed) for o in operands)))
        return computed

    def made(self, numbers: Sequence[Any], steps: Sequence[int]) -> list[Any]:
        """Return what some of the steps compute."""
        computed = self.compute(numbers) if steps else []
        return [computed[step] for step in steps]

    def values(self, numbers: Sequence[Any]) -> list[Any]:
        """Return the results for the open numbers of a call; None for a tensor."""
        computed = self.compute(numbers)
        return [
            None if result is None else _value_of(result, numbers, computed)
            for result in self.results
        ]

    def among(self, tensors: Sequence[Any], numbers: Sequence[Any]) -> tuple[Any, ...]:
        """Return all results of the graph, of which `tensors` are those that are no numbers."""
        rest, values = iter(tensors), self.values(numbers)
        return tuple(
            next(rest) if result is None else value
            for result, value in zip(self.results, values, strict=True)
        )


def _value_of(operand: Operand, numbers: Sequence[Any], computed: Sequence[Any]) -> Any:
    match operand:
        case Given(slot):
            return numbers[slot]
        case Computed(step):
            return computed[step]
    return operand.value


def take_numbers(
    module: GraphModule,
    slots: Mapping[Any, int],
    made_symbols: Mapping[Any, MadeOf] = MappingProxyType({}),
    assumed: Collection[Any] = (),
    *,
    makes_floats: bool = False,
) -> tuple[NumberResults, list[OpenNumber]]:
    """Take the numbers that Python makes out of a graph of Dynamo's, and return how to make them.

    These are the results that are numbers, and those that the graph has by `made_symbols`: it takes
    them as inputs after its own.

    Args:
        module: the graph; it is changed.
        slots: of the open numbers of the call, by their symbols.
        made_symbols: see `number_functions_of_python`.
        assumed: those of them that something is assumed about.
        makes_floats: take out all floats that operators take.

    Returns the results, and the numbers that the graph or the assumptions take. Raises CaptureError
    for a number that depends on sizes, or that Python does not compute.
    """
    output = module.graph.output_node()
    steps = _Steps(slots)
    made = _take_made(module, steps, made_symbols, makes_floats)
    known = {number.symbol for number in made}
    made += [_make(made_symbols[s], steps) for s in assumed if s in made_symbols and s not in known]
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    numbers = [node for node in results if isinstance(node, Node) and is_number(_value(node))]
    if not numbers and not made:
        return NumberResults(results=(None,) * len(results)), []
    found = tuple(steps.operand(node) if node in numbers else None for node in results)
    output.args = (tuple(node for node in results if node not in numbers),)
    module.graph.eliminate_dead_code(
        lambda node: node.op in ("placeholder", "output") or not is_number(_value(node))
    )
    module.recompile()
    return NumberResults(tuple(steps.steps), found), made


def _take_made(
    module: GraphModule, steps: _Steps, symbols: Collection[Any], makes_floats: bool
) -> list[OpenNumber]:
    graph = module.graph
    made: list[OpenNumber] = []
    last = next(iter(graph.nodes))
    for node in list(graph.nodes):
        number = _value(node)
        if node.op == "placeholder":
            last = node
        elif is_number(number) and node.users:
            if number.node._expr not in symbols:
                if not makes_floats or not _is_taken_by_an_operator(node):
                    continue
                number = new_number(number.node.shape_env, number.node.hint, f"made_{len(made)}")
            operand = steps.operand(node)
            assert isinstance(operand, Computed)
            is_first = last.op != "placeholder"
            with graph.inserting_before(last) if is_first else graph.inserting_after(last):
                last = graph.placeholder(f"made_{len(made)}")
            last.meta["example_value"] = number
            node.replace_all_uses_with(last)
            steps.made[last] = operand
            made.append(_open_number(operand, number))
    return made


def _is_taken_by_an_operator(node: Node) -> bool:
    """Whether a float that is not known is taken by what returns no number."""
    number = _value(node)
    if not isinstance(number, torch.SymFloat) or not is_open_number(number):
        return False
    return any(user.op != "output" and not is_number(_value(user)) for user in node.users)


def _make(made_of: MadeOf, steps: _Steps) -> OpenNumber:
    operand = steps.operand(made_of)
    assert isinstance(operand, Computed)
    return _open_number(operand, made_of.value)


def _open_number(operand: Computed, number: Any) -> OpenNumber:
    symbol, kind = number.node._expr, number.node.pytype
    if kind is int:
        bound_int(number.node.shape_env, symbol, number.node.hint)
    return OpenNumber(Made(operand.step), kind, symbol, number)


class _Steps:
    def __init__(self, slots: Mapping[Any, int]) -> None:
        self._slots = slots
        self.made: dict[Node | MadeOf, Operand] = {}
        self.steps: list[tuple[Callable[..., Any], tuple[Operand, ...]]] = []

    def operand(self, value: Any) -> Operand:
        if is_number(value):
            return self._given(value) or Known(value.node.hint)
        if not isinstance(value, Node | MadeOf):
            return Known(value)
        if value not in self.made:
            self.made[value] = (
                self._make_again(value) if isinstance(value, MadeOf) else self._make(value)
            )
        return self.made[value]

    def _given(self, number: Any) -> Operand | None:
        slot = self._slots.get(number.node._expr)
        if slot is None and is_open_number(number):
            raise _refusal()
        return None if slot is None else Given(slot)

    def _make_again(self, made_of: MadeOf) -> Operand:
        function = _FUNCTIONS.get(made_of.function)
        if function is None:
            raise _refusal()
        operands = tuple(self.operand(operand) for operand in made_of.operands)
        self.steps.append((function, operands))
        return Computed(len(self.steps) - 1)

    def _make(self, node: Node) -> Operand:
        number = _value(node)
        if node.op == "placeholder" and is_number(number):
            slot = self._slots.get(number.node._expr)
            if slot is not None:
                return Given(slot)
            if not is_open_number(number):
                return Known(number.node.hint)
        function = _FUNCTIONS.get(node.target)
        is_call = node.op in ("call_function", "call_method")
        if not is_call or function is None or node.kwargs:
            raise _refusal()
        if not all(isinstance(o, (int, float, Node)) for o in node.args):
            raise refusal(f"a result is made by {node.target} of what is no number")
        operands = tuple(self.operand(argument) for argument in node.args)
        self.steps.append((function, operands))
        return Computed(len(self.steps) - 1)


def _refusal() -> CaptureError:
    return refusal("a result is a number that depends on sizes, or is computed by PyTorch")


def _value(node: Node) -> Any:
    return node.meta.get("example_value")


# What Python calls, by what stands for it in graphs.
_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **{
        function: function
        for function in (
            *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv),
            *(operator.mod, operator.pow, operator.neg, operator.pos, operator.abs),
            *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
            *(operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift),
            *(operator.not_, operator.invert),
            *(math.floor, math.ceil, math.trunc, round, abs, pow),
        )
    },
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
    operator.ifloordiv: operator.floordiv,
    operator.imod: operator.mod,
    operator.ipow: operator.pow,
    torch.sym_max: max,
    torch.sym_min: min,
    torch.sym_float: float,
    torch.sym_int: int,
    "__round__": round,
    torch.sym_not: operator.not_,
    **{
        getattr(torch, f"_sym_{name}"): getattr(math, name)
        for name in (
            *("sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
            "log2",
        )
    },
    **{function: function for function in FLOAT_FUNCTIONS},
}
FUNCTIONS = tuple(dict.fromkeys(_FUNCTIONS.values()))
"""What steps may call. Their names differ, but for `operator.pow` and `pow`, which are the same."""
