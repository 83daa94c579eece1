# SPDX-License-Identifier: Apache-2.0
"""Tensors that are attributes of the keys of a dict, such as `p.grad` of `for p in self.state`.

Dynamo compares the keys by their identity, and takes what it reaches through a key for one: code
that reads gradients so, an optimizer of the user's say, was for the gradients of one call.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo import guards
from torch._dynamo.source import ChainedSource, ConstDictKeySource

from hostjit.replacements import replaced_attribute

__all__ = ["comparing_attributes_of_keys"]


@contextlib.contextmanager
def comparing_attributes_of_keys() -> Iterator[None]:
    """Have Dynamo compare these as other tensors, in this thread."""
    owner = threading.get_ident()
    original = guards.match_on_id_for_tensor

    def match_on_id_for_tensor(guard: Any) -> bool:
        source = guard.originating_source
        is_beyond = isinstance(source, ChainedSource) and not isinstance(source, ConstDictKeySource)
        if threading.get_ident() == owner and is_beyond and not guard.is_specialized_nn_module():
            return False
        return original(guard)

    with replaced_attribute(guards, "match_on_id_for_tensor", match_on_id_for_tensor):
        yield
