# SPDX-License-Identifier: Apache-2.0
"""What runs in the place of a user's function, for as long as that is what it was made of."""

from __future__ import annotations

import types
from typing import Any

from torch._dynamo.eval_frame import skip_code

__all__ = ["FunctionInPlace"]


class FunctionInPlace:
    """Calls a function that was made of the code of another one, with the defaults of that now.

    Where the other has other code, by now, that is called.
    """

    def __init__(self, function: types.FunctionType, made: types.FunctionType) -> None:
        self._function = function
        self._code = function.__code__
        self._made = made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function, made = self._function, self._made
        if function.__code__ is not self._code:
            return function(*args, **kwargs)
        if made.__defaults__ is not function.__defaults__:
            made.__defaults__ = function.__defaults__
        if made.__kwdefaults__ is not function.__kwdefaults__:
            made.__kwdefaults__ = function.__kwdefaults__
        return made(*args, **kwargs)


skip_code(FunctionInPlace.__call__.__code__)
