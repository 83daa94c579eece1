# SPDX-License-Identifier: Apache-2.0
"""How the user's result is rebuilt from the outputs of a graph.

The rebuilt bytecode of Dynamo says it, in code. `infer_output_spec` runs that bytecode with
stand-ins for the graph's outputs, twice, and reads the result: a stand-in is a graph output, a
tensor leaf is an argument, an object that came back both times existed before the call, and
whatever else is immutable is a constant. Anything else needs the bytecode itself.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hostjit.capture.arguments import is_namedtuple_type

__all__ = [
    "ArgumentOutput",
    "BoundOutput",
    "ConstantOutput",
    "DictOutput",
    "GraphOutput",
    "ListOutput",
    "NamedTupleOutput",
    "ObjectOutput",
    "Output",
    "TupleOutput",
    "infer_output_spec",
    "rebuild_output",
]


@dataclasses.dataclass(frozen=True)
class GraphOutput:
    """Output `index` of the graph. The same index twice is the same tensor object."""

    index: int


@dataclasses.dataclass(frozen=True)
class ArgumentOutput:
    """Tensor leaf `leaf` of the arguments, returned as the very same object."""

    leaf: int


@dataclasses.dataclass(frozen=True, eq=False)
class BoundOutput:
    """A tensor that exists outside of the call (a parameter, a global), returned as such."""

    tensor: torch.Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class ConstantOutput:
    """An immutable value, or an object that existed before the call: returned as such."""

    value: object


@dataclasses.dataclass(frozen=True)
class TupleOutput:
    """A new exact tuple."""

    items: tuple[Output, ...]


@dataclasses.dataclass(frozen=True)
class ListOutput:
    """A new exact list."""

    items: tuple[Output, ...]


@dataclasses.dataclass(frozen=True)
class NamedTupleOutput:
    """A new `type`: `tuple.__new__(type, items)`, or `type(items)` when it is a struct sequence.

    Struct sequences are what `torch.max(x, 0)` returns (`torch.return_types`).
    """

    type: type
    items: tuple[Output, ...]
    struct_sequence: bool = False


@dataclasses.dataclass(frozen=True)
class DictOutput:
    """A new dict of exactly this type (dict or OrderedDict), keys in this order."""

    type: type
    keys: tuple[Any, ...]
    items: tuple[Output, ...]


@dataclasses.dataclass(frozen=True)
class ObjectOutput:
    """A new instance of a dataclass without slots: `object.__new__(type)`, then its `__dict__`.

    No constructor and no `__setattr__` runs, as in Dynamo, so that frozen classes work too.
    """

    type: type
    names: tuple[str, ...]
    items: tuple[Output, ...]


Output = (
    GraphOutput
    | ArgumentOutput
    | BoundOutput
    | ConstantOutput
    | TupleOutput
    | ListOutput
    | NamedTupleOutput
    | DictOutput
    | ObjectOutput
)

_IMMUTABLE = (
    *(bool, int, float, complex, str, bytes, type(None), type(...)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
    *(slice, range, enum.Enum, type, types.BuiltinFunctionType),
)


class CannotRebuildError(Exception):
    """The result has a part that only the bytecode can make; the message says which."""


def infer_output_spec(
    run: Callable[[Sequence[torch.Tensor]], object],
    output_count: int,
    leaves: Sequence[torch.Tensor],
) -> Output:
    """Read the structure of a result from two runs with stand-ins for the graph's outputs.

    Args:
        run: runs the rebuilt bytecode on the captured arguments, given the graph's outputs. It
            must have no side effects.
        output_count: number of graph outputs.
        leaves: the tensor leaves of the captured arguments.

    Raises CannotRebuildError when some part of the result is neither.
    """
    first = [torch.empty(0) for _ in range(output_count)]
    second = [torch.empty(0) for _ in range(output_count)]
    return _Reader(first, second, leaves).read(run(first), run(second))


class _Reader:
    def __init__(
        self,
        first: Sequence[torch.Tensor],
        second: Sequence[torch.Tensor],
        leaves: Sequence[torch.Tensor],
    ) -> None:
        self._outputs = {id(tensor): index for index, tensor in enumerate(first)}
        self._leaves = {id(tensor): index for index, tensor in reversed([*enumerate(leaves)])}
        self._second = second
        self._new_containers: set[int] = set()

    def read(self, value: Any, again: Any) -> Output:
        kind = type(value)
        if kind is not type(again):
            raise CannotRebuildError(f"a result that is now {kind}, now {type(again)}")
        if id(value) in self._outputs:
            index = self._outputs[id(value)]
            if again is not self._second[index]:
                raise CannotRebuildError("a result whose structure changes from call to call")
            return GraphOutput(index)
        if id(value) in self._leaves and value is again:
            return ArgumentOutput(self._leaves[id(value)])
        if value is again:
            return self._existing(value)
        if isinstance(value, torch.Tensor):
            raise CannotRebuildError("a tensor that is made outside of the graph")
        if isinstance(value, _IMMUTABLE):
            if not _same_constant(value, again):
                raise CannotRebuildError(f"a {kind.__qualname__} that changes from call to call")
            return ConstantOutput(value)
        return self._container(value, again)

    def _existing(self, value: Any) -> Output:
        if isinstance(value, torch.Tensor):
            return BoundOutput(value)
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


def rebuild_output(
    spec: Output, outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]
) -> Any:
    """Rebuild a result: the plain form of what the call path does."""

    def rebuild(items: Sequence[Output]) -> list[Any]:
        return [rebuild_output(item, outputs, leaves) for item in items]

    if isinstance(spec, GraphOutput):
        return outputs[spec.index]
    if isinstance(spec, ArgumentOutput):
        return leaves[spec.leaf]
    if isinstance(spec, BoundOutput):
        return spec.tensor
    if isinstance(spec, ConstantOutput):
        return spec.value
    if isinstance(spec, TupleOutput):
        return tuple(rebuild(spec.items))
    if isinstance(spec, ListOutput):
        return rebuild(spec.items)
    if isinstance(spec, NamedTupleOutput):
        items = rebuild(spec.items)
        if spec.struct_sequence:
            return spec.type(items)
        return tuple.__new__(spec.type, items)
    if isinstance(spec, DictOutput):
        return spec.type(zip(spec.keys, rebuild(spec.items), strict=True))
    result = object.__new__(spec.type)
    result.__dict__.update(zip(spec.names, rebuild(spec.items), strict=True))
    return result


def map_outputs(spec: Output, replace: Callable[[GraphOutput], Output]) -> Output:
    """Return the tree with every GraphOutput replaced by `replace` of it."""
    if isinstance(spec, GraphOutput):
        return replace(spec)
    if isinstance(spec, (TupleOutput, ListOutput, NamedTupleOutput, DictOutput, ObjectOutput)):
        items = tuple(map_outputs(item, replace) for item in spec.items)
        return dataclasses.replace(spec, items=items)
    return spec


def same_output_spec(a: Output, b: Output) -> bool:
    """Tell whether two trees rebuild the same result: bound tensors and constants by identity."""
    if type(a) is not type(b):
        return False
    if isinstance(a, BoundOutput) and isinstance(b, BoundOutput):
        return a.tensor is b.tensor
    if isinstance(a, ConstantOutput) and isinstance(b, ConstantOutput):
        if a.value is b.value:
            return True
        return isinstance(a.value, _IMMUTABLE) and _same_constant(a.value, b.value)
    for field in dataclasses.fields(a):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if field.name == "items":
            if len(x) != len(y):
                return False
            if not all(same_output_spec(p, q) for p, q in zip(x, y, strict=True)):
                return False
        elif x != y:
            return False
    return True


def _same_constant(a: object, b: object) -> bool:
    return type(a) is type(b) and repr(a) == repr(b) if isinstance(a, float) else a == b


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
