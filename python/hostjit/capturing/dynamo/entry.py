# SPDX-License-Identifier: Apache-2.0
"""The function through which a callable is traced: `entry(*args, **kwargs)`, which only calls it.

So hooks, `__call__`, bound methods, default arguments and `functools.partial` are all Dynamo's to
follow and to guard, and every guard starts at one of four places: `args`, `kwargs`, the target, a
global.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import types
from typing import Any

import torch

__all__ = ["TARGET_NAME", "make_entry"]

TARGET_NAME = "hostjit_target"


def make_entry(target: Any) -> types.FunctionType:
    """Make the function that is traced, over the globals of the user's code.

    Over those globals, because Dynamo looks up the globals of a function that it inlines by its
    module's name, which is wrong for code made by `exec`, unless they are the root's own.
    """

    def make(hostjit_target: Any) -> Any:
        def entry(*args: Any, **kwargs: Any) -> Any:
            return hostjit_target(*args, **kwargs)

        return entry

    template = make(target)
    return types.FunctionType(
        template.__code__, _globals_of(target), "entry", None, template.__closure__
    )


def _globals_of(target: Any) -> dict[str, Any]:
    function = target
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, torch.nn.Module):
        function = function.forward
    elif not isinstance(function, (types.FunctionType, types.MethodType)):
        function = getattr(type(function), "__call__", None)  # noqa: B004
    function = inspect.unwrap(getattr(function, "__func__", function))
    if isinstance(function, types.FunctionType):
        return function.__globals__
    return {"__name__": __name__, "__builtins__": builtins.__dict__}
