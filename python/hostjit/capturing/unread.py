# SPDX-License-Identifier: Apache-2.0
"""What of the arguments of a call in parts the first part does not look at.

It hands that on to the code behind it, or reads nothing but what is beside it: the tensors of a
list of transitions, and not their rewards. A program is for any value of it, of a constant for any
of its type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch._dynamo.source import DictGetItemSource, GetItemSource, ListGetItemSource, LocalSource

from hostjit.capturing.guards.kinds import BY_VALUE

if TYPE_CHECKING:
    from hostjit.capturing.dynamo.call import DynamoCapture

__all__ = ["is_item", "unread_arguments"]

_CONSTANTS = frozenset({bool, int, float, complex, str, bytes, type(None)})
_OF_TYPE, _OF_VALUE = "TYPE_MATCH", "EQUALS_MATCH"
_Path = tuple[Any, ...]


def unread_arguments(
    traced: DynamoCapture, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[int, ...], ...]:
    """Return where they are, as `_C.Specialization` takes it: in lists, tuples and dicts of texts.

    They are numbers, texts, None, and such containers of nothing else.
    """
    reads = _Reads(traced)
    return (
        *_unread(reads, tuple(args), ("args",), 0),
        *_unread(reads, dict(kwargs), ("kwargs",), len(args)),
    )


class _Reads:
    """What the guards and the symbols of a trace are about, by where it is in the arguments."""

    def __init__(self, traced: DynamoCapture) -> None:
        self._met: set[_Path] = set()
        self._of_types: set[_Path] = set()
        self._wholly: set[_Path] = set()
        for guard in traced.output.guards:
            self._note(guard.originating_source, guard.create_fn_name())
        if traced.fake_mode is not None:
            for sources in traced.fake_mode.shape_env.var_to_sources.values():
                for source in sources:
                    self._note(source, _OF_VALUE)

    def _note(self, source: Any, kind: str) -> None:
        steps = []
        while hasattr(source, "base"):
            steps.append(source)
            source = source.base
        if not isinstance(source, LocalSource):
            return
        path: _Path = (source.local_name,)
        for step in reversed(steps):
            self._met.add(path)
            if not is_item(step):
                self._wholly.add(path)
                return
            path = (*path, step.index)
        (self._of_types if kind == _OF_TYPE else self._met).add(path)
        if kind in BY_VALUE:
            self._wholly.add(path)

    def are_about(self, path: _Path, value: Any) -> bool:
        """Tell whether anything is said of what is there, or of what is in it.

        Of a constant, besides its type.
        """
        return path in self._met or (path in self._of_types and type(value) not in _CONSTANTS)

    def compare_all(self, path: _Path) -> bool:
        """Tell whether all that is there is compared."""
        return path in self._wholly


def is_item(step: Any) -> bool:
    """Tell whether a source of Dynamo's is an item of something, by its place or a text."""
    if type(step) in (GetItemSource, ListGetItemSource):
        return not step.index_is_slice and type(step.index) is int and step.index >= 0
    return type(step) is DictGetItemSource and type(step.index) is str


def _unread(reads: _Reads, holder: Any, path: _Path, first: int) -> Iterator[tuple[int, ...]]:
    """Yield the places in a container; `first` is the position of its first item."""
    if reads.compare_all(path):
        return
    for position, (key, value) in enumerate(_items(holder), first):
        inside = (*path, key)
        if not reads.are_about(inside, value) and _is_plain(value):
            yield (position,)
        elif not reads.compare_all(inside):
            yield from ((position, *rest) for rest in _unread(reads, value, inside, 0))


def _items(value: Any) -> Sequence[tuple[Any, Any]]:
    kind = type(value)
    if kind is tuple or kind is list:
        return list(enumerate(value))
    if kind is dict and all(type(key) is str for key in value):
        return list(value.items())
    return ()


def _is_plain(value: Any) -> bool:
    """Whether a value is a constant, or a container of nothing else."""
    kind = type(value)
    if kind is dict and any(type(key) is not str for key in value):
        return False
    is_container = kind is dict or kind is tuple or kind is list
    return kind in _CONSTANTS or (is_container and all(_is_plain(v) for _, v in _items(value)))
