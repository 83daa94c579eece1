# SPDX-License-Identifier: Apache-2.0
"""Operators that write to tensors without dims, in graphs that Dynamo traces again.

Where the floats of a call turn out to have to be known, it begins anew, and drops what stands for
them: every node that nothing uses and whose tensor it knows as a number, a write among them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.output_graph import OutputGraph

from hostjit.replacements import replaced_attribute

__all__ = ["keeping_writes"]

# What it looks for in the facts of a node.
_VALUE = "example_value"


@contextlib.contextmanager
def keeping_writes() -> Iterator[None]:
    """Have Dynamo drop inputs alone, in this thread."""
    owner = threading.get_ident()
    drop_known = OutputGraph.remove_tensorify_specialized_graphargs

    def drop_inputs(self: Any) -> None:
        if threading.get_ident() != owner:
            drop_known(self)
            return
        hidden = {
            node: node.meta.pop(_VALUE)
            for node in self.graph.nodes
            if node.op != "placeholder" and _VALUE in node.meta
        }
        drop_known(self)
        for node, value in hidden.items():
            node.meta[_VALUE] = value

    with replaced_attribute(OutputGraph, "remove_tensorify_specialized_graphargs", drop_inputs):
        yield
