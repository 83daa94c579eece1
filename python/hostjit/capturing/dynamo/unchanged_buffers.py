# SPDX-License-Identifier: Apache-2.0
"""`self.table = self.table.to(device, dtype)` of a `torch.nn.Buffer` that is of these already.

PyTorch gives the buffer itself. Dynamo takes the result for another buffer, without what the
module asks of it: whether it is persistent.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._dynamo.variables import TensorVariable

from hostjit.replacements import replaced_attribute

__all__ = ["unchanged_buffers_are_themselves"]

_CONVERSIONS = frozenset(
    (
        *("to", "type", "type_as", "contiguous", "cpu", "cuda"),
        *("float", "double", "half", "bfloat16", "bool", "int", "long", "short", "char", "byte"),
    )
)


@contextlib.contextmanager
def unchanged_buffers_are_themselves() -> Iterator[None]:
    """Have Dynamo know a buffer again that a conversion leaves as it is, in this thread."""
    owner = threading.get_ident()
    call_method = TensorVariable.call_method

    def call(self: Any, tx: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        result = call_method(self, tx, name, args, kwargs)  # type: ignore[arg-type]
        if threading.get_ident() != owner or name not in _CONVERSIONS or self.source is None:
            return result
        before, after = _example(self), _example(result)
        is_itself = after is before and isinstance(before, torch.nn.Buffer)
        return self if is_itself else result

    with replaced_attribute(TensorVariable, "call_method", call):
        yield


def _example(variable: Any) -> Any:
    node = variable.proxy.node if isinstance(variable, TensorVariable) else None
    return None if node is None else node.meta.get("example_value")
