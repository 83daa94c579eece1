# SPDX-License-Identifier: Apache-2.0
"""Launches and parts of inputs that are written where eager writes, not in copies.

A functional graph gives a kernel a copy of each tensor that it writes, and copies what becomes of
an input back to it. Where nobody looks at the memory in between, the copies are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils._pytree import tree_leaves

from hostjit.capturing.traced_graph import storage_of
from hostjit.launching.launch_operator import LAUNCH
from hostjit.lowering.pointwise import creates
from hostjit.lowering.scatters import (
    expand_scatters,
    fold_scatters,
    may_be_of_input,
    puts,
    stands_for_scatter,
    written_parts,
)
from hostjit.lowering.sizes import symbolic_views

__all__ = ["with_writes_in_place"]

aten = torch.ops.aten


def with_writes_in_place(graph: Graph, *, is_own: bool) -> Graph:
    """A graph that writes in place where that makes no difference.

    One of the caller's own is changed; another is copied, if there is anything to do.
    """
    has_launches = bool(graph.find_nodes(op="call_function", target=LAUNCH))
    if not has_launches and not puts(graph) and not written_parts(graph):
        return graph
    if not is_own:
        given, graph = graph, Graph()
        graph.output(graph.graph_copy(given, {}))
    expand_scatters(graph)
    memory = _Memory(graph)
    for node in graph.find_nodes(op="call_function", target=aten.as_strided_scatter.default):
        memory.leave_out_scatter(node)
    # From the last on: the copy of a copy goes first.
    for clone in reversed(list(graph.find_nodes(op="call_function", target=aten.clone.default))):
        if stands_for_scatter(clone) or memory.is_written_by_a_launch(clone):
            memory.leave_out(clone)
    fold_scatters(graph)
    return graph


class _Memory:
    """Which nodes of a graph share memory, and when it is used."""

    def __init__(self, graph: Graph) -> None:
        self._views = symbolic_views(graph)
        self._position = {node: position for position, node in enumerate(graph.nodes)}
        self._nodes: dict[int, list[Node]] = {}
        self._found: dict[Node, list[int]] = {}
        for node in graph.nodes:
            self._found[node] = list(_storages(node.meta.get("val")))
            for storage in self._found[node]:
                self._nodes.setdefault(storage, []).append(node)

    def is_written_by_a_launch(self, clone: Node) -> bool:
        written = _storages(clone.meta["val"])
        return any(
            user.target is LAUNCH and node in _written(user)
            for storage in written
            for node in self._nodes[storage]
            for user in node.users
        )

    def leave_out(self, clone: Node) -> None:
        """Have the users of a clone use its source, if that makes no difference."""
        source = clone.args[0]
        assert isinstance(source, Node)
        (of_source,), (of_clone,) = self._found[source], self._found[clone]
        if clone.kwargs or not self._is_exact(clone, source, of_clone):
            return
        owner = self._nodes[of_source][0]
        later = {
            user
            for node in self._nodes[of_source]
            for user in node.users
            if self._position[user] > self._position[clone]
        }
        if owner.op == "placeholder":
            if stands_for_scatter(clone) and not may_be_of_input(clone):
                return
            backs = [user for user in later if self._copies_back(user, of_clone)]
            if len(backs) != 1:
                return
            (back,) = backs
            if any(self._position[user] < self._position[back] for user in later):
                return
            if any(
                self._position[user] > self._position[back]
                for node in self._nodes[of_clone]
                for user in node.users
            ):
                return
            back.replace_all_uses_with(owner)
            self._erase(back)
        elif later or owner.op != "call_function" or creates.find(owner.target):
            return
        self._replace(clone, source)

    def leave_out_scatter(self, scatter: Node) -> None:
        """Have the users of what replaces all of a tensor use what it is replaced with."""
        base, source, *_ = scatter.args
        assert isinstance(base, Node) and isinstance(source, Node)
        (storage,) = self._found[scatter]
        if _geometry(base.meta["val"]) != _geometry(source.meta["val"]):
            return
        if [str(x) for x in tree_leaves(scatter.args[2:])] != _geometry(base.meta["val"]):
            return
        if self._is_exact(scatter, source, storage):
            self._replace(scatter, source)

    def _replace(self, node: Node, source: Node) -> None:
        """Have the users of a node use another one of the same elements."""
        (old,), (new,) = self._found[node], self._found[source]
        offset = source.meta["val"].storage_offset() - node.meta["val"].storage_offset()
        node.replace_all_uses_with(source)
        self._erase(node)
        for view in self._nodes.pop(old):
            self._move(view, source.meta["val"], offset)
            self._found[view] = [new]
            self._nodes[new].append(view)
        self._nodes[new].sort(key=self._position.__getitem__)

    def _is_exact(self, clone: Node, source: Node, storage: int) -> bool:
        """Whether a clone lies as its source does, and all of its users are views of its dtype."""
        found, expected = clone.meta["val"], source.meta["val"]
        return _strides(found) == _strides(expected) and all(
            isinstance(node.meta["val"], torch.Tensor) and node.meta["val"].dtype == found.dtype
            for node in self._nodes[storage]
        )

    def _move(self, node: Node, base: torch.Tensor, offset: int) -> None:
        """Make the value of a node a view of the storage of `base`."""
        value = node.meta["val"]
        with self._views():
            node.meta["val"] = torch.as_strided(
                base, value.shape, value.stride(), value.storage_offset() + offset
            )

    def _copies_back(self, node: Node, storage: int) -> bool:
        """Whether a node copies all of a changed copy to the input that it is a copy of."""
        if node.target is not aten.copy_.default:
            return False
        target, source = node.args[:2]
        if not (isinstance(target, Node) and isinstance(source, Node)):
            return False
        if target.op != "placeholder" or self._found[source] != [storage]:
            return False
        a, b = target.meta["val"], source.meta["val"]
        return a.dtype == b.dtype and _geometry(a) == _geometry(b)

    def _erase(self, node: Node) -> None:
        for storage in self._found.pop(node):
            self._nodes[storage].remove(node)
        node.graph.erase_node(node)


def _written(launch: Node) -> Any:
    return launch.args[3]


def _storages(value: Any) -> Iterator[int]:
    for item in value if isinstance(value, (list, tuple)) else (value,):
        storage = storage_of(item)
        if storage is not None:
            yield storage


def _strides(tensor: torch.Tensor) -> list[str]:
    """As text, as below: comparing symbols would assume something."""
    return [str(stride) for stride in tensor.stride()]


def _geometry(tensor: torch.Tensor) -> list[str]:
    return [str(x) for x in (*tensor.shape, *tensor.stride(), tensor.storage_offset())]
