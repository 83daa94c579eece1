# SPDX-License-Identifier: Apache-2.0
"""What a loop carries, of which a pass changes a part: the pass writes that part where it is."""

from __future__ import annotations

import torch
from torch.fx import Graph

from hostjit.capturing.traced_graph import storage_of
from hostjit.lowering.scatters import copies_to_state, is_partly_written
from hostjit.lowering.writes_in_place import with_writes_in_place

__all__ = ["with_state_in_place"]


def with_state_in_place(graph: Graph, count: int) -> Graph:
    """Return a graph whose first results are written to the inputs of the same places.

    Where a pass changes a part of what it is given, and nothing else returned is what that was.
    The result is the input then, which has become the result.

    Args:
        graph: of a region, functional.
        count: how much the loop carries.
    """
    made = Graph()
    ended = made.graph_copy(graph, {})
    assert isinstance(ended, tuple)
    begin, results = made.find_nodes(op="placeholder")[:count], [*ended]
    memory = [storage_of(result.meta["val"]) for result in results]
    for place, (given, result) in enumerate(zip(begin, results, strict=False)):
        others = memory[:place] + memory[place + 1 :]
        if storage_of(given.meta["val"]) in others or not is_partly_written(given, result):
            continue
        back = made.call_function(torch.ops.aten.copy_.default, (given, result))
        back.meta.update(given.meta)
        copies_to_state(back)
        results[place] = given
    made.output(tuple(results))
    return with_writes_in_place(made, is_own=True)
