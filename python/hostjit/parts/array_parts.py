# SPDX-License-Identifier: Apache-2.0
"""Calls that are given arrays of NumPy, and that Dynamo cannot follow whole.

The parts are compiled as those of calls with tensors are. Dynamo itself never goes on: it would
compute by PyTorch's own NumPy. Nor does an array that a call is given outlast its first part, since
the rest would be handed another object over the same memory.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from hostjit import _C
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.compiling.compilation import Compilation
from hostjit.compiling.specializer import route_any_call
from hostjit.parts.array_arguments import MadeArrays, Place
from hostjit.parts.arrays import ArrayCompilation, check_arrays, makes_arrays
from hostjit.parts.parts import PartCompilation, Parts
from hostjit.parts.whole import Whole

if TYPE_CHECKING:
    from hostjit.capturing.dynamo.call import DynamoCapture

__all__ = ["ArrayPartsCompilation"]


class ArrayPartsCompilation(ArrayCompilation):
    """Compiles the first part of calls; raises CaptureError where it would run eagerly."""

    def __init__(self, owner: Compilation) -> None:
        super().__init__(owner, _with_arrays(owner.target), fallback=True)
        self._parts = _ArrayParts(self.target, self._as_whole())
        self.record_no_more()

    def _fall_back(
        self, error: CaptureError, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        raise error

    def _run_as_python(self, error: CaptureError, *_: Any) -> _C.Specialization | None:
        raise error

    def _check(self, traced: DynamoCapture) -> None:
        super()._check(traced)
        if traced.broke is not None and makes_arrays(traced) and _returns_argument(traced):
            raise CaptureError(
                CaptureFailure.UNSUPPORTED_PROGRAM,
                "an array is used behind a line that is run as it is",
                hint="make a tensor of it, and use that",
            ) from traced.broke


class _ArrayParts(Parts):
    def hooked(self, run: Callable[..., Any]) -> Callable[..., Any]:
        return run

    def by_frames(self) -> _C.Specialization:
        self.in_use = True
        return route_any_call(self._target)

    def _rest(self, function: types.FunctionType, records: bool) -> PartCompilation:
        return _ArrayPart(function, self._whole)


class _ArrayPart(PartCompilation):
    _first_split = 0  # Python would be given tensors for arrays

    def __init__(self, function: types.FunctionType, whole: Whole) -> None:
        super().__init__(function, whole)
        self._parts = _ArrayParts(function, whole)
        self._parts.in_use = True

    def _is_left_to_python(self, args: tuple[Any, ...], traced: DynamoCapture) -> bool:
        return False  # for the same reason

    def _check(self, traced: DynamoCapture) -> None:
        super()._check(traced)
        check_arrays(traced)


def _returns_argument(traced: DynamoCapture) -> bool:
    """Tell whether the graph returns what may be the tensor in the place of an array."""
    graph = traced.graph_module.graph if traced.graph_module is not None else torch.fx.Graph()
    outputs = [x for node in graph.find_nodes(op="output") for x in node.all_input_nodes]
    return any(_is_argument(node) for node in outputs)


def _is_argument(node: torch.fx.Node) -> bool:
    # `numpy()` is a view of the tensor itself in Dynamo's graph.
    while node.op == "call_method" and node.target in ("view_as", "detach", "cpu"):
        node = node.all_input_nodes[0]
    return node.op == "placeholder"


def _with_arrays(target: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes tensors in the places of arrays, which it is given first."""

    def call(places: tuple[Place, ...], /, *args: Any, **kwargs: Any) -> Any:
        made = MadeArrays(places)
        given, named = made.arguments(args), made.named(kwargs)
        return target(*given, **named)

    return call
