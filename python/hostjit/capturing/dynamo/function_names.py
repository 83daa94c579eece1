# SPDX-License-Identifier: Apache-2.0
"""Names, modules and texts of functions, which code reads of these and Dynamo of their code.

So does that of torch 2.15: `function.__name__` is then what it was where the function was defined.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torch._dynamo.variables.functions import (
    BaseUserFunctionVariable,
    UserFunctionVariable,
    UserMethodVariable,
)

from hostjit.replacements import replaced_attribute

__all__ = ["reading_names_of_functions"]

_KINDS = (UserFunctionVariable, UserMethodVariable)
_READ = {
    "get_name": "__name__",
    "get_qualname": "__qualname__",
    "get_module": "__module__",
    "get_doc": "__doc__",
}


@contextlib.contextmanager
def reading_names_of_functions() -> Iterator[None]:
    """Have Dynamo read them of functions, in this thread."""
    if not hasattr(BaseUserFunctionVariable, "tp_members"):
        yield
        return
    owner = threading.get_ident()

    def reading(kind: Any, method: str, attribute: str) -> Callable[[Any], Any]:
        of_code = getattr(kind, method)

        def read(self: Any) -> Any:
            if threading.get_ident() != owner:
                return of_code(self)
            return getattr(self.get_function(), attribute)

        return read

    with contextlib.ExitStack() as stack:
        for kind, (method, attribute) in itertools.product(_KINDS, _READ.items()):
            read = reading(kind, method, attribute)
            stack.enter_context(replaced_attribute(kind, method, read))
        yield
