# SPDX-License-Identifier: Apache-2.0
"""Greedy fusion of the pointwise nodes and reductions of a functional ATen graph into kernels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Set
from dataclasses import dataclass

import torch
from torch.fx import Graph, Node

from hostjit.kernels import PointwiseKernel
from hostjit.kernels.sizes import at_most
from hostjit.lowering import activation_rules as _activation_rules  # noqa: F401
from hostjit.lowering import arithmetic_rules as _arithmetic_rules  # noqa: F401
from hostjit.lowering import creation_rules as _creation_rules  # noqa: F401
from hostjit.lowering import normalisation_rules as _normalisation_rules  # noqa: F401
from hostjit.lowering import pointwise_rules as _pointwise_rules  # noqa: F401
from hostjit.lowering import product_rules as _product_rules  # noqa: F401
from hostjit.lowering import reduction_rules as _reduction_rules  # noqa: F401
from hostjit.lowering import selection_rules as _selection_rules  # noqa: F401
from hostjit.lowering.alignment import Alignment
from hostjit.lowering.dependencies import Dependencies
from hostjit.lowering.devices import CPU, device_of, numbers_of_the_host
from hostjit.lowering.group_kernel import build_kernel
from hostjit.lowering.iteration_space import IterationSpace
from hostjit.lowering.members import (
    RowsOf,
    is_fusable,
    is_reduction,
    place,
    place_result,
    points,
    selects,
)
from hostjit.lowering.narrow_rows import is_left_apart, num_narrow_rows
from hostjit.lowering.pointwise import creates
from hostjit.lowering.reductions import points_shape
from hostjit.lowering.selection import selection_of
from hostjit.lowering.sizes import element_count, symbolic_views
from hostjit.lowering.views import Views

__all__ = ["PointwiseGroup", "ScheduleItem", "schedule"]

# Longer kernels spill registers and cost compile time without saving memory traffic.
MAX_MEMBERS = 64
# Of the groups that read what a node reads, so many may take it in: in a long program all passes of
# a loop read the same weights.
_MOST_SIBLINGS = 32


@dataclass(frozen=True)
class PointwiseGroup:
    """Nodes that one kernel computes.

    `inputs` are the nodes whose buffers the kernel reads, `outputs` those it writes, both in the
    order of the kernel's operands. An output has the sizes and strides of its `meta["val"]`, and
    its buffer may be shared with no input. A read buffer starts where its node's tensor starts.
    `numbers` are tensors without dims on the CPU, of which a kernel for another device takes what
    they hold when it is launched.
    """

    kernel: PointwiseKernel
    members: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    numbers: tuple[Node, ...]


ScheduleItem = PointwiseGroup | Node


def schedule(
    graph: Graph, *, prefix: str = "pointwise", devices: Set[torch.device] = frozenset({CPU})
) -> list[ScheduleItem]:
    """Order a functional graph's work, with its pointwise nodes and reductions fused.

    Nodes fuse with their producers, through views that only reorder elements, and with siblings
    that read the same buffer. The reductions of a group share their rows; what is known per row
    meets the elements of the row where it is broadcast to them.

    Arguments: a graph of ATen nodes with `meta["val"]`, without dead code; a prefix for kernel
    names; the devices that have kernels. A kernel is for tensors of one device.
    Returns: groups and other nodes in an order to run them. Inputs, constants and the output node
    are not listed, nor are nodes that only fused nodes use.
    Example: schedule(make_fx(f, tracing_mode="fake")(x).graph)
    """
    return _Grouping(graph, devices).result(prefix)


class _Group:
    """A group that is being made.

    Attributes:
        members: the nodes in it, in the order of the graph.
        space: where they are computed.
        reduction: one of its reductions.
        bits: the members, as a set of `Dependencies`.
    """

    def __init__(
        self, members: list[Node], space: IterationSpace, reduction: Node | None = None
    ) -> None:
        self.members = members
        self.space = space
        self.reduction = reduction
        self.bits = 0

    def reduced(self) -> frozenset[int]:
        """The dimensions of the space that are reduced."""
        return self.space.still(RowsOf(self.reduction)) if self.reduction else frozenset()


class _Grouping:
    def __init__(self, graph: Graph, devices: Set[torch.device]) -> None:
        self.graph = graph
        self.devices = devices
        self.views = Views(symbolic_views(graph))
        self.alignment = Alignment(self.views)
        self.dependencies = Dependencies(graph, self.views)
        self.group_of: dict[Node, _Group] = {}
        self.readers: dict[Node, list[_Group]] = {}
        self.creators: set[Node] = set()
        for node in graph.nodes:
            if node.op == "call_function" and not self.views.is_view(node):
                self._group(node)
            self.dependencies.note(node, fused=node in self.group_of)

    def _group(self, node: Node) -> None:
        """Put a node into a group, if it can be in one."""
        if selects(node) in self.group_of:
            self._select(node)
        elif self._is_fusable(node) and not self._selects_of_a_creator(node):
            if creates.find(node.target):
                self.creators.add(node)
                self._open(node)
            else:
                self._place(node)

    def _is_fusable(self, node: Node) -> bool:
        if device_of(node) not in self.devices or not is_fusable(node):
            return False
        return not is_left_apart(node)

    def _selects_of_a_creator(self, node: Node) -> bool:
        """Whether a node takes elements of what is repeated where it is used: not in memory."""
        selection = selection_of(node)
        return selection is not None and self.views.root(selection.source) in self.creators

    def _place(self, node: Node) -> None:
        """Put a fusable node into the group of a producer or a sibling, or into its own."""
        operands = self._buffers(node)
        producers: list[_Group] = []
        for root in operands:
            group = self.group_of.get(root)
            if group and root not in self.creators and group not in producers:
                producers.append(group)
        if 0 not in points_shape(node):
            # Joining the latest producer first leaves the earlier ones to be merged with it.
            producers.sort(key=self._last_position, reverse=True)
            for group in producers:
                if self._join(node, group):
                    for other in producers:
                        if other is not self.group_of[node]:
                            self._merge(self.group_of[node], other, node)
                    return
            for group in self._siblings(node, operands):
                if self._join(node, group):
                    return
        self._open(node)

    def _open(self, node: Node) -> None:
        space = place(IterationSpace.of_shape(points(node), points_shape(node)), node)
        assert space is not None, f"'{node.name}' does not fit its own points"
        self._add(node, _Group([], space))

    def _select(self, node: Node) -> None:
        """Put one of several results into the group of the node that makes them."""
        source = selects(node)
        index = node.args[1]
        assert source is not None and isinstance(index, int)
        group = self.group_of[source]
        group.space = place_result(group.space, node, source, index)
        self._add(node, group)

    def _add(self, node: Node, group: _Group) -> None:
        group.members.append(node)
        group.bits |= self.dependencies.bit(node)
        self.group_of[node] = group
        self.dependencies.note_group(group.members)
        if is_reduction(node):
            group.reduction = node
        if node in self.creators:
            return
        for root in self._buffers(node):
            readers = self.readers.setdefault(root, [])
            if group not in readers:
                readers.append(group)

    def _buffers(self, node: Node) -> list[Node]:
        """What a node reads in memory of its device."""
        numbers = numbers_of_the_host(node)
        return [self.views.root(o) for o in node.all_input_nodes if o not in numbers]

    def _last_position(self, group: _Group) -> int:
        return max(self.dependencies.position[node] for node in group.members)

    def _siblings(self, node: Node, operands: list[Node]) -> Iterator[_Group]:
        for root in operands:
            latest = reversed(self.readers.get(root, []))
            yield from itertools.islice(latest, _MOST_SIBLINGS)

    def _join(self, node: Node, group: _Group) -> bool:
        """Add a node to a group if its elements align and the order stays possible."""
        if len(group.members) >= MAX_MEMBERS or device_of(group.members[0]) != device_of(node):
            return False
        if self.dependencies.leads_back(node, group.bits) or self._adds_pass(node, group):
            return False
        space = self._with(node, group)
        if space is None or self._would_cycle([*group.members, node]):
            return False
        group.space = space
        self._add(node, group)
        return True

    def _adds_pass(self, node: Node, group: _Group) -> bool:
        """Whether a node goes over few long rows again, for what is known at their end."""
        rows = num_narrow_rows(group.reduction) if group.reduction else None
        if rows is None or at_most(math.prod(points_shape(node)), rows):
            return False
        roots = {self.views.root(operand) for operand in node.all_input_nodes}
        return any(
            self.group_of.get(root) is group and at_most(element_count(root.meta["val"]), rows)
            for root in roots
        )

    def _with(self, node: Node, group: _Group) -> IterationSpace | None:
        """The group's space with `node` in it."""
        return self.alignment.join(node, group.members, group.space, group.reduction)

    def _would_cycle(self, combined: list[Node]) -> bool:
        def members(node: Node) -> list[Node] | None:
            group = self.group_of.get(node)
            return group.members if group else None

        return self.dependencies.would_cycle(combined, members)

    def _merge(self, group: _Group, other: _Group, node: Node) -> None:
        """Take `other` into the node's group, if the node meets it in place too."""
        members = [*group.members, *other.members]
        if len(members) > MAX_MEMBERS or self._adds_pass(node, other):
            return
        theirs = self._with(node, other)
        space = group.space.merged(theirs, points(node)) if theirs else None
        reduction = group.reduction or other.reduction
        if space is None or not self.alignment.holds(members, space, reduction):
            return
        if self._would_cycle(members):
            return
        group.members = sorted(members, key=self.dependencies.position.__getitem__)
        self.dependencies.note_group(members)
        group.space = space
        group.reduction = reduction
        group.bits |= other.bits
        for member in other.members:
            self.group_of[member] = group
        for readers in self.readers.values():
            if other in readers:
                readers.remove(other)
                if group not in readers:
                    readers.append(group)

    def result(self, prefix: str) -> list[ScheduleItem]:
        needed = self._needed()
        groups = list(dict.fromkeys(self.group_of.values()))
        groups = [group for group in groups if any(node in needed for node in group.members)]
        lone = [
            node
            for node in self.graph.nodes
            if node.op not in ("placeholder", "get_attr", "output")
            and node not in self.group_of
            and (node in needed or not self.views.is_view(node))
        ]
        items = [*(group.members for group in groups), *([node] for node in lone)]
        fused = [True] * len(groups) + [False] * len(lone)
        scheduled: list[ScheduleItem] = []
        num_kernels = 0
        for number in self.dependencies.in_order(items, fused):
            if not fused[number]:
                scheduled.append(lone[number - len(groups)])
                continue
            group = groups[number]
            outputs = tuple(node for node in group.members if node in needed)
            name = f"{prefix}{num_kernels}"
            kernel, inputs, numbers = build_kernel(
                name,
                group.members,
                outputs,
                group.space,
                self.views,
                self.creators,
                group.reduced(),
            )
            scheduled.append(PointwiseGroup(kernel, tuple(group.members), inputs, outputs, numbers))
            num_kernels += 1
        return scheduled

    def _needed(self) -> set[Node]:
        """The nodes whose value must be in memory, or exist as a view, for somebody else."""
        needed: set[Node] = set()
        for user in self.graph.nodes:
            if user in self.group_of and user not in self.creators:
                roots = {self.views.root(operand) for operand in user.all_input_nodes}
                inside = self.group_of[user]
                needed.update(r for r in roots if self.group_of.get(r) is not inside)
                numbers = numbers_of_the_host(user)
                needed.update(n for n in numbers if self.views.root(n) not in self.creators)
        needed -= self.creators
        for user in reversed(self.graph.nodes):
            if user in self.group_of or (self.views.is_view(user) and user not in needed):
                continue
            needed.update(user.all_input_nodes)
        return needed
