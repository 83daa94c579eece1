# SPDX-License-Identifier: Apache-2.0
"""What the items are of that an iterator gives next: rows of a tensor, numbers of a list."""

from __future__ import annotations

import array
import dataclasses
import operator
import sys
from collections.abc import Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.bytecode.loop_items import AtPlace, Counted, ItemForm, Together

__all__ = ["ITERATORS", "ItemsAhead", "items_ahead"]

_RangeIterator = type(iter(range(0)))
_OVER_VALUES = frozenset({type(iter(())), type(iter([]))})
ITERATORS = frozenset({*_OVER_VALUES, enumerate, zip})
"""What there may be known items of, beside a `range`."""
# What `array` and PyTorch call the types of numbers.
_CODES = {float: "d", int: "q"}
_DTYPES = {"d": torch.float64, "q": torch.int64}


@dataclasses.dataclass(frozen=True)
class ItemsAhead:
    """What the item of a pass and those of the passes behind it are of.

    Attributes:
        form: how an item is made.
        tensors: those of the form, in order.
        place: that of the item.
        count: how many items follow.
    """

    form: ItemForm
    tensors: tuple[torch.Tensor, ...]
    place: int
    count: int


@dataclasses.dataclass(frozen=True)
class _Counts:
    """What gives numbers, each by as much more than the one before, and `value` now."""

    value: int
    step: int
    count: int = sys.maxsize


def items_ahead(items: Any, item: Any) -> ItemsAhead | None:
    """Return what an iterator that gave `item` gives next; None where that is not known.

    Known are rows of a tensor on the CPU, which `for row in x` goes over, numbers of one type in a
    list or tuple, and what `enumerate` and `zip` give of such and of a `range`.
    """
    if type(items) in _OVER_VALUES:
        return _of_values(items, item)
    if type(items) not in ITERATORS:
        return None
    _, (first, *others), *_ = items.__reduce__()
    if type(items) is zip:
        return _together([*map(_ahead, (first, *others), item)])
    number, value = item
    return _together([_Counts(number, 1), _ahead(first, value)])


def _ahead(items: Any, item: Any) -> ItemsAhead | _Counts | None:
    if type(items) is not _RangeIterator:
        return items_ahead(items, item)
    of_range: Any = items.__reduce__()
    return _Counts(item, of_range[1][0].step, operator.length_hint(items))


def _of_values(items: Any, item: Any) -> ItemsAhead | None:
    _, (values,), *place = items.__reduce__()
    behind = place[0] if place else 0
    if not 0 < behind <= len(values) or values[behind - 1] is not item:
        return None
    if (code := _CODES.get(type(item))) is not None:
        tensor = _of_numbers(values, code)
    else:
        tensor = _C.tensor_of_rows(tuple(values))
    if tensor is None or not tensor.is_cpu:
        return None
    return ItemsAhead(AtPlace(code is not None), (tensor,), behind - 1, len(values) - behind)


def _of_numbers(values: Sequence[Any], code: str) -> torch.Tensor | None:
    if len({*map(type, values)}) > 1:
        return None
    try:
        return torch.frombuffer(array.array(code, values), dtype=_DTYPES[code])
    except OverflowError:
        return None


def _together(found: Sequence[ItemsAhead | _Counts | None]) -> ItemsAhead | None:
    known = [each for each in found if isinstance(each, ItemsAhead)]
    if None in found or len({each.place for each in known}) != 1:
        return None
    place = known[0].place
    forms: list[ItemForm] = []
    for each in found:
        match each:
            case ItemsAhead(form):
                forms.append(form)
            case _Counts(value, step):
                forms.append(Counted(step, value - place * step))
    tensors = tuple(tensor for each in known for tensor in each.tensors)
    count = min(each.count for each in found if each is not None)
    return ItemsAhead(Together(tuple(forms)), tensors, place, count)
