# SPDX-License-Identifier: Apache-2.0
"""Numbers that a capture leaves open: each call brings its own.

The ints and floats among the leaves of a call's arguments are numbered 0, 1, 2, ... in the order of
`arguments`; a bool is none. Those elsewhere (an attribute, a global, an item of a dict, a variable
of an enclosing function, a slot) have Dynamo's names, and a `NumberPlace`. A number whose object is
replaced by others (`self.options = Options(dt)`) is found in a *structure*: what is in the place is
compared as arguments are. What holds tensors, too, is none: other objects are taken for it.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import types
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph
from torch.utils._sympy.value_ranges import ValueRanges

from hostjit.capturing.by_fields import NONE_BY_FIELDS, ByFields
from hostjit.capturing.dynamic_dims import refusal
from hostjit.capturing.guards.kinds import BY_VALUE
from hostjit.capturing.instances import fields_of, is_namedtuple_type, shown
from hostjit.capturing.numbers.attributes import knows_attributes
from hostjit.capturing.numbers.float_bounds import bounds_of_types, float_bounds
from hostjit.capturing.numbers.item_reads import ItemReads, reading_items
from hostjit.capturing.numbers.lazy_numbers import keeps_lazy_numbers_open
from hostjit.capturing.numbers.open_floats import keeps_floats_open
from hostjit.capturing.numbers.open_indices import keeps_indices_open
from hostjit.capturing.numbers.open_tuples import keeps_tuples_open
from hostjit.capturing.numbers.parameters import parameters_stay_open
from hostjit.capturing.numbers.python_functions import MadeOf, number_functions_of_python
from hostjit.capturing.numbers.read_bounds import clamping_read_bounds

if TYPE_CHECKING:
    from hostjit.capturing.dynamo.call import DynamoCapture

__all__ = [
    "MOST_NUMBERS",
    "OF_ARGUMENTS",
    "Made",
    "NumberPlace",
    "OpenNumber",
    "OpenValue",
    "bound_int",
    "left_open",
    "may_be_open",
    "named_numbers",
    "number_leaves",
    "open_numbers",
    "sources_of",
    "values_of",
    "with_same",
]

OpenValue = torch.SymInt | torch.SymFloat

# Of an open int, the least of these that its value allows: what is made of two that are no greater
# than the first fits into 64 bits.
_MOST = tuple(1 << bits for bits in (30, 42, 53, 62))
OF_ARGUMENTS = ("L['args']", "L['kwargs']")
"""Dynamo's names for the arguments of a call: what is in them has names that begin with these."""
# The core has place for so many.
MOST_NUMBERS = 16


@dataclasses.dataclass(frozen=True, eq=False)
class NumberPlace:
    """Where a call finds a number outside of its arguments.

    Attributes:
        holder: a dict, a list, a tuple, a cell, a class or an object with slots.
        key: of the dict, the index of the list or tuple, the name of an attribute that the class
            itself has, or the descriptor of a slot; None for a cell.
        structure: Dynamo's name for what is there, if the number is in it.
        path: from there to the number, as in Dynamo's names.
    """

    holder: Any
    key: Any = None
    structure: str = ""
    path: str = ""

    def read(self) -> Any:
        """Return the number that is there now, None if nothing is."""
        found = self.read_holder()
        return dict(named_numbers(found, "")).get(self.path) if self.structure else found

    def read_holder(self) -> Any:
        """Return what the holder has, None if nothing."""
        if isinstance(self.key, types.MemberDescriptorType):
            try:
                return self.key.__get__(self.holder)
            except AttributeError:
                return None
        if isinstance(self.holder, dict):
            return dict.get(self.holder, self.key)
        if isinstance(self.holder, (list, tuple)):
            return self.holder[self.key] if self.key < len(self.holder) else None
        if isinstance(self.holder, type):
            return vars(self.holder).get(self.key)
        try:
            return self.holder.cell_contents
        except ValueError:
            return None

    def write(self, value: Any) -> None:
        """Put another number there."""
        if isinstance(self.holder, dict):
            dict.__setitem__(self.holder, self.key, value)
        elif isinstance(self.holder, list):
            self.holder[self.key] = value
        else:
            assert isinstance(self.holder, types.CellType)
            self.holder.cell_contents = value


@dataclasses.dataclass(frozen=True)
class Made:
    """A number that Python makes of others: what step `step` of `NumberResults` computes."""

    step: int


@dataclasses.dataclass(frozen=True, eq=False)
class OpenNumber:
    """A number that differs from call to call.

    Attributes:
        position: among the number leaves of the arguments, or Dynamo's name of one elsewhere, or
            how it is made.
        symbol: by which the capture knows it; None when the program does not depend on it.
        value: the same for PyTorch.
        type: int or float.
        known: the one value that the program is for, of an int without a symbol; None for any.
        same: Dynamo's names of others that have to have the same value.
    """

    position: int | str | Made
    type: type[int | float]
    symbol: Any = None
    value: OpenValue | None = None
    known: int | None = None
    same: tuple[str, ...] = ()

    def bounds(self, environment: Any, graph: Graph) -> tuple[float | None, float | None]:
        """The least and the greatest value that the program, lowered from `graph`, is valid for."""
        if self.symbol is None or self.value is None:
            return self.known, self.known
        if self.type is float:
            found = float_bounds(environment, self.symbol, self.value.node.hint, graph)
        else:
            held = bounds_of_types(graph, int, self.symbol)
            most = math.floor(min(held.upper, _MOST[-1]))
            found = environment.var_to_range[self.symbol] & ValueRanges(-most, most)
        return self.type(found.lower), self.type(found.upper)


def number_leaves(
    args: Sequence[Any], kwargs: Mapping[str, Any], by_fields: ByFields = NONE_BY_FIELDS
) -> list[tuple[str, Any]]:
    """Return the numbers among the leaves of a call, with Dynamo's names for where they are.

    `by_fields`: classes whose objects are containers.
    """
    return [
        *_leaves(tuple(args), OF_ARGUMENTS[0], by_fields),
        *_leaves(dict(kwargs), OF_ARGUMENTS[1], by_fields),
    ]


def named_numbers(value: Any, name: str) -> list[tuple[str, Any]]:
    """Return the numbers in a structure, with Dynamo's names for where they are."""
    return [*_leaves(value, name, None)]


def sources_of(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    positions: Set[int],
    outside: Mapping[str, NumberPlace],
    by_fields: ByFields = NONE_BY_FIELDS,
    equal: Mapping[str, Hashable] = MappingProxyType({}),
) -> dict[str, tuple[int | str, Any]]:
    """Return by Dynamo's names where numbers are, as in `OpenNumber`, and their values now.

    `equal`: groups of those that one of them stands for, by name.
    """
    leaves = number_leaves(args, kwargs, by_fields)
    found: list[tuple[str, int | str, Any]] = []
    found += [
        (leaves[position][0], position, leaves[position][1]) for position in sorted(positions)
    ]
    found += [(name, name, place.read()) for name, place in outside.items()]
    # Dynamo has other names for what is at keys that are not shown as they are: such numbers are
    # compared.
    usable = {name: (at, value) for name, at, value in found if "[<" not in name}
    groups = [*dict.fromkeys(equal.get(name, name) for name in usable)][:MOST_NUMBERS]
    return {name: number for name, number in usable.items() if equal.get(name, name) in groups}


@contextlib.contextmanager
def left_open(
    sources: Collection[str],
    leaves: Sequence[torch.Tensor] = (),
    reads: ItemReads | None = None,
    *,
    of_places: bool = False,
    breaks_at_texts: bool = False,
) -> Iterator[dict[Any, MadeOf]]:
    """Let Dynamo trace these numbers as symbols, and what is read from tensors; no others.

    Yields by symbols numbers that Python makes of them; see `number_functions_of_python`.

    Args:
        sources: Dynamo's names of the numbers.
        leaves: the tensor leaves of the arguments.
        reads: see `reading_items`.
        of_places: see there.
        breaks_at_texts: see `number_functions_of_python`.
    """
    config: Any = torch.compiler.config
    others = ("dynamic_values", "unbacked_sources")
    settings = {name: "" for name in others if hasattr(config, name)}
    with (
        config.patch({**settings, "dynamic_sources": ",".join(map(_pattern, sources))}),
        keeps_indices_open(),
        keeps_floats_open(sources),
        keeps_lazy_numbers_open(sources),
        keeps_tuples_open(sources),
        knows_attributes(),
        number_functions_of_python(breaks_at_texts=breaks_at_texts) as made,
        reading_items(leaves, made, reads, of_places=of_places),
        clamping_read_bounds(made) if reads is not None else contextlib.nullcontext(),
        parameters_stay_open(),
    ):
        yield made


def _pattern(name: str) -> str:
    """Return the regular expression of a name, and nothing else, without spaces, commas, colons.

    Dynamo separates by commas, drops spaces, and takes what follows a last colon for a dim.
    """
    codes = (character if character.isalnum() else f"\\U{ord(character):08x}" for character in name)
    return "".join(codes) + r"\Z"


def open_numbers(
    traced: DynamoCapture,
    sources: Mapping[str, tuple[int | str, Any]],
    in_structures: Collection[str] = (),
) -> list[OpenNumber]:
    """Return the numbers that a trace left open, of those that it was asked to leave open.

    Those of the arguments and of structures that it has not looked at among them.
    """
    if traced.graph_module is None:
        return []
    environment = traced.fake_mode.shape_env
    symbols = {
        source.name: symbol
        for symbol, found in environment.var_to_sources.items()
        for source in found
    }
    result: list[OpenNumber] = []
    compared = tuple(
        guard.originating_source.name
        for guard in traced.output.guards
        if in_structures and guard.create_fn_name() in BY_VALUE
    )
    for name, (position, now) in sources.items():
        symbol = symbols.get(name)
        if symbol is None:
            is_unread = name in in_structures and not name.startswith(compared)
            if isinstance(position, int) or is_unread:
                result.append(OpenNumber(position, type(now)))
        elif environment.replace(symbol).is_number:
            continue
        elif type(now) is float:
            value = environment.create_symfloatnode(symbol, hint=now)
            result.append(OpenNumber(position, float, symbol, value))
        else:
            bound_int(environment, symbol, now)
            value = environment.create_symintnode(symbol, hint=now)
            result.append(OpenNumber(position, int, symbol, value))
    return result


def may_be_open(value: int | float) -> bool:
    """Whether a number may be one of those that a program is made for any value of."""
    return abs(value) <= _MOST[-1] if type(value) is int else math.isfinite(value)


def bound_int(environment: Any, symbol: Any, now: int) -> None:
    """Let an open int be none of which a sum would not fit, by its value in the call."""
    most = next((most for most in _MOST if abs(now) <= most), None)
    if most is None:
        raise refusal(f"{now} is no number of 63 bits")
    bounds = environment.var_to_range[symbol] & ValueRanges(-most, most)
    environment.var_to_range[symbol] = bounds


def with_same(number: OpenNumber, same: Mapping[str, str]) -> OpenNumber:
    """Return a number with those that have to be the same; `same`: what each is the same as."""
    names = tuple(name for name, first in same.items() if first == number.position)
    return dataclasses.replace(number, same=names) if names else number


def values_of(numbers: Iterable[OpenNumber]) -> list[OpenValue]:
    """Return those that the program depends on."""
    return [number.value for number in numbers if number.value is not None]


def _leaves(value: Any, name: str, by_fields: ByFields | None) -> Iterator[tuple[str, Any]]:
    """Yield numbers; for None objects of any class that has only fields are containers."""
    kind = type(value)
    if kind is int or kind is float:
        yield name, value
    elif kind is tuple or kind is list or kind is torch.Size:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{name}[{index}]", by_fields)
    elif kind is dict or kind is collections.OrderedDict:
        for key, item in value.items():
            yield from _leaves(item, f"{name}[{shown(key)}]", by_fields)
    elif is_namedtuple_type(kind):
        for field, item in zip(kind._fields, value, strict=True):
            yield from _leaves(item, f"{name}.{field}", by_fields)
    else:
        fields = fields_of(value) if by_fields is None else by_fields.fields_of(value)
        for field, item in (fields or {}).items():
            yield from _leaves(item, f"{name}.{field}", by_fields)
