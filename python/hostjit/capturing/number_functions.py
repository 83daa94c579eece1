# SPDX-License-Identifier: Apache-2.0
"""Functions of open numbers, as Python computes them."""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.tensor import SymNodeVariable

__all__ = ["number_functions_of_python"]


@contextlib.contextmanager
def number_functions_of_python() -> Iterator[None]:
    """Have Dynamo follow `min` and `max` of an int and a float, in this thread.

    Python returns the one or the other, of the type that it has; Dynamo would make it a float. So
    it is a decision, of which each side is a program.
    """
    owner = threading.get_ident()
    original = BuiltinVariable._call_min_max_binary

    def choose(self: Any, tx: Any, a: Any, b: Any) -> Any:
        if threading.get_ident() != owner or not _differ_in_type(a, b):
            return original(self, tx, a, b)
        compare = operator.gt if self.fn is max else operator.lt
        proxy = tx.output.create_proxy("call_function", compare, (b.as_proxy(), a.as_proxy()), {})
        answer = SymNodeVariable.create(tx, proxy)
        is_symbolic = isinstance(answer, SymNodeVariable)
        takes_b = answer.evaluate_expr() if is_symbolic else answer.as_python_constant()
        return b if takes_b else a

    with mock.patch.object(BuiltinVariable, "_call_min_max_binary", choose):
        yield


def _differ_in_type(a: Any, b: Any) -> bool:
    """Whether two variables are numbers of different types, one of them open."""
    if a is None or b is None:
        return False
    a, b = a.realize(), b.realize()
    is_open = isinstance(a, SymNodeVariable) or isinstance(b, SymNodeVariable)
    if not is_open or not all(isinstance(v, (SymNodeVariable, ConstantVariable)) for v in (a, b)):
        return False
    types = {a.python_type(), b.python_type()}
    return len(types) > 1 and types <= {bool, int, float}
