# SPDX-License-Identifier: Apache-2.0
"""Functions of users in the form in which a recording follows what they decide."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from hostjit.bytecode.choices import with_choices
from hostjit.bytecode.making import function_of
from hostjit.bytecode.splits import may_be_taken_apart
from hostjit.capturing.module_fields import has_plain_call
from hostjit.recording.code.libraries import is_library, is_own

__all__ = ["CALLS_OF_MODULES", "DECORATING", "DecidingFunctions"]

DECORATING = frozenset(
    function.__code__
    for function in (torch.no_grad()(lambda: None), torch.autocast("cpu")(lambda: None))
)
"""Code of modes as decorators, which returns what it is returned."""
CALLS_OF_MODULES = (nn.Module._wrapped_call_impl.__code__, nn.Module._call_impl.__code__)
"""Code by which modules are called, which returns what `forward` does where nothing is around."""
_SEQUENTIAL = nn.Sequential.forward.__code__


class DecidingFunctions:
    """Makes such functions, once of each code."""

    def __init__(self) -> None:
        self._made: dict[
            tuple[types.CodeType, int, bool], tuple[dict[str, Any], types.CodeType]
        ] = {}

    def of(self, target: Any, *, leaves: bool) -> Any:
        """Return what does the same as a function, method or module, with its defaults of now.

        The same for what is none of users, or has hooks. `leaves`: others may leave its loops
        earlier.
        """
        if type(target) is types.MethodType:
            made = self.of(target.__func__, leaves=leaves)
            return target if made is target.__func__ else types.MethodType(made, target.__self__)
        if has_plain_call(target):
            forward: Any = target.forward
            made = self.of(forward, leaves=leaves)
            return target if made is forward else made
        if type(target) is not types.FunctionType:
            return target
        code, variables = target.__code__, target.__globals__
        if code in DECORATING:
            decorated = {each: self.of(each, leaves=leaves) for each in _decorated(target)}
            return _with_others(target, decorated)
        if not (_is_of_users(code) or code is _SEQUENTIAL):
            return target
        key = code, id(variables), leaves
        if key not in self._made:
            self._made[key] = variables, with_choices(target, leaves=leaves).__code__
        return function_of(target, self._made[key][1])


def _decorated(function: types.FunctionType) -> list[types.FunctionType]:
    """The functions in the closure of another."""
    contents = (each.cell_contents for each in function.__closure__ or ())
    return [each for each in contents if type(each) is types.FunctionType]


def _with_others(
    function: types.FunctionType, others: Mapping[types.FunctionType, Any]
) -> types.FunctionType:
    """Return a function with others in the places of some in its closure; itself without any."""
    if all(other is each for each, other in others.items()):
        return function
    contents = (each.cell_contents for each in function.__closure__ or ())
    cells = tuple(
        types.CellType(others[each] if type(each) is types.FunctionType else each)
        for each in contents
    )
    code, variables = function.__code__, function.__globals__
    return types.FunctionType(code, variables, function.__name__, function.__defaults__, cells)


def _is_of_users(code: types.CodeType) -> bool:
    file = code.co_filename
    return not (is_library(file) or is_own(file)) and may_be_taken_apart(code)
