# SPDX-License-Identifier: Apache-2.0
"""Numbers that Dynamo has not looked at yet when an operator asks what they are."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator
from typing import Any

from torch._dynamo.variables import lazy

from hostjit.replacements import replaced_attribute

__all__ = ["keeps_lazy_numbers_open"]

_ASKED = "_maybe_realize_for_type"  # torch 2.13 and later; others look at what they are asked for


@contextlib.contextmanager
def keeps_lazy_numbers_open(sources: Collection[str]) -> Iterator[None]:
    """Have Dynamo look at a number of these sources before it chooses a handler, in this thread.

    It takes an int for a constant as long as ints are specialized, which others of the call are.
    """
    kind: Any = lazy.LazyConstantVariable
    asked = getattr(kind, _ASKED, None)
    if not sources or asked is None:
        yield
        return
    owner = threading.get_ident()

    def realize_first(self: Any) -> Any:
        is_open = self.source is not None and self.source.name in sources
        if is_open and threading.get_ident() == owner:
            self.realize()
        return asked(self)

    with replaced_attribute(kind, _ASKED, realize_first):
        yield
