# SPDX-License-Identifier: Apache-2.0
"""Graphs of Dynamo's with symbolic sizes: one program for any size, where that can be."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols

from hostjit import _C
from hostjit.backend.graph_compilation import GraphCompilation, MadeOfOutputs
from hostjit.capturing.dynamic_dims import is_number, is_size_symbol, refusal, symbols_kept
from hostjit.capturing.errors import CaptureError, in_one_line
from hostjit.capturing.functional.number_inputs import with_numbers
from hostjit.capturing.guards.sizes import assumptions
from hostjit.capturing.numbers.graph_sizes import (
    SIZE_DIM,
    find_sizes,
    is_open_number,
    over_tensors,
    own_sizes,
    size_tensor,
    told_symbols,
    used_symbols,
)
from hostjit.capturing.numbers.open_numbers import MOST_NUMBERS, OpenNumber, bound_int
from hostjit.capturing.signal_errors import raise_of_handler
from hostjit.capturing.traced_graph import placeholder_values
from hostjit.compiling.options import Options

__all__ = ["OpenGraph", "compile_open_graph"]


def compile_open_graph(
    module: torch.fx.GraphModule,
    name: str,
    options: Options,
    made: MadeOfOutputs | None = None,
    donates: bool = False,
) -> OpenGraph | _C.Selection | None:
    """Return a callable, with `call_boxed`, for a graph that takes sizes or ints; None for others.

    Sizes that none of its tensors has come to the program as tensors of their own, ints as numbers.

    `made`, `donates`: as of `compile_graph`.
    """
    module = _with_numbers_computed(module)
    values = placeholder_values(module)
    tensors = [index for index, value in enumerate(values) if isinstance(value, torch.Tensor)]
    others = [value for value in values if not isinstance(value, torch.Tensor)]
    if not others or not all(map(is_number, others)):
        return None
    places = find_sizes(module)
    environment: ShapeEnv = others[0].node.shape_env
    missing = [number for number, place in places.items() if place is None]
    ints = [number for number in missing if _is_int(values[number])][:MOST_NUMBERS]
    untold = [number for number in missing if number not in ints]
    numbers = [values[number] for number in ints]
    mode = FakeTensorMode(shape_env=environment)
    derived = _derived_sizes(module, untold)
    try:
        sizes = own_sizes(module, untold, mode)
        with mode:
            sizes += [size_tensor(place.of(values)) for place in derived]
    except CaptureError as error:
        _C.dump_shapes(name, in_one_line(error))
        return None
    told = {number: place for number, place in places.items() if place is not None}
    told |= {number: (len(tensors) + position, SIZE_DIM) for position, number in enumerate(untold)}
    over = over_tensors(module, told, sizes, numbers)
    if made is not None:
        made = dataclasses.replace(made, eager=over_tensors(made.eager, told, sizes, numbers))
    compilation = OpenGraphCompilation(over, name, options, environment, numbers, made, donates)
    compiled = _C.CompiledFunction(compilation.target, compilation, called_by_dynamo=True)
    if sizes:
        places_of_sizes = [*(_PlaceOfSize(number) for number in untold), *derived]
        return OpenGraph(compiled, tensors, places_of_sizes, ints)
    return _C.Selection(compiled, [(position, None) for position in (*tensors, *ints)])


def _with_numbers_computed(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return the graph with ints computed that it is given beside those they are made of.

    A backward pass that shifts back by `-n` is given n and `-n`.
    """
    inputs = module.graph.find_nodes(op="placeholder")
    values = placeholder_values(module)
    ints = [index for index, value in enumerate(values) if isinstance(value, torch.SymInt)]
    expressions = {index: values[index].node.expr for index in ints}
    made = [
        index
        for index, expression in expressions.items()
        if inputs[index].users
        and not expression.is_Symbol
        and expression.free_symbols
        and expression.is_polynomial()
        and expression.free_symbols <= {*expressions.values()}
    ]
    if not made:
        return module
    graph, copies = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node]()
    graph.output(graph.graph_copy(module.graph, copies))
    for index in ints:  # Dynamo's have examples instead
        copies[inputs[index]].meta["val"] = values[index]
    given = {e: copies[inputs[index]] for index, e in expressions.items() if e.is_Symbol}
    with graph.inserting_before(copies[inputs[-1]].next):
        for index in made:
            copy = copies[inputs[index]]
            copy.replace_all_uses_with(_computed(graph, expressions[index], given))
    return torch.fx.GraphModule(module, graph)


def _computed(graph: torch.fx.Graph, expression: Any, given: Mapping[Any, Any]) -> Any:
    """Return the node that computes a polynomial of these."""
    if expression in given:
        return given[expression]
    if expression.is_Integer:
        return int(expression)
    parts = [_computed(graph, part, given) for part in expression.args]
    if expression.is_Pow:
        base, count = parts
        parts = [base] * count
    compute = operator.add if expression.is_Add else operator.mul
    found = parts[0]
    for part in parts[1:]:
        node = graph.call_function(compute, (found, part))
        operands = (x.meta["val"] if isinstance(x, torch.fx.Node) else x for x in (found, part))
        node.meta["val"] = compute(*operands)
        found = node
    return found


@dataclasses.dataclass(frozen=True)
class _PlaceOfSize:
    """Where a size is among the inputs of a graph: a number or a dim of a tensor, less a constant.

    Of `x[:, :-1]` with n columns a backward pass is given what has n - 1.
    """

    index: int
    dim: int | None = None
    more: int = 0

    def of(self, inputs: Sequence[Any]) -> Any:
        """Return the size."""
        found = inputs[self.index]
        return (found if self.dim is None else found.shape[self.dim]) - self.more


def _derived_sizes(module: torch.fx.GraphModule, untold: Sequence[int]) -> list[_PlaceOfSize]:
    """Return where sizes are that the graph computes with and is told another one of.

    `untold`: numbers among its inputs that it will be told.
    """
    values = placeholder_values(module)
    told = [v for i, v in enumerate(values) if isinstance(v, torch.Tensor) or i in untold]
    wanted = used_symbols(module.graph).difference(*map(told_symbols, told))
    found: dict[Any, _PlaceOfSize] = {}
    for index, value in enumerate(values):
        is_tensor = isinstance(value, torch.Tensor)
        for dim, size in enumerate(value.shape if is_tensor else [value]):
            expression = size.node.expr if isinstance(size, torch.SymInt) else None
            symbols = wanted & expression.free_symbols if expression is not None else set()
            for symbol in symbols:
                more = expression - symbol
                if more.is_Integer:
                    place = _PlaceOfSize(index, dim if is_tensor else None, int(more))
                    found.setdefault(symbol, place)
    return [found[symbol] for symbol in sorted(found, key=str)]


class OpenGraph:
    """Calls what is compiled with the tensors among the inputs of a graph, sizes, and then ints."""

    __slots__ = ("_compiled", "_ints", "_sizes", "_tensors")

    def __init__(
        self,
        compiled: _C.CompiledFunction,
        tensors: list[int],
        sizes: list[_PlaceOfSize],
        ints: list[int],
    ) -> None:
        """`tensors`, `sizes`, `ints`: where they are among the inputs."""
        self._compiled = compiled
        self._tensors = tensors
        self._sizes = sizes
        self._ints = ints

    @property
    def specializations(self) -> list[_C.Specialization]:
        """Those of what is compiled."""
        return self._compiled.specializations

    def __call__(self, *args: Any) -> Any:
        return self._compiled(*self._arrange(args))

    def call_boxed(self, args: list[Any]) -> Any:
        """As that of `_C.CompiledFunction`."""
        arranged = self._arrange(args)
        args.clear()
        return self._compiled.call_boxed(arranged)

    def _arrange(self, args: Sequence[Any]) -> list[Any]:
        arranged = [args[index] for index in self._tensors]
        arranged += [size_tensor(place.of(args)) for place in self._sizes]
        arranged += [args[index] for index in self._ints]
        return arranged


def _is_int(value: Any) -> bool:
    """Whether a number is an int of the caller's, which may be negative."""
    if not isinstance(value, torch.SymInt) or free_unbacked_symbols(value):
        return False
    expression = value.node.expr
    return expression.is_Symbol and not is_size_symbol(expression, value.node.shape_env)


class OpenGraphCompilation(GraphCompilation):
    """Specializes one graph, of tensors and then ints, which are open in Dynamo's environment."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        name: str,
        options: Options,
        environment: ShapeEnv,
        numbers: Sequence[torch.SymInt],
        made: MadeOfOutputs | None = None,
        donates: bool = False,
    ) -> None:
        super().__init__(module, name, options, made, donates)
        self._refused = False
        self._environment = environment
        self._numbers = numbers
        # Dynamo checks it before it calls the graph, or called the one that this is a backward of.
        self._assumed = frozenset(assumptions(environment))

    def _compile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _C.Specialization | None:
        # Dynamo takes sizes of 0 and 1 for known; they may still come with another graph's symbols.
        if not self._refused and self._is_covered(args):
            self._environment.frozen = False
            mode = FakeTensorMode(shape_env=self._environment, static_shapes=False)
            try:
                # Else a program of one size would pass for one of any, as would all later ones.
                with symbols_kept(self._environment):
                    return self._compile_module(
                        *(self._without_tokens(args), args, kwargs, mode, self._assumed),
                        numbers=self._open_numbers(args),
                    )
            except Exception as error:
                raise_of_handler(error)
                self._note_static(in_one_line(error))
            self._refused = True
        return super()._compile(args, kwargs)

    def _without_tokens(self, args: tuple[Any, ...]) -> torch.fx.GraphModule:
        """Return the graph without the tensors for which AOTAutograd gives None.

        They would keep operators with effects in order, which a program does by itself.
        """
        pairs = zip(placeholder_values(self.module), args, strict=True)
        return with_numbers(
            self.module, [model if now is not None else now for model, now in pairs]
        )

    def _is_covered(self, args: tuple[Any, ...]) -> bool:
        """Whether what the programs before have assumed is true for a call.

        Another trace in the same environment would assume it again.
        """
        sizes: dict[Any, int] = {}
        for model, tensor in zip(placeholder_values(self.module), args, strict=True):
            if isinstance(model, torch.Tensor) and tensor is not None:
                pairs: Any = zip(model.shape, tensor.shape, strict=True)
                sizes |= {size.node.expr: now for size, now in pairs if is_open_number(size)}
        made = set(assumptions(self._environment)) - self._assumed
        return not any(assumed.xreplace(sizes) == False for assumed in made)  # noqa: E712

    def _open_numbers(self, args: tuple[Any, ...]) -> list[OpenNumber]:
        """Return the ints, bounded by those of a call."""
        numbers = []
        given = args[len(args) - len(self._numbers) :]
        for slot, (value, now) in enumerate(zip(self._numbers, given, strict=True)):
            symbol = value.node.expr
            bound_int(self._environment, symbol, now)
            if now not in self._environment.var_to_range[symbol]:
                raise refusal(f"{now} is beyond what the program before was made for")
            numbers.append(OpenNumber(slot, int, symbol, value))
        return numbers
