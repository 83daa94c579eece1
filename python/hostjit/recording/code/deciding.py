# SPDX-License-Identifier: Apache-2.0
"""Functions of users in the form in which a recording follows what they decide."""

from __future__ import annotations

import types
from typing import Any

from hostjit.bytecode.choices import with_choices
from hostjit.bytecode.making import function_of
from hostjit.bytecode.splits import may_be_taken_apart
from hostjit.recording.code.libraries import is_library, is_own

__all__ = ["DecidingFunctions"]


class DecidingFunctions:
    """Makes such functions, once of each code."""

    def __init__(self) -> None:
        self._made: dict[
            tuple[types.CodeType, int, bool], tuple[dict[str, Any], types.CodeType]
        ] = {}

    def of(self, target: Any, *, leaves: bool) -> Any:
        """Return what does the same as a function, or a method, with its defaults of now.

        The same for what is neither of users. `leaves`: others may leave its loops earlier.
        """
        is_method = type(target) is types.MethodType
        function = target.__func__ if is_method else target
        if type(function) is not types.FunctionType or not _is_of_users(function.__code__):
            return target
        code, variables = function.__code__, function.__globals__
        key = code, id(variables), leaves
        if key not in self._made:
            self._made[key] = variables, with_choices(function, leaves=leaves).__code__
        made = function_of(function, self._made[key][1])
        return types.MethodType(made, target.__self__) if is_method else made


def _is_of_users(code: types.CodeType) -> bool:
    file = code.co_filename
    return not (is_library(file) or is_own(file)) and may_be_taken_apart(code)
