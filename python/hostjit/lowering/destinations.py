# SPDX-License-Identifier: Apache-2.0
"""Kernels that write their results where these are copied to in the end: to inputs.

`x.mul_(2)` of an input is a kernel and a copy back to it. The kernel writes to the input itself
where nobody looks at the memory in between, and where it has read an element before it writes it.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from hostjit.capturing.functional.hidden_writes import HIDDEN
from hostjit.capturing.open_sizes import is_dense
from hostjit.capturing.traced_graph import storage_of
from hostjit.kernels import is_read_before_it_is_written
from hostjit.kernels.cuda import is_turned
from hostjit.lowering.devices import CPU, device_of
from hostjit.lowering.grouping import PointwiseGroup, ScheduleItem
from hostjit.lowering.registry import lowers
from hostjit.lowering.scatters import never_fails
from hostjit.lowering.sizes import offset_of
from hostjit.lowering.types import is_plain
from hostjit.lowering.views import viewed

__all__ = ["Destinations", "shared_buffers"]

aten = torch.ops.aten


class Destinations:
    """Where kernels write some of their results; none in regions, whose inputs may be one.

    Attributes:
        items: the work, with the views that such a kernel writes to made ahead of it.
        targets: of the results of groups, where they are written.
    """

    def __init__(self, items: Sequence[ScheduleItem], *, of_region: bool = False) -> None:
        self.items = list(items)
        self.targets: dict[Node, Node] = {}
        backs = [item for item in items if isinstance(item, Node) and _is_back(item)]
        if not backs or of_region:
            return
        self._last_failure = max(
            (place for place, item in enumerate(items) if not _never_fails(item)), default=-1
        )
        # Where a call may fail before, it is run again, if nothing is called behind its writes.
        if self._last_failure >= 0:
            called = (n for n, item in enumerate(items) if _is_called(item))
            self._last_failure = max(self._last_failure, *called, -1)
        self._made_at = {
            output: place
            for place, item in enumerate(items)
            if isinstance(item, PointwiseGroup)
            for output in item.outputs
        }
        self._uses: dict[int, list[int]] = {}
        for place, item in enumerate(items):
            for storage in _used(item):
                self._uses.setdefault(storage, []).append(place)
        place_of = {item: place for place, item in enumerate(items) if isinstance(item, Node)}
        for back in backs:
            if self._may_be_written_at_once(back, place_of[back]):
                self.targets[back.args[1]] = back.args[0]  # type: ignore[index, assignment]
        self._make_views_ahead()

    def is_done(self, node: Node) -> bool:
        """Whether a kernel has written already what a node would copy."""
        return _is_back(node) and self.targets.get(node.args[1]) is node.args[0]  # type: ignore[arg-type]

    def _may_be_written_at_once(self, back: Node, end: int) -> bool:
        target, source = back.args[:2]
        assert isinstance(target, Node) and isinstance(source, Node)
        start = self._made_at.get(source)
        if start is None or start <= self._last_failure or source in self.targets:
            return False
        a, b = target.meta["val"], source.meta["val"]
        if a.dtype is not b.dtype or _layout(a) != _layout(b) or not is_dense(b.shape, b.stride()):
            return False
        memory, of_source = storage_of(a), storage_of(b)
        assert memory is not None and of_source is not None
        if any(start < place < end for place in self._uses[memory]):
            return False
        if any(place > end for place in self._uses[of_source]) or _is_result(source):
            return False
        group = self.items[start]
        assert isinstance(group, PointwiseGroup)
        if device_of(target) != CPU and group.kernel.has_rows:
            return False  # several launches may share its rows
        return shared_buffers(group, {source: target}) is not None

    def _make_views_ahead(self) -> None:
        ahead: dict[int, list[Node]] = {}
        moved: set[Node] = set()
        for source, target in self.targets.items():
            node: Node | None = target
            chain = []
            while node is not None and node.op != "placeholder":
                chain.append(node)
                node = viewed(node)
            new = [node for node in reversed(chain) if node not in moved]
            moved.update(new)
            ahead.setdefault(self._made_at[source], []).extend(new)
        if not moved:
            return
        items: list[ScheduleItem] = []
        for place, item in enumerate(self.items):
            items += ahead.get(place, ())
            if not (isinstance(item, Node) and item in moved):
                items.append(item)
        self.items = items


def shared_buffers(group: PointwiseGroup, targets: Mapping[Node, Node]) -> dict[int, int] | None:
    """The outputs of a group that are written to targets which inputs are of, by these inputs.

    None if its kernel might read what it has written there.
    """
    shared = {}
    for output, target in targets.items():
        memory = storage_of(target.meta["val"])
        number = group.outputs.index(output)
        for place, node in enumerate(group.inputs):
            if storage_of(node.meta["val"]) != memory:
                continue
            distance = offset_of(target.meta["val"]) - offset_of(node.meta["val"])
            if not is_read_before_it_is_written(group.kernel, place, number, distance):
                return None
            if device_of(target) != CPU and is_turned(group.kernel):
                return None
            shared[place] = number
    return shared


def _is_back(node: Node) -> bool:
    if node.target is not aten.copy_.default or HIDDEN in node.meta:
        return False
    target, source = node.args[:2]
    if not (is_plain(target) and is_plain(source)):
        return False
    assert isinstance(target, Node) and isinstance(source, Node)
    root: Node | None = target
    while root is not None and root.op != "placeholder":
        root = viewed(root)
    return root is not None and device_of(target) == device_of(source)


def _never_fails(item: ScheduleItem) -> bool:
    return never_fails(item) if isinstance(item, Node) else not item.kernel.errors()


def _is_called(item: ScheduleItem) -> bool:
    """Whether work is an operator that is called through PyTorch."""
    if not isinstance(item, Node) or item.target is operator.getitem:
        return False
    return lowers.find(item.target) is None


def _used(item: ScheduleItem) -> set[int]:
    """The memory that work reads or writes; making a view does neither."""
    if isinstance(item, Node):
        if item.target is operator.getitem or viewed(item) is not None:
            return set()
        nodes = [*item.all_input_nodes, item]
    else:
        nodes = [*item.inputs, *item.numbers, *item.outputs]
    found: set[int] = set()
    for node in nodes:
        value: Any = node.meta.get("val")
        for part in value if isinstance(value, (list, tuple)) else (value,):
            storage = storage_of(part)
            found |= set() if storage is None else {storage}
    return found


def _is_result(node: Node) -> bool:
    """Whether a node, or a view of it, is a result of the graph."""
    return any(
        user.op == "output" or (viewed(user) is not None and _is_result(user))
        for user in node.users
    )


def _layout(tensor: torch.Tensor) -> list[str]:
    return [str(x) for x in (*tensor.shape, *tensor.stride())]
