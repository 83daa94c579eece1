# SPDX-License-Identifier: Apache-2.0
"""What a loop carries, of which a pass changes a part: the pass writes that part where it is."""

from __future__ import annotations

import torch
from torch.fx import Graph

from hostjit.capturing.traced_graph import copy_of, storage_of
from hostjit.lowering.scatters import copies_to_state, is_partly_written
from hostjit.lowering.writes_in_place import with_writes_in_place

__all__ = ["with_state_in_place"]


def with_state_in_place(graph: Graph, count: int, *, is_own: bool) -> Graph:
    """Return a graph whose first results are written to the inputs of the same places.

    Where a pass changes a part of what it is given, and nothing else returned is what that was.
    The result is the input then, which has become the result.

    Args:
        graph: of a region, functional.
        count: how much the loop carries.
        is_own: the graph is the caller's own, and is changed; another is copied.
    """
    if not is_own:
        graph = copy_of(graph)
    output = graph.output_node()
    begin, results = graph.find_nodes(op="placeholder")[:count], [*output.args[0]]  # type: ignore[misc]
    memory = [storage_of(result.meta["val"]) for result in results]
    for place, (given, result) in enumerate(zip(begin, results, strict=False)):
        others = memory[:place] + memory[place + 1 :]
        if storage_of(given.meta["val"]) in others or not is_partly_written(given, result):
            continue
        with graph.inserting_before(output):
            back = graph.call_function(torch.ops.aten.copy_.default, (given, result))
        back.meta.update(given.meta)
        copies_to_state(back)
        results[place] = given
    output.args = (tuple(results),)
    return with_writes_in_place(graph, is_own=True)
