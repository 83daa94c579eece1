# SPDX-License-Identifier: Apache-2.0
"""What eager does with `torch.Tensor.__radd__(5, x)`: raise a TypeError, for 5 is no tensor.

Dynamo takes the name of the method only, and calls that of the first argument, whatever it is.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Iterator
from typing import Any

import torch

from hostjit.replacements import replaced_attribute

__all__ = ["checked_tensor_methods"]


@contextlib.contextmanager
def checked_tensor_methods() -> Iterator[None]:
    """Have Dynamo see that methods of tensors are called on tensors, in this thread."""
    from torch._dynamo.exc import raise_observed_exception
    from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

    original = getattr(TorchInGraphFunctionVariable, "call_tensor_method", None)
    if original is None:
        yield
        return
    owner = threading.get_ident()

    def call(self: Any, tx: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if threading.get_ident() == owner and not _fits(self.value, args):
            raise_observed_exception(TypeError, tx)
        return original(self, tx, args, kwargs)

    with replaced_attribute(TorchInGraphFunctionVariable, "call_tensor_method", call):
        yield


def _fits(method: Any, args: list[Any]) -> bool:
    """Tell whether the first argument is of the class that the method was taken from."""
    if not isinstance(method, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return True
    try:
        return not args or issubclass(args[0].python_type(), torch.Tensor)
    except NotImplementedError:
        return True  # Dynamo does not know what it is
