# SPDX-License-Identifier: Apache-2.0
"""Functions that Dynamo follows by Python code of its own, where that answers otherwise.

A setting of the interpreter is taken for a constant, and `itertools.islice` takes floats.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.exc import unimplemented
from torch._dynamo.variables.functions import PolyfilledFunctionVariable

from hostjit.capturing.dynamo.kept_results import is_installed_file
from hostjit.replacements import replaced_attribute

__all__ = ["stopping_at_polyfills"]


@contextlib.contextmanager
def stopping_at_polyfills() -> Iterator[None]:
    """Have Dynamo stop there, in this thread."""
    owner = threading.get_ident()
    follow: Any = PolyfilledFunctionVariable.call_function

    def call(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if threading.get_ident() == owner:
            # `inspect.unwrap` asks for it, too, to end a loop that never gets there.
            is_users = not is_installed_file(tx.f_code.co_filename)
            if self.fn is sys.getrecursionlimit and is_users:
                _stop("the limit of recursion", "Others change it.")
            if self.fn is itertools.islice and any(map(_is_float, args[1:])):
                _stop("islice with a float", "Python refuses that.")
        return follow(self, tx, args, kwargs)

    with replaced_attribute(PolyfilledFunctionVariable, "call_function", call):
        yield


def _is_float(argument: Any) -> bool:
    return argument.is_python_constant() and isinstance(argument.as_python_constant(), float)


def _stop(what: str, explanation: str) -> None:
    unimplemented(
        gb_type="function with code of Dynamo's", context=what, explanation=explanation, hints=[]
    )
