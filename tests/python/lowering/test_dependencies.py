# SPDX-License-Identifier: Apache-2.0
"""What would put a group before and behind something else."""

from __future__ import annotations

import random

import pytest
import torch
from torch.fx import Graph, Node

from hostjit.lowering.dependencies import Dependencies
from hostjit.lowering.views import Views

aten = torch.ops.aten


def random_graph(choice: random.Random, count: int) -> tuple[Graph, list[Node]]:
    graph = Graph()
    nodes = [graph.placeholder("x")]
    for _ in range(count):
        operands = (choice.choice(nodes), choice.choice(nodes))
        nodes.append(graph.call_function(aten.add.Tensor, operands))
    graph.output(nodes[-1])
    for node in graph.nodes:
        node.meta["val"] = torch.empty(2, device="meta")
    return graph, nodes[1:]


def cycles(groups: list[list[Node]]) -> bool:
    """Whether groups that are items, one by one, depend on each other in a circle."""
    owner = {node: number for number, group in enumerate(groups) for node in group}
    before = [
        {owner[operand] for node in group for operand in node.all_input_nodes if operand in owner}
        - {number}
        for number, group in enumerate(groups)
    ]
    left = set(range(len(groups)))
    while ready := {number for number in left if not before[number] & left}:
        left -= ready
    return bool(left)


@pytest.mark.parametrize("seed", range(20))
def test_cycles_are_found(seed: int) -> None:
    choice = random.Random(seed)
    graph, nodes = random_graph(choice, 24)
    dependencies = Dependencies(graph, Views())
    groups = [[node] for node in nodes]
    found = 0
    for _ in range(60):
        one, other = choice.sample(groups, 2)
        combined = [*one, *other]
        rest = [group for group in groups if group is not one and group is not other]
        expected = cycles([*rest, combined])
        owner = {node: group for group in groups for node in group}
        assert dependencies.would_cycle(combined, owner.get) == expected
        found += expected
        if not expected:
            groups = [*rest, combined]
            dependencies.note_group(combined)
        if len(groups) < 3:
            break
    assert found
