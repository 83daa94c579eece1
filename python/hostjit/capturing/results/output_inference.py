# SPDX-License-Identifier: Apache-2.0
"""Find how the user's result is made of the outputs of a graph.

The rebuilt bytecode of Dynamo says it, in code. `infer_output_spec` runs that bytecode with
stand-ins for the graph's outputs, twice, and reads the result: a stand-in is a graph output, a
tensor leaf is an argument, an object that came back both times existed before the call, and
whatever else is immutable is a constant. Anything else needs the bytecode itself, such as a
container of which each call brings its own.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from hostjit.capturing.constants import IMMUTABLE_TYPES, same_constant
from hostjit.capturing.instances import is_namedtuple_type
from hostjit.capturing.results.outputs import (
    ArgumentOutput,
    BoundOutput,
    ConstantOutput,
    DictOutput,
    GraphOutput,
    ListOutput,
    NamedTupleOutput,
    NumberOutput,
    ObjectOutput,
    Output,
    TupleOutput,
)

__all__ = ["CannotRebuildError", "infer_output_spec"]


class CannotRebuildError(Exception):
    """The result has a part that only the bytecode can make; the message says which."""


def infer_output_spec(
    run: Callable[[Sequence[Any]], object],
    results: Sequence[Any],
    leaves: Sequence[torch.Tensor],
    containers: Collection[int],
) -> Output:
    """Read the structure of a result from two runs with stand-ins for the graph's outputs.

    Args:
        run: runs the rebuilt bytecode on the captured arguments, given the graph's outputs. It
            must have no side effects.
        results: of Dynamo's graph: None for each that is a graph output, anything for a number.
        leaves: the tensor leaves of the captured arguments.
        containers: ids of the objects that another call may bring others for.

    Raises CannotRebuildError when some part of the result is neither.
    """
    first = [torch.empty(0, device="cpu") if result is None else _Number() for result in results]
    second = [torch.empty(0, device="cpu") if result is None else _Number() for result in results]
    return _Reader(first, second, leaves, containers).read(run(first), run(second))


class _Number:
    """Stands for a number that the graph gives; whatever is done with it is the bytecode's."""


class _Reader:
    def __init__(
        self,
        first: Sequence[Any],
        second: Sequence[Any],
        leaves: Sequence[torch.Tensor],
        containers: Collection[int],
    ) -> None:
        self._results = {id(result): index for index, result in enumerate(first)}
        tensors = [result for result in first if isinstance(result, torch.Tensor)]
        self._outputs = {id(tensor): index for index, tensor in enumerate(tensors)}
        self._leaves = {id(tensor): index for index, tensor in reversed([*enumerate(leaves)])}
        self._second = second
        self._containers = containers
        self._new_containers: set[int] = set()

    def read(self, value: Any, again: Any) -> Output:
        kind = type(value)
        if kind is not type(again):
            raise CannotRebuildError(f"a result that is now {kind}, now {type(again)}")
        if id(value) in self._results:
            index = self._results[id(value)]
            if again is not self._second[index]:
                raise CannotRebuildError("a result whose structure changes from call to call")
            if kind is _Number:
                return NumberOutput(index)
            return GraphOutput(self._outputs[id(value)])
        if id(value) in self._leaves and value is again:
            return ArgumentOutput(self._leaves[id(value)])
        if value is again:
            return self._existing(value)
        if isinstance(value, torch.Tensor):
            raise CannotRebuildError("a tensor that is made outside of the graph")
        if isinstance(value, IMMUTABLE_TYPES):
            if not same_constant(value, again):
                raise CannotRebuildError(f"a {kind.__qualname__} that changes from call to call")
            return ConstantOutput(value)
        return self._container(value, again)

    def _existing(self, value: Any) -> Output:
        if isinstance(value, torch.Tensor):
            return BoundOutput(value)
        if id(value) in self._containers:
            raise CannotRebuildError(f"a {type(value).__qualname__} that a call brings")
        return ConstantOutput(value)

    def _container(self, value: Any, again: Any) -> Output:
        kind = type(value)
        if id(value) in self._new_containers and kind is not tuple:
            raise CannotRebuildError(f"the same new {kind.__qualname__} in two places")
        self._new_containers.add(id(value))
        if kind in (tuple, list) or is_namedtuple_type(kind) or _is_struct_sequence(kind):
            items = self._items(tuple(value), tuple(again))
            if kind is tuple:
                return TupleOutput(items)
            if kind is list:
                return ListOutput(items)
            return NamedTupleOutput(kind, items, _is_struct_sequence(kind))
        if kind in (dict, collections.OrderedDict):
            if tuple(value) != tuple(again):
                raise CannotRebuildError("a dict whose keys change from call to call")
            items = self._items(tuple(value.values()), tuple(again.values()))
            return DictOutput(kind, tuple(value), items)
        if _is_plain_dataclass(kind) and tuple(vars(value)) == tuple(vars(again)):
            names = tuple(vars(value))
            items = self._items(tuple(vars(value).values()), tuple(vars(again).values()))
            return ObjectOutput(kind, names, items)
        raise CannotRebuildError(f"a new {kind.__module__}.{kind.__qualname__}")

    def _items(self, values: Sequence[Any], again: Sequence[Any]) -> tuple[Output, ...]:
        if len(values) != len(again):
            raise CannotRebuildError("a container whose length changes from call to call")
        return tuple(self.read(a, b) for a, b in zip(values, again, strict=True))


def _is_struct_sequence(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "n_sequence_fields")


def _is_plain_dataclass(kind: type) -> bool:
    """A dataclass whose instances are an `object` and a `__dict__`, and nothing else."""
    return (
        dataclasses.is_dataclass(kind)
        and kind.__new__ is object.__new__
        and kind.__basicsize__ <= _PLAIN_BASICSIZE
        and not any("__slots__" in vars(base) for base in kind.__mro__ if base is not object)
    )


class _Plain:
    pass


_PLAIN_BASICSIZE = _Plain.__basicsize__
