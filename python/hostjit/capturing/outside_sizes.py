# SPDX-License-Identifier: Apache-2.0
"""Sizes of tensors outside of the arguments that vary: a cache that grows with each call.

Dynamo says of each of these tensors where it is when it meets it, and is told then which of its
dims to leave open.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._dynamo.variables import builder

from hostjit.capturing.dynamic_dims import MARKED_STATIC, marked, open_dims
from hostjit.replacements import replaced_attribute

__all__ = ["OutsideSizes", "opening_sizes"]


class OutsideSizes:
    """What one callable's captures met, by Dynamo's names and by rank.

    The second size of a dim makes it one for any size, as of arguments.

    Attributes:
        found: the tensors of which the last capture left dims open: their `id` by name.
    """

    def __init__(self) -> None:
        self.found: dict[str, int] = {}
        self._first: dict[tuple[str, int], torch.Size] = {}
        self._varied: dict[tuple[str, int], set[int]] = {}
        self._refused: set[str] = set()

    def varying(self, name: str, tensor: torch.Tensor) -> set[int]:
        """Return the dims of a tensor to leave open."""
        place = name, tensor.dim()
        first = self._first.setdefault(place, tensor.shape)
        varied = self._varied.setdefault(place, set())
        pairs = enumerate(zip(tensor.shape, first, strict=True))
        varied.update(dim for dim, (size, before) in pairs if size != before)
        if name in self._refused:
            return set()
        return open_dims(tensor, varied - getattr(tensor, MARKED_STATIC, set()))

    def refuse(self) -> Callable[[], None]:
        """Leave sizes that the last capture left open so no more; returns what undoes that."""
        refused = self.found.keys() - self._refused
        self._refused |= refused
        return lambda: self._refused.difference_update(refused)


@contextlib.contextmanager
def opening_sizes(sizes: OutsideSizes | None, leaves: Sequence[torch.Tensor]) -> Iterator[None]:
    """Have Dynamo leave them open, in this thread.

    Args:
        sizes: None for none.
        leaves: the tensor leaves of the arguments, which are not outside.
    """
    if sizes is None:
        yield
        return
    sizes.found.clear()
    owner = threading.get_ident()
    arguments = set(map(id, leaves))
    original: Any = builder._automatic_dynamic

    def automatic_dynamic(value: Any, tx: Any, source: Any, *rest: Any, **kwargs: Any) -> Any:
        is_outside = threading.get_ident() == owner and id(value) not in arguments
        dims = set()
        # What is a view of another tensor has sizes of that one.
        if is_outside and type(value) is torch.Tensor and not value._is_view():
            dims = sizes.varying(source.name, value)
        if not dims:
            return original(value, tx, source, *rest, **kwargs)
        sizes.found[source.name] = id(value)
        with marked([value], {0: dims}):
            return original(value, tx, source, *rest, **kwargs)

    with replaced_attribute(builder, "_automatic_dynamic", automatic_dynamic):
        yield
