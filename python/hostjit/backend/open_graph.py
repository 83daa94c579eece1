# SPDX-License-Identifier: Apache-2.0
"""Graphs of Dynamo's with symbolic sizes: one program for any size, where that can be."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from hostjit import _C
from hostjit.backend.graph_compilation import GraphCompilation, MadeOfOutputs
from hostjit.backend.options import Options
from hostjit.capturing.dynamic_dims import is_number, symbols_kept
from hostjit.capturing.errors import CaptureError, in_one_line
from hostjit.capturing.graph_sizes import SIZE_DIM, find_sizes, over_tensors, own_sizes, size_tensor
from hostjit.capturing.size_guard import assumptions
from hostjit.capturing.traced_graph import placeholder_values

__all__ = ["compile_open_graph"]


def compile_open_graph(
    module: torch.fx.GraphModule,
    name: str,
    options: Options,
    made: MadeOfOutputs | None = None,
) -> Callable[..., Any] | None:
    """Return a callable for a graph among whose inputs are sizes; None for others.

    Sizes that none of its tensors has come to the program as tensors of their own.

    `made`: what is made of its outputs, if that is not the tuple of them.
    """
    values = placeholder_values(module)
    tensors = [index for index, value in enumerate(values) if isinstance(value, torch.Tensor)]
    others = [value for value in values if not isinstance(value, torch.Tensor)]
    if not others or not all(map(is_number, others)):
        return None
    places = find_sizes(module)
    untold = [number for number, place in places.items() if place is None]
    environment: ShapeEnv = others[0].node.shape_env
    try:
        sizes = own_sizes(module, untold, FakeTensorMode(shape_env=environment))
    except CaptureError as error:
        _C.dump_shapes(name, in_one_line(error))
        return None
    told = {number: place for number, place in places.items() if place is not None}
    told |= {number: (len(tensors) + position, SIZE_DIM) for position, number in enumerate(untold)}
    over = over_tensors(module, told, sizes)
    if made is not None:
        made = dataclasses.replace(made, eager=over_tensors(made.eager, told, sizes))
    compilation = OpenGraphCompilation(over, name, options, environment, made)
    compiled = _C.CompiledFunction(compilation.target, compilation)
    if not untold and len(tensors) == 1:
        return lambda *args: compiled(args[tensors[0]])

    def call(*args: Any) -> Any:
        own = [size_tensor(args[number]) for number in untold]
        return compiled(*[args[index] for index in tensors], *own)

    return call


class OpenGraphCompilation(GraphCompilation):
    """Specializes one graph, of tensors, whose sizes are open in an environment of Dynamo's."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        name: str,
        options: Options,
        environment: ShapeEnv,
        made: MadeOfOutputs | None = None,
    ) -> None:
        super().__init__(module, name, options, made)
        self._refused = False
        self._environment = environment
        # Dynamo checks it before it calls the graph, or called the one that this is a backward of.
        self._assumed = frozenset(assumptions(environment))

    def _compile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _C.Specialization | None:
        # Dynamo takes sizes of 0 and 1 for known; they may still come with another graph's symbols.
        if not self._refused:
            self._environment.frozen = False
            mode = FakeTensorMode(shape_env=self._environment, static_shapes=False)
            try:
                # Else a program of one size would pass for one of any, as would all later ones.
                with symbols_kept(self._environment):
                    return self._compile_module(self.module, args, kwargs, mode, self._assumed)
            except Exception as error:
                self._note_static(in_one_line(error))
            self._refused = True
        return super()._compile(args, kwargs)
