# SPDX-License-Identifier: Apache-2.0
"""Results of one call whose gradients have nothing in common, and pass one after the other."""

from __future__ import annotations

from collections.abc import Mapping

import torch

__all__ = ["Parts", "separate_parts"]

Parts = tuple[tuple[int, ...], ...]


def separate_parts(
    graph: torch.fx.Graph,
    tangents: Mapping[torch.fx.Node, int],
    saved: Mapping[torch.fx.Node, int],
) -> tuple[Parts, Parts]:
    """Tell which results eager differentiates apart from one another.

    An operator of eager's frees what it saved once gradients have passed. Two results are of one
    part if an operator of the backward graph takes gradients made of both with something saved;
    where gradients are only added, as those of a parameter are, nothing is freed.

    Args:
        graph: computes gradients.
        tangents: its placeholders that are gradients of results, and of which.
        saved: its placeholders that were kept, and at which position.

    Returns the results of each part, and for each position the parts that it is kept for. Without
    entries where all is one part.
    """
    made_of: dict[torch.fx.Node, frozenset[int]] = {}  # results
    kept_in: dict[torch.fx.Node, frozenset[int]] = {}  # positions, where it is made of no gradient
    part_of = {result: frozenset([result]) for result in tangents.values()}
    needed_by: dict[int, set[int]] = {position: set() for position in saved.values()}
    for node in graph.nodes:
        operands = node.all_input_nodes
        results = frozenset[int]().union(*(made_of[operand] for operand in operands))
        kept = frozenset[int]().union(*(kept_in[operand] for operand in operands))
        if node in tangents:
            results = frozenset([tangents[node]])
        if node in saved:
            kept = frozenset([saved[node]])
        made_of[node] = results
        kept_in[node] = frozenset() if results else kept
        if not (results and kept):
            continue
        for position in kept:
            needed_by[position] |= results
        if node.op == "output":  # takes all of them
            continue
        whole = frozenset[int]().union(*(part_of[result] for result in results))
        part_of.update(dict.fromkeys(whole, whole))
    parts = tuple(tuple(sorted(part)) for part in dict.fromkeys(part_of.values()))
    if len(parts) < 2:
        return (), ()
    number = {result: i for i, part in enumerate(parts) for result in part}
    everywhere = tuple(range(len(parts)))
    return parts, tuple(
        tuple(sorted({number[result] for result in needed_by[position]})) or everywhere
        for position in sorted(needed_by)
    )
