# SPDX-License-Identifier: Apache-2.0
"""What varies of the tensors and numbers that calls of one callable are given, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from hostjit.capturing.arguments import items_of
from hostjit.capturing.by_fields import ByFields
from hostjit.capturing.instances import is_a, is_one_of, shown
from hostjit.compiling.named_dims import parameters_of

__all__ = ["LeafHistories", "Leaves", "leaves_by_name"]

_NUMBERS = (int, float)

# A name, and the rank of the tensor there or the type of the number.
_Place = tuple[str, int | type]
# Tensors and numbers of a call in the order of its leaves, with names of where they are.
Leaves = Sequence[tuple[str, Any]]


def leaves_by_name(
    target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], by_fields: ByFields
) -> Leaves:
    """Return the tensors and the numbers of a call: `x` is `x`, by position and by keyword.

    `by_fields`: classes whose objects are containers.
    """
    named = [*zip(_names(parameters_of(target), len(args)), args, strict=True), *kwargs.items()]
    return [leaf for name, value in named for leaf in _leaves(value, name, by_fields)]


class LeafHistories:
    """Remembers the first sizes and values, and which dims and numbers had others since.

    Tensors of other ranks in one place are kept apart, and so are ints and floats. A dim of a
    tensor that no call had before is guessed to vary where it has the size of one that does: a
    mask is as long as what it is for.
    """

    def __init__(self) -> None:
        self._first: dict[_Place, Any] = {}
        self._varied: dict[_Place, set[int]] = {}
        self._guessed: dict[_Place, set[int]] = {}

    def note(self, leaves: Leaves) -> None:
        """Look at a call."""
        unseen = []
        for name, value in leaves:
            place = _place(name, value)
            if place not in self._first:
                self._first[place] = _content(value)
                unseen.append((place, value))
                continue
            pairs = zip(_content(value), self._first[place], strict=True)
            differ = {index for index, (now, first) in enumerate(pairs) if now != first}
            self._varied.setdefault(place, set()).update(differ)
        varying = {
            size
            for name, value in leaves
            for dim, size in enumerate(_content(value))
            if is_a(value, torch.Tensor) and dim in self._varied.get(_place(name, value), ())
        }
        for place, value in unseen:
            if is_a(value, torch.Tensor):
                self._guessed[place] = {i for i, x in enumerate(value.shape) if x in varying}

    def varying(self, name: str, value: torch.Tensor | int | float) -> set[int]:
        """Return the dims of a tensor that vary, {0} for a number that does."""
        place = _place(name, value)
        return self._varied.get(place, set()) | self._guessed.get(place, set())

    def guess_no_more(self, leaves: Leaves) -> Callable[[], None] | None:
        """Take back what was guessed of a call's tensors; returns what undoes that."""
        places = [_place(name, value) for name, value in leaves]
        guessed = {place: self._guessed[place] for place in places if self._guessed.get(place)}
        if all(dims <= self._varied.get(place, set()) for place, dims in guessed.items()):
            return None
        self._guessed.update({place: set() for place in guessed})
        return lambda: self._guessed.update(guessed)


def _place(name: str, value: Any) -> _Place:
    return name, value.dim() if is_a(value, torch.Tensor) else type(value)


def _content(value: Any) -> tuple[Any, ...]:
    return tuple(value.shape) if is_a(value, torch.Tensor) else (value,)


def _names(parameters: Sequence[inspect.Parameter], count: int) -> list[str]:
    """The names of positional arguments."""
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in by_position]
    return [*names, *(f"argument {index}" for index in range(len(names), count))][:count]


def _leaves(value: Any, name: str, by_fields: ByFields) -> Iterator[tuple[str, Any]]:
    if is_a(value, torch.Tensor) or is_one_of(type(value), _NUMBERS):
        yield name, value
        return
    for key, item in (items_of(value, by_fields) or {}).items():
        yield from _leaves(item, f"{name}[{shown(key)}]", by_fields)
