# SPDX-License-Identifier: Apache-2.0
"""What must run before what, among the nodes of a graph and the groups made of them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

import torch
from torch.fx import Graph, Node

from hostjit.lowering.devices import numbers_of_the_host
from hostjit.lowering.pointwise import creates
from hostjit.lowering.views import Views

__all__ = ["Dependencies"]

Members = Sequence[Node]


class Dependencies:
    """The order of a graph's nodes: data, effects on memory, and random numbers.

    A node that writes memory stays behind all earlier nodes and before all later ones. Nodes with
    other effects, random numbers among them, keep their order among themselves. Fused nodes read
    through views, so they depend on the views' roots; the host reads a number by its view.
    """

    def __init__(self, graph: Graph, views: Views) -> None:
        self.position = {node: position for position, node in enumerate(graph.nodes)}
        self._views = views
        self._extra: dict[Node, list[Node]] = {}
        self._known: dict[tuple[Node, bool], list[Node]] = {}
        # What must run before a node, directly or not: a bit for each position.
        self._before: dict[Node, int] = {}
        # For each position, the first one of the groups that have members before it and not.
        self._first_around = list(range(len(self.position)))
        barrier: Node | None = None
        effect: Node | None = None
        since_barrier: list[Node] = []
        for node in graph.nodes:
            if node.op in ("placeholder", "get_attr", "output"):
                continue
            extra = [barrier] if barrier else []
            if _writes(node):
                extra += since_barrier
                barrier, since_barrier = node, []
            elif _has_effect(node):
                extra += [effect] if effect else []
                effect = node
            since_barrier.append(node)
            self._extra[node] = extra

    def of(self, node: Node, *, fused: bool) -> list[Node]:
        """The nodes that must run before `node`."""
        key = (node, fused)
        if key not in self._known:
            self._known[key] = self._find(node, fused)
        return self._known[key]

    def _find(self, node: Node, fused: bool) -> list[Node]:
        extra = self._extra.get(node, [])
        if not fused:
            return [*node.all_input_nodes, *extra]
        if creates.find(node.target):
            return extra
        roots = (self._views.root(operand) for operand in node.all_input_nodes)
        return [*roots, *numbers_of_the_host(node), *extra]

    def note_group(self, members: Members) -> None:
        """Say that `members` are one item now; more may follow, in later calls."""
        positions = [self.position[node] for node in members]
        first = min(positions)
        for position in range(first, max(positions) + 1):
            self._first_around[position] = min(self._first_around[position], first)

    def bit(self, node: Node) -> int:
        """Return what stands for a node in a set of nodes; `|` unites such sets."""
        return 1 << self.position[node]

    def note(self, node: Node, *, fused: bool) -> None:
        """Say whether a node is one of a group, or will run by itself; the next one follows."""
        before = 0
        for earlier in self.of(node, fused=fused):
            before |= self._before.get(earlier, 0) | self.bit(earlier)
        self._before[node] = before

    def leads_back(self, node: Node, members: int) -> bool:
        """Tell whether a node depends on a set of others through nodes that are not in it.

        The node can be no member of their group then. `would_cycle` finds that, too, and also what
        other groups lead to.
        """
        return any(
            self._before.get(earlier, 0) & members and not self.bit(earlier) & members
            for earlier in self.of(node, fused=True)
        )

    def would_cycle(
        self, combined: Iterable[Node], members_of: Callable[[Node], Members | None]
    ) -> bool:
        """Whether making one item of `combined` would put something before and behind it.

        `members_of` gives the members of the group that a node is in, None for a lone node.
        """
        target, position, known = set(combined), self.position, self._known
        # Only groups around a position lead from before it to behind it.
        first = min(position[node] for node in target)
        while self._first_around[first] < first:
            first = self._first_around[first]
        seen: set[Node] = set()
        pending = [
            earlier
            for node in target
            for earlier in self.of(node, fused=True)
            if earlier not in target and position[earlier] >= first
        ]
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            members = members_of(node)
            fused = members is not None
            for member in members or (node,):
                seen.add(member)
                before = known.get((member, fused))
                for earlier in self.of(member, fused=fused) if before is None else before:
                    if earlier in target:
                        return True
                    if earlier not in seen and position[earlier] >= first:
                        pending.append(earlier)
        return False

    def in_order(self, items: Sequence[Members], fused: Sequence[bool]) -> list[int]:
        """The positions of `items` in an order that respects all dependencies.

        Among those that may run, the one whose last member stands first in the graph is next.
        """
        owner = {node: number for number, members in enumerate(items) for node in members}
        waiting = [0] * len(items)
        followers: list[set[int]] = [set() for _ in items]
        for number, members in enumerate(items):
            before = {
                owner[earlier]
                for node in members
                for earlier in self.of(node, fused=fused[number])
                if earlier in owner
            } - {number}
            waiting[number] = len(before)
            for earlier_item in before:
                followers[earlier_item].add(number)
        keys = [max(self.position[node] for node in members) for members in items]
        ready = [(keys[number], number) for number, count in enumerate(waiting) if count == 0]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            _, number = heapq.heappop(ready)
            order.append(number)
            for follower in followers[number]:
                waiting[follower] -= 1
                if waiting[follower] == 0:
                    heapq.heappush(ready, (keys[follower], follower))
        assert len(order) == len(items), "grouping made a cycle"
        return order


def _writes(node: Node) -> bool:
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def _has_effect(node: Node) -> bool:
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return torch.Tag.nondeterministic_seeded in target.tags
    return isinstance(target, torch._ops.HigherOrderOperator)
