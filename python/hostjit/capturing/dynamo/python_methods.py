# SPDX-License-Identifier: Apache-2.0
"""Methods of PyTorch that are Python's to run: Dynamo stops there, and goes on behind.

`Module.load_state_dict` walks modules, texts and hooks, and ends in an instruction that Dynamo does
not know. So does `Module.state_dict` in code that gives it to that.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch._dynamo.exc import unimplemented
from torch._dynamo.variables.functions import UserFunctionVariable

from hostjit.replacements import replaced_attribute

__all__ = ["stopping_at_python_methods"]

_METHODS = frozenset({nn.Module.load_state_dict, torch.optim.Optimizer.load_state_dict})


@contextlib.contextmanager
def stopping_at_python_methods() -> Iterator[None]:
    """Have Dynamo stop there, in this thread."""
    owner = threading.get_ident()
    call_function = UserFunctionVariable.call_function

    def call(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if threading.get_ident() == owner and _is_pythons(self.fn, tx.f_code):
            name = self.fn.__qualname__
            unimplemented(
                gb_type="method that is Python's",
                context=name,
                explanation=f"`{name}` has more to do with names than with tensors.",
                hints=[],
            )
        return call_function(self, tx, args, kwargs)

    with replaced_attribute(UserFunctionVariable, "call_function", call):
        yield


def _is_pythons(called: Any, code: types.CodeType) -> bool:
    """Whether a function that code calls is one of these."""
    is_loaded = called is nn.Module.state_dict and "load_state_dict" in code.co_names
    return is_loaded or called in _METHODS
