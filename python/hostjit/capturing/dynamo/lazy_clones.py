# SPDX-License-Identifier: Apache-2.0
"""`torch._lazy_clone`: Dynamo leaves it to Python, which has two tensors share their memory.

A program would write the memory of one without a look at the other. In the graph it is a copy.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch._dynamo.variables import TorchInGraphFunctionVariable
from torch._dynamo.variables.functions import SkipFunctionVariable

from hostjit.replacements import replaced_attribute

__all__ = ["following_lazy_clones"]


@contextlib.contextmanager
def following_lazy_clones() -> Iterator[None]:
    """Have Dynamo put it into the graph, in this thread."""
    owner = threading.get_ident()
    skip: Any = SkipFunctionVariable.call_function

    def call(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if self.value is not torch._lazy_clone or threading.get_ident() != owner:
            return skip(self, tx, args, kwargs)
        operator = TorchInGraphFunctionVariable(self.value, source=self.source)
        return operator.call_function(tx, args, kwargs)

    with replaced_attribute(SkipFunctionVariable, "call_function", call):
        yield
