# SPDX-License-Identifier: Apache-2.0
"""`x.numpy()` of a tensor that NumPy has no array for: Dynamo goes on, where eager raises."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch._dynamo.exc import unimplemented
from torch._dynamo.variables.tensor import TensorVariable

from hostjit.capturing.dynamo.method_handlers import replaced_handler

__all__ = ["stopping_at_numpy_errors"]


@contextlib.contextmanager
def stopping_at_numpy_errors() -> Iterator[None]:
    """Have Dynamo stop there, in this thread, for Python to raise."""
    owner = threading.get_ident()

    def checking(original: Any) -> Any:
        def method_numpy(self: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == owner and not kwargs and not _has_array(self):
                unimplemented(
                    gb_type="Tensor.numpy() that raises",
                    context=str(self),
                    explanation="NumPy has no array for such a tensor.",
                    hints=[],
                )
            return original(self, tx, *args, **kwargs)

        return method_numpy

    with replaced_handler(TensorVariable, "numpy", checking):
        yield


def _has_array(variable: Any) -> bool:
    value = variable.as_proxy().node.meta["example_value"]
    is_plain = value.device.type == "cpu" and not (value.is_conj() or value.is_neg())
    return is_plain and not value.requires_grad and _numpy_has(value.dtype)


@functools.cache
def _numpy_has(dtype: torch.dtype) -> bool:
    try:
        torch.empty(0, dtype=dtype, device="cpu").numpy()
    except (TypeError, RuntimeError):
        return False
    return True
