# SPDX-License-Identifier: Apache-2.0
"""Indexing by open numbers, and by lists that have some.

PyTorch reads a symbolic number in a tuple or a list of indices as the one that it is now; as an
argument of `select`, or as what a tensor is filled with, it stays open.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from hostjit.replacements import replaced_attribute

__all__ = [
    "get_item",
    "is_open_index",
    "keeps_indices_open",
    "set_item",
    "without_open_indices",
]


def get_item(tensor: Any, index: Any) -> Any:
    """`tensor[index]`."""
    rest = without_open_indices(tensor, index)
    return operator.getitem(tensor, index) if rest is None else operator.getitem(*rest)


def set_item(tensor: Any, index: Any, value: Any) -> None:
    """`tensor[index] = value`."""
    part, rest = without_open_indices(tensor, index) or (tensor, index)
    operator.setitem(part, rest, value)


def is_open_index(tensor: Any, index: Any) -> bool:
    """Whether an index of a tensor has open numbers, or lists that have some."""
    items = index if isinstance(index, tuple) else (index,)
    has_open = any(isinstance(item, torch.SymInt) or _is_open_list(item) for item in items)
    return has_open and isinstance(tensor, torch.Tensor)


def without_open_indices(tensor: Any, index: Any) -> tuple[Any, Any] | None:
    """Return a view of a tensor and what is left of an index once open numbers have selected it.

    Lists of them become tensors. None where there are no open numbers, or no plain tuple of
    numbers, slices and tensors.
    """
    if not is_open_index(tensor, index):
        return None
    items = index if isinstance(index, tuple) else (index,)
    items = tuple(_as_tensor(item) if _is_open_list(item) else item for item in items)
    taken = [_dims_taken(item) for item in items]
    if any(count is None for count in taken) or sum(item is Ellipsis for item in items) > 1:
        return None
    rest = tensor.dim() - sum(count or 0 for count in taken)
    dim = 0
    selected: list[tuple[int, torch.SymInt]] = []
    for item, count in zip(items, taken, strict=True):
        if isinstance(item, torch.SymInt):
            selected.append((dim, item))
        dim += rest if item is Ellipsis else count or 0
    for place, number in reversed(selected):
        tensor = tensor.select(place, number)
    left = tuple(item for item in items if not isinstance(item, torch.SymInt))
    return tensor, left or (Ellipsis,)


def _is_open_list(item: Any) -> bool:
    """Whether a list consists of ints, and open ones among them."""
    if not isinstance(item, list) or not any(isinstance(n, torch.SymInt) for n in item):
        return False
    return all(isinstance(n, torch.SymInt) or type(n) is int for n in item)


def _as_tensor(numbers: list[Any]) -> torch.Tensor:
    return torch.stack(
        [torch.full((), number, dtype=torch.int64, device="cpu") for number in numbers]
    )


def _dims_taken(item: Any) -> int | None:
    """The number of dims that an item of an index is about; None where that is not plain."""
    if item is None or item is Ellipsis:
        return 0
    if isinstance(item, bool):
        return None
    if isinstance(item, (int, slice, torch.SymInt)):
        return 1
    if isinstance(item, torch.Tensor) and item.dtype not in (torch.bool, torch.uint8):
        return 1
    return None


@contextlib.contextmanager
def keeps_indices_open() -> Iterator[None]:
    """Let fake tensors be indexed so, while Dynamo traces."""

    def patched(name: str, original: Callable[..., Any]) -> contextlib.AbstractContextManager[Any]:
        def index(self: Any, where: Any, *value: Any) -> Any:
            part, rest = without_open_indices(self, where) or (self, where)
            return original(part, rest, *value)

        return replaced_attribute(FakeTensor, name, index, create=True)

    with (
        patched("__getitem__", torch.Tensor.__getitem__),
        patched("__setitem__", torch.Tensor.__setitem__),
    ):
        yield
