# SPDX-License-Identifier: Apache-2.0
"""Calls that change Python state in some of their lines, which Python runs.

    self.window.append((x, y))
    inputs = torch.stack([pair[0] for pair in self.window])
    targets = torch.stack([pair[1] for pair in self.window])
    loss = functional.mse_loss(self.net(inputs), targets)
    loss.backward()

No replay would change the window. What is ahead of the first line that has to do with it, and what
is behind the last one, are functions of their own, which may be recorded.
"""

from __future__ import annotations

import dis
import functools
import re
import types
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Any

from torch._dynamo.bytecode_transformation import cleaned_instructions
from torch.utils._python_dispatch import TorchDispatchMode

from hostjit.bytecode.splits import parameters_of, places_between_lines, with_calls_between_lines
from hostjit.capturing.instances import name_of
from hostjit.compiling.split_calls import function_and_receiver, joined

__all__ = ["CallsAroundChanges", "Places", "names_in_path", "touched"]

# An attribute or a variable of a function in what says what has changed, and what is behind it.
_NAME = re.compile(r"""(?:\.|^'|L\[')([^\W\d]\w*)((?:'?\[[^.]*)?)""")
_KEY = re.compile(r"'([^\W\d]\w*)'")
_ARGUMENT = re.compile(r"argument (\d+)")
# Of operators, to be a function of its own.
_FEWEST = 2
# After so many calls that have not come to where the function is to be split, none may.
_MOST_WATCHED = 64


def names_in_path(path: str, target: Callable[..., Any]) -> list[set[str]]:
    """Return what code may call what is at a path by, the last first.

    These are attributes with keys, variables or parameters.

    Args:
        path: as recordings say what a call has changed, or as Dynamo calls it.
        target: what was called, a function or a method.
    """
    function, receiver = function_and_receiver(target)
    names = [
        {name, *_KEY.findall(keys)}
        for name, keys in _NAME.findall(path.replace(name_of(target), ""))
    ]
    argument = _ARGUMENT.match(path)
    if function is not None and argument is not None:
        place = int(argument[1]) + len(receiver)
        names.insert(0, {*function.__code__.co_varnames[place : place + 1]})
    return names[::-1]


def touched(
    code: types.CodeType, names: Sequence[Set[str]], called: Collection[types.CodeType]
) -> list[int]:
    """Return which instructions have to do with what some names lead to, or call what has.

    Args:
        code: of a function.
        names: as of `names_in_path`.
        called: code that it calls, among other code of users.
    """
    own = code.co_filename, code.co_firstlineno
    others = [each for each in called if (each.co_filename, each.co_firstlineno) != own]
    instructions = cleaned_instructions(code)
    for last in names:
        known = {*last}
        while more := {x.co_name for x in others if _names_in(x) & known} - known:
            known |= more
        found = [i for i, each in enumerate(instructions) if _names_of(each.argval) & known]
        if found:
            return found
    return []


def _names_of(value: Any) -> frozenset[str]:
    if isinstance(value, types.CodeType):
        return _names_in(value)
    return frozenset({value} if isinstance(value, str) else ())


@functools.cache
def _names_in(code: types.CodeType) -> frozenset[str]:
    found = (each.argval for each in dis.get_instructions(code))
    return frozenset[str]().union(*map(_names_of, found))


class Places:
    """Where a function is split: ahead of what has to do with some names, and behind it.

    Attributes:
        ahead: ahead of which instruction; None where nothing is there.
        behind: with which instruction what follows begins; None where nothing does.
    """

    def __init__(
        self,
        code: types.CodeType,
        names: Sequence[Sequence[Set[str]]],
        called: Collection[types.CodeType],
    ) -> None:
        """Find them.

        Args:
            code: of the function.
            names: of each that is changed, as of `names_in_path`.
            called: code that the function calls, among other code of users.
        """
        found = sorted({i for each in names for i in touched(code, each, called)})
        # A graph that gradients flow through does not end in what Python runs.
        ahead, behind = (_known_places(code, ahead_of_gradients=x) for x in (False, True))
        self.ahead = max((x for x in ahead if found and x <= found[0]), default=None)
        self.behind = min((x for x in behind if found and x > found[-1]), default=None)
        self._names = names
        self._called = called

    def __bool__(self) -> bool:
        return self.ahead is not None or self.behind is not None

    def of(self, code: types.CodeType) -> Places:
        """Return the places in a part of the function."""
        return Places(code, self._names, self._called)


def _known_places(code: types.CodeType, *, ahead_of_gradients: bool) -> list[int]:
    """Where a function may be split, and the rest does not read `*args` and `**kwargs`."""
    others = {*parameters_of(code)[code.co_argcount + code.co_kwonlyargcount :]}
    places = places_between_lines(code, ahead_of_gradients=ahead_of_gradients)
    return [place for place, read in places.items() if not others & {*read}]


class CallsAroundChanges:
    """Answers calls of a function; the first ones count the operators in each part of it."""

    def __init__(
        self,
        function: types.FunctionType,
        receiver: tuple[Any, ...],
        places: Places,
        as_python: Callable[[Callable[..., Any]], Callable[..., Any]],
        part: Callable[[Callable[..., Any]], Callable[..., Any]],
        otherwise: Callable[[], Callable[..., Any] | None],
    ) -> None:
        """Answer no call yet.

        Args:
            function: of a function or a method.
            receiver: the object of the method.
            places: where the function may be split.
            as_python: returns what runs a function as Python.
            part: compiles what changes nothing.
            otherwise: returns what answers all calls, where it does not pay to split the function;
                None if that is gone.
        """
        self._function, self._receiver = function, receiver
        self._places = places
        self._as_python = as_python
        self._part = part
        self._otherwise = otherwise
        self._num_watched = 0
        self._answers: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a call."""
        if self._answers is not None:
            return self._answers(*args, **kwargs)
        places = [place for place in (self._places.ahead, self._places.behind) if place is not None]
        counter = _OperatorCounter()
        counts: dict[int, int] = {}

        def note(place: int, values: tuple[Any, ...]) -> None:
            counts[place] = counter.count

        watched = with_calls_between_lines(self._function, dict.fromkeys(places, ()), note)
        with counter:
            result = watched(*self._receiver, *args, **kwargs)
        self._num_watched += 1
        if counts.keys() == {*places}:
            self._answers = self._split(counts, counter.count)
        elif self._num_watched == _MOST_WATCHED:  # all have returned ahead of a place
            self._answers = self._otherwise()
        return result

    def _split(self, counts: Mapping[int, int], count: int) -> Callable[..., Any] | None:
        """Return what answers all calls.

        Args:
            counts: of the operators ahead of each place.
            count: of all operators.
        """
        function, receiver = self._function, self._receiver
        first, rest = self._places.ahead, self._places.behind
        ahead = 0 if first is None else counts[first]
        behind = 0 if rest is None else count - counts[rest]
        if ahead < _FEWEST:
            ahead, first = 0, None
        if behind < _FEWEST:
            behind, rest = 0, None
        if count - ahead - behind > ahead + behind:
            return self._otherwise()
        if rest is not None:
            run_first = self._as_python if first is None else self._joined_first
            return joined(function, receiver, rest, run_first, self._part)
        if first is not None:
            return joined(function, receiver, first, self._part, self._as_python)
        return self._otherwise()

    def _joined_first(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return what runs the part of the function up to where changes end."""
        assert isinstance(function, types.FunctionType)
        place = self._places.of(function.__code__).ahead
        if place is None:
            return self._as_python(function)
        return joined(function, (), place, self._part, self._as_python)


class _OperatorCounter(TorchDispatchMode):
    """Counts the operators that run."""

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))
