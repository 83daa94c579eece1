# SPDX-License-Identifier: Apache-2.0
"""Calls that bring many values in lists, tuples or dicts: what a sample of a replay memory is.

    states, actions, rewards = zip(*batch)
    states = torch.stack(states)
    rewards = torch.tensor(rewards)

Which of the tensors are one, which items are None, and how many there are differs from call to
call. So such lines stay Python's, with the modules that they call compiled; what follows, which has
the tensors that they made, is a compiled part.
"""

from __future__ import annotations

import collections
import functools
import itertools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from hostjit import _C
from hostjit.bytecode.splits import parameters_of, places_between_lines, with_calls_between_lines
from hostjit.capturing.instances import is_namedtuple_type
from hostjit.compiling.specializer import route_any_call
from hostjit.compiling.split_calls import function_and_receiver, joined

if TYPE_CHECKING:
    from hostjit.compiling.compilation import Compilation

__all__ = ["WideAnswers", "is_wide", "places_behind_wide"]

# Of an argument.
_MOST_VALUES = 64
# Of what is given to the compiled part.
_MOST_LEFT = 8


def is_wide(value: Any, most: int = _MOST_VALUES) -> bool:
    """Tell whether a value holds many others, beyond so many."""
    return _count(value, most + 1) > most


def _count(value: Any, most: int) -> int:
    """How many values there are in a container and those in it; no more than `most` are counted."""
    count = 0
    for item in _items(value):
        count += 1 + _count(item, most - count)
        if count >= most:
            return most
    return count


def _holds_parameters(value: Any) -> bool:
    """Whether a tensor in a container is one that is trained: each call brings the same."""
    if isinstance(value, torch.Tensor):
        return value.requires_grad and value.is_leaf
    return any(map(_holds_parameters, _items(value)))


def _items(value: Any) -> Iterator[Any]:
    kind = type(value)
    if kind in (list, tuple, set, frozenset, collections.deque) or is_namedtuple_type(kind):
        return iter(value)
    return iter(value.values()) if kind in (dict, collections.OrderedDict) else iter(())


class WideAnswers:
    """Answers calls of one function that bring many values, where it can be split."""

    def __init__(self, first: int) -> None:
        """Answer none yet, then the call that is the `first` of such, counted from 1."""
        self._first = first
        self._count = 0

    @property
    def were_asked_for(self) -> bool:
        """Whether there was a call that brought many values."""
        return self._count > 0

    def answer(
        self, compilation: Compilation, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        """Return what answers all calls; None where the function is compiled as others are.

        Args:
            compilation: of the function. It has this object, which doesn't have it: what is
                compiled goes away with the last reference, not with the next collection.
            args: of the call.
            kwargs: of the call.
        """
        wide = list(filter(is_wide, (*args, *kwargs.values())))
        if not wide or any(map(_holds_parameters, wide)):
            return None
        self._count += 1
        if self._count != self._first or not compilation.may_run_in_parts():
            return None
        places = places_behind_wide(compilation.target, args, kwargs)
        if not places:
            return None
        from hostjit.parts.arrays import as_python

        return route_any_call(
            WideCalls(
                compilation.target,
                places,
                functools.partial(as_python, compilation),
                functools.partial(compilation.part, records=True),
                compilation.answers_anew,
            )
        )


class WideCalls:
    """Answers calls of a function that are given many values.

    The first call finds where the function is split: at the first line from which on it reads no
    variable that holds many.
    """

    def __init__(
        self,
        target: Callable[..., Any],
        places: Mapping[int, Sequence[str]],
        as_python: Callable[[Callable[..., Any]], Callable[..., Any]],
        part: Callable[[types.FunctionType], Callable[..., Any]],
        otherwise: Callable[[], Callable[..., Any] | None],
    ) -> None:
        """Answer no call yet.

        Args:
            target: the function or method.
            places: where it may be split; see `places_behind_wide`.
            as_python: returns what runs a function as Python.
            part: compiles what follows.
            otherwise: returns what answers all calls, where the function cannot be split; None if
                that is gone.
        """
        self._function, self._receiver = function_and_receiver(target)
        self._places = places
        self._as_python = as_python
        self._part = part
        self._otherwise = otherwise
        self._answers: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a call."""
        if self._answers is not None:
            return self._answers(*args, **kwargs)
        function = self._function
        assert function is not None
        found: list[int] = []

        def note(place: int, values: tuple[Any, ...]) -> None:
            if not found and not any(is_wide(value, _MOST_LEFT) for value in values):
                found.append(place)

        watched = with_calls_between_lines(function, self._places, note)
        result = watched(*self._receiver, *args, **kwargs)
        if found:
            self._answers = joined(function, self._receiver, found[0], self._as_python, self._part)
        else:
            self._answers = self._otherwise()
        return result


def places_behind_wide(
    target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[int, tuple[str, ...]]:
    """Return the places between lines of a function behind all that reads its wide arguments.

    And what is in its `*args` and `**kwargs`; ahead of all that computes gradients. Nothing for
    what is no function or method.
    """
    function, receiver = function_and_receiver(target)
    if function is None:
        return {}
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    others = {*parameters_of(code)[code.co_argcount + code.co_kwonlyargcount :]}
    wide = {
        name
        for name, value in itertools.zip_longest(names, (*receiver, *args))
        if name is not None and is_wide(value)
    }
    wide |= {name for name, value in kwargs.items() if is_wide(value)}
    return {
        place: read
        for place, read in places_between_lines(code, ahead_of_gradients=True).items()
        if not (wide | others) & {*read}
    }
