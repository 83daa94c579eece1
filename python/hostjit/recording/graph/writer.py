# SPDX-License-Identifier: Apache-2.0
"""Writes operators into the graph of a recording."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from hostjit.recording.graph.recorder import Recorder

__all__ = ["Writer"]

aten = torch.ops.aten
Node = torch.fx.Node


class Writer:
    """Writes operators into the graph of a recording."""

    def __init__(self, recorder: Recorder, func: Any) -> None:
        self._recorder = recorder
        self._func = func

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        return self._recorder.call(target, args, kwargs)

    def item(self, results: Node, index: int) -> Node:
        return self._recorder.call(operator.getitem, (results, index), {})

    def expect(self, count: Node, value: int) -> None:
        """Have each replay compare an int64 without dims."""
        self._recorder.read_size(count, value, str(self._func))

    def places(self, mask: Node, count: int) -> Node:
        """Return the indices [count, dims] of what is set in a mask."""
        self.expect(self.call(aten.count_nonzero.default, mask), count)
        return self.call(aten.nonzero_static.default, mask, size=count)
