# SPDX-License-Identifier: Apache-2.0
"""Graphs of Dynamo's with symbolic sizes: one program for any size, where that can be."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from hostjit import _C
from hostjit.backend.graph_compilation import GraphCompilation
from hostjit.backend.options import Options
from hostjit.capture.dynamic_dims import is_symbolic
from hostjit.capture.traced_graph import placeholder_values

__all__ = ["compile_open_graph"]

# For each number among the inputs of a graph, the tensor input and its dim that tell it.
_Numbers = dict[int, tuple[int, int]]


def compile_open_graph(
    module: torch.fx.GraphModule, name: str, options: Options
) -> Callable[..., Any] | None:
    """Return a callable for a graph whose numbers are sizes of its tensors; None for others."""
    values = placeholder_values(module)
    tensors = [index for index, value in enumerate(values) if isinstance(value, torch.Tensor)]
    if len(tensors) == len(values) or not tensors:
        return None
    numbers = _find_numbers(values)
    if numbers is None:
        return None
    compilation = OpenGraphCompilation(module, name, options, numbers)
    compiled = _C.CompiledFunction(compilation.target, compilation)
    if len(tensors) == 1:
        return lambda *args: compiled(args[tensors[0]])
    pick = operator.itemgetter(*tensors)
    return lambda *args: compiled(*pick(args))


def _find_numbers(values: Sequence[Any]) -> _Numbers | None:
    places: dict[str, tuple[int, int]] = {}
    for index, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            for dim, size in enumerate(value.shape):
                places.setdefault(str(size), (index, dim))
    numbers: _Numbers = {}
    for index, value in enumerate(values):
        if not isinstance(value, torch.Tensor):
            if not isinstance(value, torch.SymInt) or str(value) not in places:
                return None
            numbers[index] = places[str(value)]
    return numbers


class OpenGraphCompilation(GraphCompilation):
    """Specializes one graph on its tensors; the numbers among its inputs follow from them."""

    def __init__(
        self, module: torch.fx.GraphModule, name: str, options: Options, numbers: _Numbers
    ) -> None:
        super().__init__(module, name, options)
        self._numbers = numbers
        self._refused = False
        eager = self.target
        self.target = lambda *tensors: eager(*self._with_numbers(tensors))

    def _with_numbers(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        count = len(tensors) + len(self._numbers)
        given = iter(tensors)
        values = [None if index in self._numbers else next(given) for index in range(count)]
        for index, (place, dim) in self._numbers.items():
            tensor = values[place]
            assert tensor is not None
            values[index] = tensor.shape[dim]  # type: ignore[call-overload]
        return values

    def _compile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _C.Specialization | None:
        # Dynamo takes sizes of 0 and 1 for known; they may still come with another graph's symbols.
        if not self._refused:
            with contextlib.suppress(Exception):
                return self._compile_module(self.module, args, kwargs, self._mode())
            self._refused = True
        module = self._fixed(self._with_numbers(args))
        return self._compile_module(module, args, kwargs, FakeTensorMode())

    def _mode(self) -> FakeTensorMode:
        """A mode over the symbols of the graph, whose assumptions the program checks by itself."""
        traced = next(value for value in placeholder_values(self.module) if is_symbolic(value))
        environment = traced.node.shape_env if isinstance(traced, torch.SymInt) else None
        if environment is None:
            environment = traced.fake_mode.shape_env
        environment.frozen = False
        return FakeTensorMode(shape_env=environment, static_shapes=False)
