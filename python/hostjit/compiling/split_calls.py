# SPDX-License-Identifier: Apache-2.0
"""Calls of a function in two parts: lines that are left to Python, and what follows them.

    batch = self.memory.sample(64)
    loss = self.loss(batch)
    loss.backward()

What draws a sample of NumPy's arrays breaks off within what it calls. The rest of the function,
which is given what came of it, computes with tensors alone, and may be recorded.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from hostjit.bytecode.halves import Returned
from hostjit.bytecode.splits import (
    computes_gradients,
    parameters_of,
    places_between_lines,
    split_at,
    unread_by,
)
from hostjit.capturing.errors import CaptureError

__all__ = ["function_and_receiver", "joined", "place_behind"]


def function_and_receiver(
    target: Callable[..., Any],
) -> tuple[types.FunctionType | None, tuple[Any, ...]]:
    """Return the function of a function or a method, and the object of the method."""
    receiver: tuple[Any, ...] = ()
    function: Any = target
    if isinstance(target, types.MethodType):
        function, receiver = target.__func__, (target.__self__,)
    return (function if isinstance(function, types.FunctionType) else None), receiver


def place_behind(function: types.FunctionType, error: CaptureError) -> int | None:
    """Return where a function can be split behind a break, and ahead of all gradients.

    None where the break is in no line of it, where it computes no gradients behind, and where its
    `*args` and `**kwargs` are read there.
    """
    code = function.__code__
    lines = error.lines_in(code)
    if not lines:
        return None
    others = {*parameters_of(code)[code.co_argcount + code.co_kwonlyargcount :]}
    for place, read in places_between_lines(code, ahead_of_gradients=True, behind=lines).items():
        if not others & {*read} and computes_gradients(code, place):
            return place
    return None


def joined(
    function: types.FunctionType,
    receiver: tuple[Any, ...],
    place: int,
    first_of: Callable[[Callable[..., Any]], Callable[..., Any]],
    rest_of: Callable[[types.FunctionType], Callable[..., Any]],
) -> Callable[..., Any]:
    """Return what calls a function in two parts.

    Args:
        function: of a function or a method.
        receiver: the object of the method.
        place: ahead of which instruction the second part begins.
        first_of: returns what runs the first part.
        rest_of: returns what runs the rest, which does not read `*args` and `**kwargs`.
    """
    split = split_at(function, place)
    first, rest = first_of(split.first), rest_of(split.rest)
    # What it is given of the first is ahead of the arguments.
    unread = {i - 1 if isinstance(i, int) else i for i in unread_by(split.rest.__code__)}
    code = function.__code__
    count = code.co_argcount
    names = {*parameters_of(code)[: count + code.co_kwonlyargcount]}

    def run(*args: Any, **kwargs: Any) -> Any:
        given = (*receiver, *args)
        found = first(*given, **kwargs)
        if found and found[-1] is Returned:
            return found[0]
        read = [None if i in unread else value for i, value in enumerate(given[:count])]
        return rest(found, *read, **_read_by_name(kwargs, names, unread))

    return run


def _read_by_name(
    kwargs: Mapping[str, Any], names: set[str], unread: set[int | str]
) -> dict[str, Any]:
    """Keyword arguments that are parameters, without the values that are not read."""
    return {
        name: None if name in unread else value for name, value in kwargs.items() if name in names
    }
