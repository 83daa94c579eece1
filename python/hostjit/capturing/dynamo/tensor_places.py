# SPDX-License-Identifier: Apache-2.0
"""Indices that are int tensors without dims, `x[i]`: Dynamo goes on behind them.

Eager reads such a tensor. What the result is like does not depend on what it reads, so that fake
tensors are indexed by 0 instead. Graphs that Dynamo makes so are for `with_places_as_data` first.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from hostjit.replacements import replaced_attribute

__all__ = ["following_places", "is_indexed_by_place"]

_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8)


@contextlib.contextmanager
def following_places() -> Iterator[None]:
    """Have Dynamo follow them, in this thread."""
    owner = threading.get_ident()
    with contextlib.ExitStack() as stack:
        for name in ("__getitem__", "__setitem__"):
            stack.enter_context(_indexed(name, owner))
        yield


def is_indexed_by_place(tensor: Any, items: tuple[Any, ...]) -> bool:
    """Whether an index is of numbers, slices and such tensors, all of them on the CPU."""
    return (
        any(map(_is_place, items))
        and isinstance(tensor, torch.Tensor)
        and _is_plain(tensor)
        and sum(item is Ellipsis for item in items) <= 1
        and all(
            item is None
            or item is Ellipsis
            or isinstance(item, (slice, torch.SymInt))
            or type(item) is int
            or _is_place(item)
            for item in items
        )
    )


def _is_place(item: Any) -> bool:
    is_tensor = isinstance(item, torch.Tensor) and item.dim() == 0
    return is_tensor and item.dtype in _DTYPES and _is_plain(item)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on the CPU, and in the hands of no transform, which looks at places."""
    is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return tensor.device.type == "cpu" and not is_wrapped


def _indexed(name: str, owner: int) -> contextlib.AbstractContextManager[Any]:
    original = getattr(FakeTensor, name)

    def index(self: Any, where: Any, *value: Any) -> Any:
        items = where if isinstance(where, tuple) else (where,)
        if threading.get_ident() == owner and is_indexed_by_place(self, items):
            where = tuple(0 if _is_place(item) else item for item in items)
        return original(self, where, *value)

    return replaced_attribute(FakeTensor, name, index, create=True)
