# SPDX-License-Identifier: Apache-2.0
"""What a program assumed about Python state outside of its arguments, one entry per fact.

Each entry can be checked without running Python, in nanoseconds; a checker keeps what it needs
(a dict's version tag or watcher, a type's version tag) from the moment it takes an entry over. An
entry that fails does not mean that the program is wrong, only that somebody looked different:
`CapturedProgram.revalidate` then decides. Entries hold their objects strongly.
"""

from __future__ import annotations

import collections
import dataclasses
import types
from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any, Final

import torch

from hostjit.capturing.tensors import TensorFacts

if TYPE_CHECKING:
    pass

__all__ = [
    "MISSING",
    "AbstractClasses",
    "CellContents",
    "DictItems",
    "DictKeys",
    "DictVersion",
    "FunctionFields",
    "FunctionState",
    "GradientState",
    "ListItems",
    "ObjectType",
    "SetItems",
    "Slots",
    "TensorState",
    "TypeVersion",
    "Watch",
    "without_tensors",
]


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
"""Stands for "no such key" or "an empty cell" among expected objects."""


@dataclasses.dataclass(frozen=True, eq=False)
class DictVersion:
    """Nothing at all changes in a dict: keys, order, values.

    Attributes:
        mapping: an exact dict or a subclass of it.
        owner: when not None, `owner.__dict__` must still be this very dict.
        path: where it was found, for messages.
    """

    mapping: dict[Any, Any]
    owner: object
    path: str


@dataclasses.dataclass(frozen=True, eq=False)
class DictItems:
    """Some keys of a dict map to these very objects; other keys are free to change.

    Attributes:
        keys, expected: pairs; MISSING expects the key to be absent.
        owner: when not None, `owner.__dict__` must still be this very dict.
    """

    mapping: dict[Any, Any]
    owner: object
    keys: tuple[Any, ...]
    expected: tuple[Any, ...]
    path: str


@dataclasses.dataclass(frozen=True, eq=False)
class DictKeys:
    """A dict has these very keys in this order; they may map to anything."""

    mapping: dict[Any, Any]
    keys: tuple[Any, ...]
    path: str


@dataclasses.dataclass(frozen=True, eq=False)
class CellContents:
    """A closure's cell holds this very object (MISSING: it is empty)."""

    cell: types.CellType
    expected: object
    path: str


@dataclasses.dataclass(frozen=True, eq=False)
class ListItems:
    """A list or deque has this length and these very objects; in place of MISSING any."""

    list: list[Any] | collections.deque[Any]
    items: tuple[Any, ...]
    path: str


@dataclasses.dataclass(frozen=True, eq=False)
class SetItems:
    """A set or frozenset has this size and contains all of these."""

    set: set[Any] | frozenset[Any]
    items: tuple[Any, ...]
    path: str


@dataclasses.dataclass(frozen=True, eq=False)
class TypeVersion:
    """Nothing changes in a class or its bases (`tp_version_tag`).

    Attributes:
        open: by class the names of attributes that may have other values.
        by_items: what is in the class and its bases is compared once something has changed.
    """

    type: type
    path: str
    open: Mapping[Any, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    by_items: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class ObjectType:
    """An object is still of this exact type: `__class__` was not assigned."""

    object: object
    type: type
    path: str


@dataclasses.dataclass(frozen=True, eq=False)
class FunctionState:
    """A function has these very `__code__`, `__defaults__` and `__kwdefaults__` objects."""

    function: types.FunctionType
    code: types.CodeType
    defaults: tuple[Any, ...] | None
    kwdefaults: dict[str, Any] | None
    path: str


@dataclasses.dataclass(frozen=True, eq=False)
class AbstractClasses:
    """No class was registered with an abstract class: `abc.get_cache_token()` gives `token`."""

    token: object


@dataclasses.dataclass(frozen=True, eq=False)
class FunctionFields:
    """Attributes of a function that no dict has, such as `__name__`, are what they are now."""

    function: types.FunctionType
    names: tuple[str, ...]
    path: str


@dataclasses.dataclass(frozen=True, eq=False)
class Slots:
    """Slots of an object, given by their descriptors, hold what they hold now."""

    object: object
    members: tuple[types.MemberDescriptorType, ...]
    path: str


@dataclasses.dataclass(frozen=True, eq=False)
class TensorState:
    """A tensor that is no input of the graph, but whose facts the program assumed."""

    tensor: torch.Tensor
    facts: TensorFacts
    path: str


@dataclasses.dataclass(frozen=True, eq=False)
class GradientState:
    """A tensor has a gradient with these facts, whichever tensor that is, or none.

    Attributes:
        owner: whose `.grad` it is.
        facts: None: the owner has no gradient.
    """

    owner: torch.Tensor
    facts: TensorFacts | None
    path: str


Watch = (
    DictVersion
    | DictItems
    | DictKeys
    | CellContents
    | ListItems
    | SetItems
    | TypeVersion
    | ObjectType
    | FunctionState
    | FunctionFields
    | Slots
    | AbstractClasses
    | TensorState
    | GradientState
)


def without_tensors(entries: Iterable[Watch], kept: Set[int]) -> tuple[Watch, ...]:
    """Return entries that leave open which tensors dicts and lists hold, but for those of ids."""

    def is_open(value: object) -> bool:
        return isinstance(value, torch.Tensor) and id(value) not in kept

    def open_tensors(entry: Watch) -> Watch:
        if isinstance(entry, DictItems) and any(map(is_open, entry.expected)):
            pairs = zip(entry.keys, entry.expected, strict=True)
            kept_pairs = [(key, value) for key, value in pairs if not is_open(value)]
            keys, expected = zip(*kept_pairs, strict=True) if kept_pairs else ((), ())
            return dataclasses.replace(entry, keys=keys, expected=expected)
        if isinstance(entry, ListItems):
            items = tuple(MISSING if is_open(item) else item for item in entry.items)
            return dataclasses.replace(entry, items=items)
        return entry

    return tuple(map(open_tensors, entries))
