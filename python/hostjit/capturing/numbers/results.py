# SPDX-License-Identifier: Apache-2.0
"""Numbers that a call returns or leaves behind: Python computes them from open numbers and sizes.

The steps are the functions that the user's code calls, in its order, so that a result is what eager
has: of the same type, and as long as an int of Python may be.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import GraphModule, Node

from hostjit.capturing.dynamic_dims import is_number
from hostjit.capturing.numbers.graph_sizes import is_open_number
from hostjit.capturing.numbers.open_numbers import Made, OpenNumber, bound_int
from hostjit.capturing.numbers.python_functions import MadeOf, new_number
from hostjit.capturing.numbers.steps import Computed, Given, Operand, SizeOf, Steps, TensorLeaf

__all__ = ["NumberResults", "take_numbers"]

# Tensor leaves of the arguments, by their positions: a list of all, or some of them.
Leaves = Sequence[torch.Tensor] | Mapping[int, torch.Tensor]


@dataclasses.dataclass(frozen=True, eq=False)
class NumberResults:
    """Which results of Dynamo's graph are numbers, and how they are computed.

    Attributes:
        steps: functions and what they are called with; a step may use those before it.
        results: one entry for each result of the graph; None for a tensor.
        more: other numbers that calls need.
    """

    steps: tuple[tuple[Callable[..., Any], tuple[Operand, ...]], ...] = ()
    results: tuple[Operand | None, ...] = ()
    more: tuple[Operand, ...] = ()

    def with_more(self, steps: Steps, operands: tuple[Operand, ...]) -> NumberResults:
        """Return these and other numbers that the steps compute."""
        return dataclasses.replace(self, steps=tuple(steps.steps), more=(*self.more, *operands))

    def any_numbers(self) -> bool:
        """Whether there are any."""
        return any(result is not None for result in self.results)

    def compute(self, numbers: Sequence[Any], leaves: Leaves) -> Callable[[Operand], Any]:
        """Compute the steps for a call; returns what gives the values of operands.

        Args:
            numbers: the open numbers of the call.
            leaves: tensors of its arguments, those at least that are wanted, or sizes of them.
        """
        computed: list[Any] = []

        def value_of(operand: Operand) -> Any:
            match operand:
                case Given(slot):
                    return numbers[slot]
                case SizeOf(leaf, dim):
                    return leaves[leaf].shape[dim]
                case TensorLeaf(leaf):
                    return leaves[leaf]
                case Computed(step):
                    return computed[step]
            return operand.value

        for function, operands in self.steps:
            computed.append(function(*map(value_of, operands)))
        return value_of

    def made(self, numbers: Sequence[Any], leaves: Leaves, steps: Sequence[int]) -> list[Any]:
        """Return what some of the steps compute."""
        value_of = self.compute(numbers, leaves) if steps else None
        return [value_of(Computed(step)) for step in steps] if value_of else []

    def values(self, numbers: Sequence[Any], leaves: Leaves) -> list[Any]:
        """Return the results for a call, as `compute`; None for a tensor."""
        value_of = self.compute(numbers, leaves)
        return [None if result is None else value_of(result) for result in self.results]

    def among(
        self, tensors: Sequence[Any], numbers: Sequence[Any], leaves: Leaves
    ) -> tuple[Any, ...]:
        """Return all results of the graph, of which `tensors` are those that are no numbers."""
        rest, values = iter(tensors), self.values(numbers, leaves)
        return tuple(
            next(rest) if result is None else value
            for result, value in zip(self.results, values, strict=True)
        )


def take_numbers(
    module: GraphModule,
    steps: Steps,
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
        steps: none yet; those that the results need.
        made_symbols: see `number_functions_of_python`.
        assumed: those of them that something is assumed about.
        makes_floats: take out all floats that operators take.

    Returns the results, and the numbers that the graph or the assumptions take. Raises CaptureError
    for a number that Python does not compute.
    """
    output = module.graph.output_node()
    taken = _take_made(module, steps, made_symbols, makes_floats)
    for symbol in assumed:
        if symbol in made_symbols and symbol not in taken:
            taken[symbol] = _make(made_symbols[symbol], steps)
    made = [*taken.values()]
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
    module: GraphModule, steps: Steps, symbols: Collection[Any], makes_floats: bool
) -> dict[Any, OpenNumber]:
    """Return by symbols what the graph takes."""
    graph = module.graph
    made: dict[Any, OpenNumber] = {}
    placeholders: dict[Any, Node] = {}
    last = next(iter(graph.nodes))
    for node in list(graph.nodes):
        number = _value(node)
        if node.op == "placeholder":
            last = node
        elif is_number(number) and not all(_takes_no_number(u, symbols) for u in node.users):
            if number.node._expr not in symbols:
                if not makes_floats or not _is_taken_by_an_operator(node):
                    continue
                number = new_number(number.node.shape_env, number.node.hint, f"made_{len(made)}")
            operand = steps.operand(node)
            assert isinstance(operand, Computed)
            symbol = number.node._expr
            if symbol in placeholders:
                node.replace_all_uses_with(placeholders[symbol])
                continue
            known = made.setdefault(symbol, _open_number(operand, number)).known
            if known is not None:
                _put_in(known, node)
                continue
            is_first = last.op != "placeholder"
            with graph.inserting_before(last) if is_first else graph.inserting_after(last):
                last = graph.placeholder(f"made_{len(made)}")
            last.meta["example_value"] = number
            node.replace_all_uses_with(last)
            steps.made[last] = operand
            placeholders[symbol] = last
    return made


def _takes_no_number(user: Node, symbols: Collection[Any]) -> bool:
    """Whether a user of a number is not to be given it: Python makes another number of it."""
    made = _value(user)
    return user.op == "output" or (is_number(made) and made.node._expr in symbols)


def _put_in(known: int, node: Node) -> None:
    """Give operators a number that turned out to be known."""
    for user in [user for user in node.users if user.op != "output"]:
        given = user.args, user.kwargs
        user.args, user.kwargs = torch.fx.map_arg(given, lambda n: known if n is node else n)


def _is_taken_by_an_operator(node: Node) -> bool:
    """Whether a float that is not known is taken by what returns no number."""
    number = _value(node)
    if not isinstance(number, torch.SymFloat) or not is_open_number(number):
        return False
    return any(user.op != "output" and not is_number(_value(user)) for user in node.users)


def _make(made_of: MadeOf, steps: Steps) -> OpenNumber:
    operand = steps.operand(made_of)
    assert isinstance(operand, Computed)
    return _open_number(operand, made_of.value)


def _open_number(operand: Computed, number: Any) -> OpenNumber:
    symbol, kind = number.node._expr, number.node.pytype
    known = number.node.shape_env.replace(symbol)
    if kind is int and known.is_number:
        return OpenNumber(Made(operand.step), kind, known=int(known))
    if kind is int:
        bound_int(number.node.shape_env, symbol, number.node.hint)
    return OpenNumber(Made(operand.step), kind, symbol, number)


def _value(node: Node) -> Any:
    return node.meta.get("example_value")
