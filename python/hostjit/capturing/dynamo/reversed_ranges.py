# SPDX-License-Identifier: Apache-2.0
"""`reversed(range(n))`: Dynamo takes the iterator for one that ends at 0, where it hands it on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.variables.lists import RangeIteratorVariable

from hostjit.replacements import replaced_attribute

__all__ = ["ending_reversed_ranges"]


@contextlib.contextmanager
def ending_reversed_ranges() -> Iterator[None]:
    """Have iterators of ranges end where their elements do, in this thread."""
    owner = threading.get_ident()
    reconstruct: Any = RangeIteratorVariable.reconstruct

    def make(self: Any, codegen: Any) -> None:
        if threading.get_ident() == owner:
            self.stop = self.start + self.len * self.step
        reconstruct(self, codegen)

    with replaced_attribute(RangeIteratorVariable, "reconstruct", make):
        yield
