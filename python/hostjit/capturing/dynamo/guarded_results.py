# SPDX-License-Identifier: Apache-2.0
"""Guards on what a call returns without having looked at it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.output_graph import OutputGraph
from torch._dynamo.variables.lazy import LazyVariableTracker

from hostjit.replacements import replaced_attribute

__all__ = ["guarding_results"]


@contextlib.contextmanager
def guarding_results() -> Iterator[None]:
    """Let Dynamo guard all of a result, in this thread, not only what is computed with.

    A global that is returned as it is needs no guard where Dynamo's bytecode reads it anew at every
    call. It does where the result is known beforehand.
    """
    owner = threading.get_ident()
    original = OutputGraph.compile_subgraph

    def compile_subgraph(self: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == owner:
            LazyVariableTracker.realize_all(tx.stack)
        return original(self, tx, *args, **kwargs)

    with replaced_attribute(OutputGraph, "compile_subgraph", compile_subgraph):
        yield
