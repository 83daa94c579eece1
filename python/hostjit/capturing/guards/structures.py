# SPDX-License-Identifier: Apache-2.0
"""Structures: tuples, lists, dicts and objects that another call may find others in the place of.

They are compared as arguments are, so that nothing is known of them but their classes and what they
hold. That two of them are one object is not known, nor that one is an object met elsewhere.
"""

from __future__ import annotations

import dis
import functools
import os
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from hostjit.capturing.arguments import items_of
from hostjit.capturing.by_fields import ByFields
from hostjit.capturing.dynamic_dims import refusal

__all__ = [
    "check_arguments",
    "check_structures",
    "classes_in",
    "compares_identities",
    "differ_in_numbers_alone",
    "structure_items",
]

_DEPTH = 16
_TORCH = os.path.dirname(torch.__file__) + os.sep
# Compared by value, or never in one's way.
_LEAVES = (bool, int, float, complex, str, bytes, type(None), type, torch.dtype, torch.device)


def structure_items(value: Any) -> Mapping[Any, Any] | None:
    """Return the items of a structure, or of what is in one; None for what is no structure."""
    return None if isinstance(value, torch.nn.Module) else items_of(value, ByFields.of(type(value)))


def check_structures(
    values: Sequence[Any], changed: Collection[type], traced: Iterable[types.CodeType]
) -> None:
    """Raise CaptureError unless values can be structures.

    Args:
        values: the structures.
        changed: the classes of the objects that the call changes.
        traced: the code that runs.
    """
    if values and any(compares_identities(code) for code in traced):
        raise refusal("the code may ask whether a structure is another object")
    met: dict[int, Any] = {}
    for value in values:
        for container in _containers(value, _DEPTH):
            if id(container) in met and type(container) not in (tuple, torch.Size):
                raise refusal("an object is met twice")
            met[id(container)] = container
            if type(container) in changed:
                raise refusal(f"a call changes objects of {type(container)}")


def check_arguments(containers: Iterable[Any], by_fields: ByFields) -> None:
    """The same for the objects among the arguments that are compared by their fields."""
    met: set[int] = set()
    for container in containers:
        if type(container) in by_fields and not isinstance(container, torch.nn.Module):
            if id(container) in met:
                raise refusal("an object is twice among the arguments")
            met.add(id(container))


def classes_in(value: Any) -> Iterator[type]:
    """The classes of the objects in a structure that are compared by their fields."""
    for container in _containers(value, _DEPTH):
        kind = type(container)
        if not isinstance(container, (tuple, list, dict)):
            yield kind


def differ_in_numbers_alone(a: Any, b: Any) -> bool:
    """Whether two values are structures alike, but for ints and floats in them."""
    try:
        return bool(_but_numbers(a, _DEPTH, set()) == _but_numbers(b, _DEPTH, set()))
    except _MetTwiceError:
        return False


class _MetTwiceError(Exception):
    """Raised for what is no structure, and takes forever to look at where objects know others."""


def _but_numbers(value: Any, depth: int, met: set[int]) -> Any:
    kind = type(value)
    items = structure_items(value) if depth else None
    if items is None:
        return kind, None if kind in (int, float) else value if kind in _LEAVES else id(value)
    if id(value) in met and items and kind not in (tuple, torch.Size):
        raise _MetTwiceError
    met.add(id(value))
    return kind, [(name, _but_numbers(item, depth - 1, met)) for name, item in items.items()]


@functools.cache
def compares_identities(code: types.CodeType) -> bool:
    """Whether there is an `is` with something else than a constant, in code of users."""
    if code.co_filename.startswith(_TORCH):
        return False
    before = ""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IS_OP" and before != "LOAD_CONST":
            return True
        before = instruction.opname
    return False


def _containers(value: Any, depth: int) -> Iterator[Any]:
    items = structure_items(value)
    if items is None:
        if not isinstance(value, _LEAVES):
            raise refusal(f"a {type(value).__qualname__} is in a structure")
        return
    if depth == 0:
        raise refusal("a structure is too deep")
    yield value
    for item in items.values():
        yield from _containers(item, depth - 1)
