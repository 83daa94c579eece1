# SPDX-License-Identifier: Apache-2.0
"""Results made again of the outputs of a graph, and what the call path asks Python for of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from hostjit import _C
from hostjit.capturing.instances import new_object
from hostjit.capturing.results.outputs import (
    CONTAINERS,
    AgainOutput,
    ArgumentOutput,
    ArrayOutput,
    BoundOutput,
    CollectedOutput,
    Column,
    ConstantOutput,
    DictOutput,
    GraphOutput,
    HandedOnOutput,
    ItemOutput,
    JoinedOutput,
    LeafOutput,
    ListOutput,
    NamedTupleOutput,
    NumberOutput,
    ObjectOutput,
    Output,
    SharedOutput,
    TupleOutput,
    ViewOutput,
)

if TYPE_CHECKING:
    from hostjit.capturing.numbers.steps import Operand

__all__ = ["collected", "handed_on", "joined", "rebuild_output", "with_shared"]


def rebuild_output(
    spec: Output,
    outputs: Sequence[torch.Tensor],
    leaves: Sequence[torch.Tensor],
    numbers: Sequence[Any] = (),
    value_of: Callable[[Operand], Any] | None = None,
) -> Any:
    """Rebuild a result: the plain form of what the call path does.

    `value_of`: gives operands of views their values.
    """

    def rebuild(items: Sequence[Output]) -> list[Any]:
        return [rebuild_output(item, outputs, leaves, numbers, value_of) for item in items]

    def known(number: int | Operand) -> int:
        if isinstance(number, int):
            return number
        assert value_of is not None
        return int(value_of(number))

    if isinstance(spec, GraphOutput):
        return outputs[spec.index]
    if isinstance(spec, NumberOutput):
        return numbers[spec.index]
    if isinstance(spec, ItemOutput):
        return rebuild(spec.items)[0].item()
    if isinstance(spec, ArrayOutput):
        return rebuild(spec.items)[0].numpy()
    if isinstance(spec, LeafOutput):
        return rebuild(spec.items)[0].requires_grad_()
    if isinstance(spec, HandedOnOutput):
        return handed_on(*rebuild(spec.items))
    if isinstance(spec, CollectedOutput):
        return collected(spec.columns, spec.form, *rebuild(spec.items))
    if isinstance(spec, SharedOutput):
        return with_shared(spec.positions, spec.numbers, *rebuild(spec.items))
    if isinstance(spec, JoinedOutput):
        return joined(spec.form, *rebuild(spec.items))
    if isinstance(spec, ArgumentOutput):
        return leaves[spec.leaf]
    if isinstance(spec, BoundOutput):
        return spec.tensor
    if isinstance(spec, ConstantOutput):
        return spec.value
    if isinstance(spec, ViewOutput):
        (base,) = rebuild(spec.items)
        sizes, strides = ([*map(known, numbers)] for numbers in (spec.sizes, spec.strides))
        return base.as_strided(sizes, strides, base.storage_offset() + known(spec.offset))
    assert isinstance(spec, CONTAINERS)
    return _container(spec, rebuild(spec.items))


def _container(
    spec: TupleOutput | ListOutput | NamedTupleOutput | DictOutput | ObjectOutput, items: list[Any]
) -> Any:
    """Make a container of what is in it."""
    match spec:
        case TupleOutput():
            return tuple(items)
        case ListOutput():
            return items
        case NamedTupleOutput(kind, _, struct_sequence):
            return kind(items) if struct_sequence else tuple.__new__(kind, items)
        case DictOutput(kind, keys, _):
            return kind(zip(keys, items, strict=True))
        case ObjectOutput(kind, names, _):
            return new_object(kind, names, *items)


def joined(form: Output, *items: Any) -> Any:
    """Return what a `JoinedOutput` stands for, of its items."""
    containers: list[Any] = []

    def make(each: Output) -> Any:
        if isinstance(each, AgainOutput):
            return containers[each.index]
        if isinstance(each, GraphOutput):
            return items[each.index]
        assert isinstance(each, CONTAINERS)
        containers.append(_container(each, [make(item) for item in each.items]))
        return containers[-1]

    return make(form)


def handed_on(passes: torch.Tensor, value: Any, *arguments: Any) -> Any:
    """Return what a `HandedOnOutput` stands for, of its items."""
    count = int(passes.item())
    return arguments[count - 1] if count <= len(arguments) else value


def collected(columns: Sequence[Column], form: ListOutput, passes: Any, *items: Any) -> list[Any]:
    """Return what a `CollectedOutput` stands for, of its items."""
    count, rest = int(passes.item()), iter(items)
    values = [_of_passes(column, count, rest) for column in columns]
    found = [_in_passes(item, values, count) for item in form.items]
    return found[0] if len(found) == 1 else [*itertools.chain(*zip(*found, strict=True))]


def with_shared(
    positions: Sequence[int],
    numbers: Sequence[int],
    found: torch.Tensor,
    result: tuple[Any, ...],
    *arguments: Any,
) -> tuple[Any, ...]:
    """Return what a `SharedOutput` stands for, of its items."""
    known = dict(zip(numbers, arguments, strict=True))
    items = [*result]
    for position, number in zip(positions, found.tolist(), strict=True):
        items[position] = known.setdefault(number, items[position])
    return tuple(items)


def _of_passes(column: Column, count: int, items: Iterator[Any]) -> list[Any]:
    """The value of each pass."""
    match column:
        case Column.NUMBERS:
            numbers: list[Any] = next(items)[:count].tolist()
            return numbers
        case Column.MADE:
            return [*_C.copies_of_rows(next(items), count - 1), next(items)]
        case Column.TAKEN:
            return [next(items), *_C.copies_of_rows(next(items), count - 1)]
        case Column.SAME:
            return [next(items)] * count


def _in_passes(form: Output, values: Sequence[list[Any]], count: int) -> list[Any]:
    """What each pass makes of values."""
    if isinstance(form, GraphOutput):
        return values[form.index]
    assert isinstance(form, (TupleOutput, ListOutput, DictOutput))
    items = [_in_passes(item, values, count) for item in form.items]
    rows = zip(*items, strict=True) if items else itertools.repeat((), count)
    if isinstance(form, TupleOutput):
        return [*rows]
    if isinstance(form, ListOutput):
        return [*map(list, rows)]
    return [form.type(zip(form.keys, row, strict=True)) for row in rows]
