# SPDX-License-Identifier: Apache-2.0
"""Variables of closures that methods of objects read, where the code makes the objects itself.

Dynamo has no source for such a method, and takes what the cells of its closure hold for constants:
it leaves no guard on them, and what code changes in them is lost. The same holds of what decorators
made of methods. Functions of installed packages are left alone.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Iterator
from typing import Any

from torch._dynamo.source import GlobalSource
from torch._dynamo.variables.functions import UserFunctionVariable

from hostjit.capturing.dynamo.kept_results import is_installed_file
from hostjit.replacements import replaced_attribute

__all__ = ["reading_cells"]

_FUNCTION = "__hostjit_function"


@contextlib.contextmanager
def reading_cells() -> Iterator[None]:
    """Have Dynamo read the cells of such functions as those of any other, in this thread."""
    owner = threading.get_ident()
    bind: Any = UserFunctionVariable.bind_args

    def bind_args(self: Any, parent: Any, args: Any, kwargs: Any) -> Any:
        function = self.fn
        if threading.get_ident() == owner and _has_cells(function) and not self.get_source():
            name = parent.output.install_global_by_id(_FUNCTION, function)
            self.get_source = lambda: GlobalSource(name)
        return bind(self, parent, args, kwargs)

    with replaced_attribute(UserFunctionVariable, "bind_args", bind_args):
        yield


def _has_cells(function: Any) -> bool:
    """Tell whether users wrote a function that reads cells, others than the one of `super()`."""
    if not isinstance(function, types.FunctionType) or not function.__closure__:
        return False
    code = function.__code__
    return set(code.co_freevars) != {"__class__"} and not is_installed_file(code.co_filename)
