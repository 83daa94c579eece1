# SPDX-License-Identifier: Apache-2.0
"""How the user's result is rebuilt from the outputs of a graph.

A tree of containers over graph outputs, arguments returned as such, and what is constant.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from hostjit.capturing.constants import IMMUTABLE_TYPES, same_constant

if TYPE_CHECKING:
    from hostjit.capturing.numbers.steps import Operand

__all__ = [
    "CONTAINERS",
    "AgainOutput",
    "ArgumentOutput",
    "ArrayOutput",
    "BoundOutput",
    "CollectedOutput",
    "Column",
    "ConstantOutput",
    "DictOutput",
    "GraphOutput",
    "HandedOnOutput",
    "ItemOutput",
    "JoinedOutput",
    "LeafOutput",
    "ListOutput",
    "NamedTupleOutput",
    "NumberOutput",
    "ObjectOutput",
    "Output",
    "SharedOutput",
    "TupleOutput",
    "ViewOutput",
    "fixed_outputs",
    "join",
    "known_outputs",
    "map_outputs",
    "rebound_outputs",
    "same_output_spec",
    "with_rebound",
]


@dataclasses.dataclass(frozen=True)
class GraphOutput:
    """Output `index` of the graph. The same index twice is the same tensor object."""

    index: int


@dataclasses.dataclass(frozen=True)
class NumberOutput:
    """A number, which is result `index` of Dynamo's graph."""

    index: int


@dataclasses.dataclass(frozen=True)
class ItemOutput:
    """The number that a tensor without dims has in it, an int or a float."""

    items: tuple[Output, ...]


@dataclasses.dataclass(frozen=True)
class ArrayOutput:
    """NumPy's array over the memory of a tensor."""

    items: tuple[Output, ...]


@dataclasses.dataclass(frozen=True)
class LeafOutput:
    """A new tensor in which gradients are to be collected."""

    items: tuple[Output, ...]


@dataclasses.dataclass(frozen=True)
class HandedOnOutput:
    """What a variable has that is given another one's value in each of several passes of a loop.

    Attributes:
        items: how many passes ran, a tensor without dims; what the variable has behind more passes
            than there are further items; then what it has behind the first, the second and so on,
            which are arguments.
    """

    items: tuple[Output, ...]


class Column(enum.Enum):
    """What one value of each of several passes of a loop is made of."""

    NUMBERS = enum.auto()
    """Of a tensor with a number for each pass."""
    MADE = enum.auto()
    """Of a tensor with a tensor for each pass, and what the last one has made."""
    TAKEN = enum.auto()
    """Of what the first pass was given, and a tensor with what each has made for the next."""
    SAME = enum.auto()
    """Of one that is the same for all."""

    @property
    def num_items(self) -> int:
        """Of how many items."""
        return 2 if self in (Column.MADE, Column.TAKEN) else 1


@dataclasses.dataclass(frozen=True)
class CollectedOutput:
    """A new list of what each of several passes of a loop has appended.

    Attributes:
        items: how many passes ran, a tensor without dims; what the columns are made of.
        columns: the values of the passes.
        form: what one pass appends, a list over columns.
    """

    items: tuple[Output, ...]
    columns: tuple[Column, ...]
    form: ListOutput


@dataclasses.dataclass(frozen=True)
class SharedOutput:
    """A tuple of whose tensors numbers tell which are one object.

    Attributes:
        items: a tensor with a number for each position, the same for one object; the tuple, with
            tensors of their own; arguments.
        positions: which items of the tuple they are.
        numbers: those of the arguments.
    """

    items: tuple[Output, ...]
    positions: tuple[int, ...]
    numbers: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class AgainOutput:
    """The container that is made `index`-th of a `JoinedOutput`, once more."""

    index: int


@dataclasses.dataclass(frozen=True)
class JoinedOutput:
    """A new container with one in it that is in two places or more.

    Attributes:
        items: what is in it that is no container.
        form: the container, over items. Containers are made in its order, of what is in each first.
    """

    items: tuple[Output, ...]
    form: Output


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
    """A new instance of a class of Python code: `object.__new__(type)`, then its fields.

    No constructor and no `__setattr__` runs, as in Dynamo, so that frozen classes work too.
    """

    type: type
    names: tuple[str, ...]
    items: tuple[Output, ...]


@dataclasses.dataclass(frozen=True)
class ViewOutput:
    """A new view of a tensor, which autograd knows as one. Numbers that calls tell are operands.

    Attributes:
        items: the tensor.
        sizes: of the view.
        strides: of the view, in elements.
        offset: where it starts, in elements from where the tensor starts.
        made: how autograd takes it to have come to be: torch._C._autograd.CreationMeta. Of it
            depends whether it may be written in place.
        base_strides: those that the tensor has.
    """

    items: tuple[Output, ...]
    sizes: tuple[int | Operand, ...]
    strides: tuple[int | Operand, ...]
    offset: int | Operand
    made: Any
    base_strides: tuple[int | Operand, ...]

    def operands(self) -> Iterator[Operand]:
        """The numbers that calls tell."""
        for number in (*self.sizes, *self.strides, self.offset, *self.base_strides):
            if not isinstance(number, int):
                yield number


Output = (
    GraphOutput
    | NumberOutput
    | ItemOutput
    | ArrayOutput
    | LeafOutput
    | HandedOnOutput
    | CollectedOutput
    | SharedOutput
    | AgainOutput
    | JoinedOutput
    | ArgumentOutput
    | BoundOutput
    | ConstantOutput
    | TupleOutput
    | ListOutput
    | NamedTupleOutput
    | DictOutput
    | ObjectOutput
    | ViewOutput
)

CONTAINERS = (TupleOutput, ListOutput, NamedTupleOutput, DictOutput, ObjectOutput)
_NODES = (
    *(ItemOutput, ArrayOutput, LeafOutput, HandedOnOutput, CollectedOutput, SharedOutput),
    *(JoinedOutput, ViewOutput, *CONTAINERS),
)


def join(spec: Output) -> JoinedOutput:
    """Return a container with some `AgainOutput` in it as what is made of what it is over."""
    items: list[Output] = []

    def over(each: Output) -> Output:
        if isinstance(each, AgainOutput):
            return each
        if isinstance(each, CONTAINERS):
            return dataclasses.replace(each, items=tuple(map(over, each.items)))
        items.append(each)
        return GraphOutput(len(items) - 1)

    form = over(spec)
    return JoinedOutput(tuple(items), form)


def map_outputs(spec: Output, replace: Callable[[GraphOutput], Output]) -> Output:
    """Return the tree with every GraphOutput replaced by `replace` of it."""
    if isinstance(spec, GraphOutput):
        return replace(spec)
    if isinstance(spec, _NODES):
        items = tuple(map_outputs(item, replace) for item in spec.items)
        return dataclasses.replace(spec, items=items)
    return spec


def known_outputs(spec: Output) -> Iterator[object]:
    """The objects of before the call that a result is or has in it, those in tuples of them too."""
    if isinstance(spec, BoundOutput):
        yield spec.tensor
    if isinstance(spec, ConstantOutput):
        yield from _in_tuples(spec.value)
    for item in getattr(spec, "items", ()):
        yield from known_outputs(item)


def fixed_outputs(spec: Output) -> Iterator[object]:
    """Those of `known_outputs` in whose place no other may be: not tensors that are returned."""
    if isinstance(spec, ViewOutput | ConstantOutput):
        yield from known_outputs(spec)
        return
    for item in getattr(spec, "items", ()):
        yield from fixed_outputs(item)


def rebound_outputs(before: Output, now: Output) -> dict[int, torch.Tensor] | None:
    """Return which tensors of before the call are others in a result, by the ids of the former.

    None where the results differ otherwise, and where what was one tensor is not any more.
    """
    found: dict[int, torch.Tensor] = {}
    fixed = {*map(id, fixed_outputs(before))}

    def is_other(a: BoundOutput, b: BoundOutput) -> bool:
        return found.setdefault(id(a.tensor), b.tensor) is b.tensor

    if not same_output_spec(before, now, is_other):
        return None
    if len({*map(id, found.values())}) < len(found):
        return None
    others = {key: tensor for key, tensor in found.items() if key != id(tensor)}
    return None if others.keys() & fixed else others


def with_rebound(spec: Output, rebound: Mapping[int, torch.Tensor]) -> Output:
    """Return the tree with other tensors of before the call, by the ids of those that it has."""
    if isinstance(spec, BoundOutput):
        return BoundOutput(rebound.get(id(spec.tensor), spec.tensor))
    if isinstance(spec, _NODES):
        items = tuple(with_rebound(item, rebound) for item in spec.items)
        return dataclasses.replace(spec, items=items)
    return spec


def _in_tuples(value: object) -> Iterator[object]:
    yield value
    for item in value if isinstance(value, tuple) else ():
        yield from _in_tuples(item)


def same_output_spec(
    a: Output, b: Output, is_same: Callable[[BoundOutput, BoundOutput], bool] | None = None
) -> bool:
    """Tell whether two trees rebuild the same result: bound tensors and constants by identity.

    `is_same`: whether tensors from outside may be the same; None: by identity.
    """
    if type(a) is not type(b):
        return False
    if isinstance(a, BoundOutput) and isinstance(b, BoundOutput):
        return a.tensor is b.tensor if is_same is None else is_same(a, b)
    if isinstance(a, ConstantOutput) and isinstance(b, ConstantOutput):
        if a.value is b.value:
            return True
        return isinstance(a.value, IMMUTABLE_TYPES) and same_constant(a.value, b.value)
    for field in dataclasses.fields(a):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if field.name == "items":
            if len(x) != len(y):
                return False
            if not all(same_output_spec(p, q, is_same) for p, q in zip(x, y, strict=True)):
                return False
        elif x != y:
            return False
    return True
